//! Puts the frames of deliveries together: a method, a content header, and the body in any number of frames. No I/O.

use std::sync::Arc;

use redrive_core::Bytes;

use super::deliveries::{Deliveries, Queue, Source, Taken};
use super::frame::{BODY, HEADER, METHOD};

const CHANNEL_CLOSE: [u8; 4] = [0, 20, 0, 40];
const CHANNEL_CLOSE_OK: [u8; 4] = [0, 20, 0, 41];
const BASIC_DELIVER: [u8; 4] = [0, 60, 0, 60];
/// Memory for a body is reserved up to this size at once: beyond, as it arrives.
const RESERVED: u64 = 1 << 20;

/// Takes the frames of deliveries whose channel has a queue.
#[derive(Debug)]
pub(super) struct Taker {
    deliveries: Deliveries,
    /// Deliveries whose frames still arrive, at most one for each channel: rarely more than one.
    incomplete: Vec<Incomplete>,
    /// Queues that have new deliveries.
    filled: Vec<Arc<Queue>>,
}

#[derive(Debug)]
struct Incomplete {
    channel: u16,
    tag: u64,
    redelivered: bool,
    source: Arc<Source>,
    queue: Arc<Queue>,
    /// After the content header.
    content: Option<Content>,
}

/// Header and body behind each other: one piece of memory for a delivery.
#[derive(Debug)]
struct Content {
    header: usize,
    bytes: Vec<u8>,
    /// Number of bytes of the body that are still to come.
    missing: u64,
}

impl Taker {
    pub(super) fn new(deliveries: Deliveries) -> Self {
        Self { deliveries, incomplete: Vec::new(), filled: Vec::new() }
    }

    /// Returns true if it would take a frame with this payload.
    pub(super) fn takes(&self, frame_type: u8, channel: u16, payload: &[u8]) -> bool {
        let mut incomplete = self.incomplete.iter().filter(|one| one.channel == channel);
        match frame_type {
            METHOD => payload.starts_with(&BASIC_DELIVER) && self.deliveries.of(channel).is_some(),
            HEADER => incomplete.any(|one| one.content.is_none()),
            BODY => incomplete.any(|one| one.content.is_some()),
            _ => false,
        }
    }

    /// Returns true if it takes this method: it begins a delivery.
    pub(super) fn method(&mut self, channel: u16, payload: &[u8]) -> bool {
        match payload.first_chunk() {
            Some(&BASIC_DELIVER) => self.deliver(channel, &payload[4..]).is_some(),
            Some(&(CHANNEL_CLOSE | CHANNEL_CLOSE_OK)) => {
                self.deliveries.channel_ended(channel);
                self.incomplete.retain(|delivery| delivery.channel != channel);
                false
            }
            _ => false,
        }
    }

    fn deliver(&mut self, channel: u16, arguments: &[u8]) -> Option<()> {
        let queue = self.deliveries.of(channel)?;
        let mut rest = arguments;
        let _consumer_tag = short_text(&mut rest)?;
        let (tag, after) = rest.split_first_chunk()?;
        let (redelivered, mut rest) = after.split_first()?;
        let exchange = std::str::from_utf8(short_text(&mut rest)?).ok()?;
        let routing_key = std::str::from_utf8(short_text(&mut rest)?).ok()?;
        let source = queue.source(exchange, routing_key);
        self.incomplete.push(Incomplete {
            channel,
            tag: u64::from_be_bytes(*tag),
            redelivered: *redelivered != 0,
            source,
            queue,
            content: None,
        });
        Some(())
    }

    /// Returns true if it takes this content header.
    pub(super) fn header(&mut self, channel: u16, payload: &[u8]) -> bool {
        let Some(at) = self.incomplete.iter().position(|one| one.channel == channel && one.content.is_none())
        else {
            return false;
        };
        // After class and weight. Without it, nothing follows.
        let size = payload.get(4..).and_then(<[u8]>::first_chunk).map_or(0, |size| u64::from_be_bytes(*size));
        let reserved = usize::try_from(size.min(RESERVED)).unwrap_or_default();
        let mut bytes = Vec::with_capacity(payload.len() + reserved);
        bytes.extend_from_slice(payload);
        self.incomplete[at].content = Some(Content { header: payload.len(), bytes, missing: size });
        self.complete(at);
        true
    }

    /// Returns true if as many bytes are missing as a body frame of this size brings, or more.
    pub(super) fn body_fits(&self, channel: u16, size: usize) -> bool {
        let content = self.at(channel).and_then(|at| self.incomplete[at].content.as_ref());
        content.is_some_and(|content| size as u64 <= content.missing)
    }

    /// Takes a part of a body frame.
    pub(super) fn body(&mut self, channel: u16, part: &[u8]) {
        let Some(at) = self.at(channel) else { return };
        let Some(content) = &mut self.incomplete[at].content else { return };
        content.bytes.extend_from_slice(part);
        content.missing = content.missing.saturating_sub(part.len() as u64);
    }

    /// The end mark of a body frame has arrived.
    pub(super) fn body_frame_ended(&mut self, channel: u16) {
        if let Some(at) = self.at(channel) {
            self.complete(at);
        }
    }

    fn at(&self, channel: u16) -> Option<usize> {
        self.incomplete.iter().position(|one| one.channel == channel)
    }

    /// Passes the delivery on if nothing is missing.
    fn complete(&mut self, at: usize) {
        let is_complete = self.incomplete[at].content.as_ref().is_some_and(|content| content.missing == 0);
        if !is_complete {
            return;
        }
        let Incomplete { tag, redelivered, source, queue, content, .. } = self.incomplete.swap_remove(at);
        let Some(content) = content else { return };
        let mut body = Bytes::from(content.bytes);
        let header = body.split_to(content.header);
        queue.push(Taken { tag, redelivered, source, header, body });
        if !self.filled.iter().any(|filled| Arc::ptr_eq(filled, &queue)) {
            self.filled.push(queue);
        }
    }

    /// Wakes the consumers that have new deliveries.
    pub(super) fn wake(&mut self) {
        self.filled.drain(..).for_each(|queue| queue.wake());
    }
}

fn short_text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first()?;
    let (text, after) = after.split_at_checked(usize::from(*length))?;
    *rest = after;
    Some(text)
}
