//! Takes what belongs to redrive's own channels: confirms, and the frames of deliveries, of answers to `basic.get` and of returned messages,
//! which it puts together: a method, a content header, and the body in any number of frames. No I/O.

use std::sync::Arc;

use redrive_amqp091::{basic, channel, connection};
use redrive_core::Bytes;
use redrive_core::transport::Origin;

use super::channels::OwnChannels;
use super::confirms::Confirms;
use super::deliveries::{Queue, TakenDelivery};
use super::ended::Ended;
use super::frame::{BODY, HEADER, METHOD};

/// Memory for a body is reserved up to this size at once: beyond, as it arrives.
const RESERVED: u64 = 1 << 20;

/// Takes the frames of redrive's own channels.
#[derive(Debug)]
pub(super) struct Taker {
    channels: OwnChannels,
    /// Messages whose frames still arrive, at most one for each channel: rarely more than one.
    incomplete: Vec<Incomplete>,
    /// Queues that have new deliveries.
    filled: Vec<Arc<Queue>>,
    /// Channels that have new confirms.
    confirmed: Vec<Arc<Confirms>>,
    closed: bool,
}

#[derive(Debug)]
struct Incomplete {
    channel: u16,
    kind: Kind,
    /// After the content header.
    content: Option<Content>,
}

#[derive(Debug)]
enum Kind {
    Delivery { tag: u64, redelivered: bool, origin: Origin, queue: Arc<Queue>, behind: Option<u32> },
    Return { text: String, confirms: Arc<Confirms> },
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
    pub(super) fn new(channels: OwnChannels) -> Self {
        Self { channels, incomplete: Vec::new(), filled: Vec::new(), confirmed: Vec::new(), closed: false }
    }

    /// Returns true if it would take a frame with this payload.
    pub(super) fn takes(&self, frame_type: u8, channel: u16, payload: &[u8]) -> bool {
        let mut incomplete = self.incomplete.iter().filter(|one| one.channel == channel);
        match (frame_type, payload.first_chunk()) {
            (METHOD, Some(&(basic::Deliver::ID | basic::GetOk::ID | basic::GetEmpty::ID))) => {
                self.channels.deliveries_of(channel).is_some()
            }
            (METHOD, Some(&(basic::Ack::ID | basic::Nack::ID | basic::Return::ID))) => {
                self.channels.confirms_of(channel).is_some()
            }
            (METHOD, Some(&(channel::Close::ID | channel::CloseOk::ID))) => {
                self.channels.is_closed_by_library()
            }
            (HEADER, _) => incomplete.any(|one| one.content.is_none()),
            (BODY, _) => incomplete.any(|one| one.content.is_some()),
            _ => false,
        }
    }

    /// Returns true if it takes this method: a confirm, or the beginning of a message.
    pub(super) fn method(&mut self, channel: u16, payload: &[u8]) -> bool {
        let Some((method, arguments)) = payload.split_first_chunk() else { return false };
        let taken = match *method {
            basic::Deliver::ID => self.deliver(channel, arguments),
            basic::GetOk::ID => self.got(channel, arguments),
            basic::GetEmpty::ID => self.got_nothing(channel),
            basic::Ack::ID => self.confirm(channel, arguments, true),
            basic::Nack::ID => self.confirm(channel, arguments, false),
            basic::Return::ID => self.comes_back(channel, arguments),
            channel::Close::ID => {
                self.channels.broker_ends(channel, ended(arguments));
                self.forget(channel);
                self.with_the_connection()
            }
            channel::CloseOk::ID => {
                self.channels.is_over(channel);
                self.forget(channel);
                self.with_the_connection()
            }
            connection::Close::ID => {
                self.channels.connection_ends(ended(arguments));
                None
            }
            connection::CloseOk::ID => {
                self.closed = true;
                None
            }
            _ => None,
        };
        taken.is_some()
    }

    /// Takes the end of a channel if the library closes the connection: it would end the channel twice, and log that as an error.
    fn with_the_connection(&self) -> Option<()> {
        self.channels.is_closed_by_library().then_some(())
    }

    /// Nothing more comes on the channel.
    fn forget(&mut self, channel: u16) {
        self.incomplete.retain(|message| message.channel != channel);
    }

    fn deliver(&mut self, channel: u16, arguments: &[u8]) -> Option<()> {
        let queue = self.channels.deliveries_of(channel)?;
        let mut rest = arguments;
        let _consumer_tag = short_text(&mut rest)?;
        let (kind, _) = delivery(queue, rest)?;
        self.begin(channel, kind);
        Some(())
    }

    fn got(&mut self, channel: u16, arguments: &[u8]) -> Option<()> {
        let queue = self.channels.deliveries_of(channel)?;
        let (mut kind, rest) = delivery(queue, arguments)?;
        if let Kind::Delivery { behind, .. } = &mut kind {
            *behind = Some(u32::from_be_bytes(*rest.first_chunk()?));
        }
        self.begin(channel, kind);
        Some(())
    }

    fn got_nothing(&mut self, channel: u16) -> Option<()> {
        let queue = self.channels.deliveries_of(channel)?;
        queue.answer(None);
        self.note_filled(queue);
        Some(())
    }

    fn note_filled(&mut self, queue: Arc<Queue>) {
        if !self.filled.iter().any(|filled| Arc::ptr_eq(filled, &queue)) {
            self.filled.push(queue);
        }
    }

    fn confirm(&mut self, channel: u16, arguments: &[u8], stored: bool) -> Option<()> {
        const MULTIPLE: u8 = 1;
        let confirms = self.channels.confirms_of(channel)?;
        let (tag, rest) = arguments.split_first_chunk()?;
        confirms.confirm(u64::from_be_bytes(*tag), rest.first()? & MULTIPLE != 0, stored);
        if !self.confirmed.iter().any(|confirmed| Arc::ptr_eq(confirmed, &confirms)) {
            self.confirmed.push(confirms);
        }
        Some(())
    }

    fn comes_back(&mut self, channel: u16, arguments: &[u8]) -> Option<()> {
        let confirms = self.channels.confirms_of(channel)?;
        let (_code, text) = reason(arguments)?;
        self.begin(channel, Kind::Return { text, confirms });
        Some(())
    }

    fn begin(&mut self, channel: u16, kind: Kind) {
        self.incomplete.push(Incomplete { channel, kind, content: None });
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
        let Incomplete { kind, content, .. } = self.incomplete.swap_remove(at);
        let Some(content) = content else { return };
        match kind {
            Kind::Delivery { tag, redelivered, origin, queue, behind } => {
                let mut body = Bytes::from(content.bytes);
                let header = body.split_to(content.header);
                let delivery = TakenDelivery { tag, redelivered, origin, header, body };
                match behind {
                    Some(behind) => queue.answer(Some((delivery, behind))),
                    None => queue.push(delivery),
                }
                self.note_filled(queue);
            }
            // Its confirm follows.
            Kind::Return { text, confirms } => {
                let (header, body) = content.bytes.split_at(content.header);
                confirms.came_back(header, body, &text);
            }
        }
    }

    /// Returns true once the broker has confirmed that this side closes the connection.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Keeps the reason of a channel's end if it is an answer. Returns true if the library is not told the reason.
    pub(super) fn keeps_answer(&self, channel: u16, payload: &[u8]) -> bool {
        payload
            .strip_prefix(&channel::Close::ID)
            .is_some_and(|arguments| self.channels.is_answered(channel, ended(arguments)))
    }

    /// Wakes the consumers that have new deliveries, and the callers whose messages are confirmed.
    pub(super) fn wake(&mut self) {
        self.filled.drain(..).for_each(|queue| queue.wake());
        self.confirmed.drain(..).for_each(|confirms| confirms.wake());
    }
}

/// Reads what `basic.deliver` and `basic.get-ok` have in common. Returns the bytes behind it, too.
fn delivery(queue: Arc<Queue>, arguments: &[u8]) -> Option<(Kind, &[u8])> {
    let (tag, after) = arguments.split_first_chunk()?;
    let (redelivered, mut rest) = after.split_first()?;
    let exchange = std::str::from_utf8(short_text(&mut rest)?).ok()?;
    let routing_key = std::str::from_utf8(short_text(&mut rest)?).ok()?;
    let origin = queue.origin(exchange, routing_key);
    let (tag, redelivered) = (u64::from_be_bytes(*tag), *redelivered != 0);
    Some((Kind::Delivery { tag, redelivered, origin, queue, behind: None }, rest))
}

fn ended(arguments: &[u8]) -> Ended {
    reason(arguments).map_or_else(Ended::default, |(code, text)| Ended::ByTheBroker(code, text))
}

/// Returns the code and the text that follows it.
fn reason(arguments: &[u8]) -> Option<(u16, String)> {
    let (code, mut rest) = arguments.split_first_chunk()?;
    Some((u16::from_be_bytes(*code), String::from_utf8_lossy(short_text(&mut rest)?).into_owned()))
}

fn short_text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first()?;
    let (text, after) = after.split_at_checked(usize::from(*length))?;
    *rest = after;
    Some(text)
}
