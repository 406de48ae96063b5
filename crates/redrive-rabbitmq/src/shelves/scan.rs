//! Scans one shelf.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use futures::future::try_join_all;
use lapin::message::BasicGetMessage;
use lapin::options::{BasicGetOptions, BasicQosOptions};
use redrive_core::{EntryHandle, Shelf, Shelved, TransportError, TransportErrorKind};

use tokio::time::Instant;

use super::delivery_limit::Looks;
use super::fingerprint::Fingerprint;
use super::numbers::{Name, Numbers, Taken};
use crate::broker_delivery_count;
use crate::connection::while_open;
use crate::convert::{self, short};
use crate::deaths;
use crate::error;
use crate::receipt::Receipt;
use crate::settle::channel::DeliveryChannel;

/// Maximum number of messages that are requested together.
const REQUESTED_TOGETHER: u32 = 64;

/// A message of the shelf, in flight.
pub(super) struct Found {
    pub(super) name: Name,
    pub(super) shelved: Shelved,
    pub(super) tag: u64,
    /// False if it was read without some of its headers.
    pub(super) whole: bool,
}

/// A scan of one shelf, on its own channel. It returns only messages that are there at the beginning.
pub(super) struct ShelfScan {
    channel: Arc<DeliveryChannel>,
    queue: String,
    shelf: Shelf,
    taken: Arc<Taken>,
    looks: Looks,
    numbers: Numbers,
    /// Number of those messages that are not requested yet; the first answer tells it. (A passive declaration is late for a quorum
    /// queue: directly after a confirmed publish it can still report 0.)
    left: Option<u32>,
    /// Number of messages in the next request: it grows, so that a caller that needs one takes few.
    at_once: u32,
    /// In flight, and not returned yet.
    ahead: VecDeque<BasicGetMessage>,
    /// Messages to give back, in this order, and their names.
    held: Vec<u64>,
    passed: HashSet<Name>,
    pub(super) began: Instant,
}

impl ShelfScan {
    pub(super) fn new(
        channel: Arc<DeliveryChannel>,
        queue: String,
        shelf: Shelf,
        taken: Arc<Taken>,
        looks: Looks,
    ) -> Self {
        let (ahead, held) = (VecDeque::new(), Vec::new());
        Self {
            channel,
            queue,
            shelf,
            taken,
            looks,
            numbers: Numbers::default(),
            left: None,
            at_once: 1,
            ahead,
            held,
            passed: HashSet::new(),
            began: Instant::now(),
        }
    }

    /// Returns the next message.
    pub(super) async fn next(&mut self) -> Result<Option<Found>, TransportError> {
        if self.ahead.is_empty() {
            self.ask().await?;
        }
        let Some(BasicGetMessage { delivery, .. }) = self.ahead.pop_front() else { return Ok(None) };
        let whole = convert::left_out(&delivery.properties).is_none();
        let mut message = convert::message(&delivery.properties, delivery.data);
        if let Looks::SafeBelow(limit) = self.looks
            && broker_delivery_count::returns(message.headers()) >= limit
        {
            self.held.push(delivery.delivery_tag);
            return Err(error::dies_with_the_process(&self.queue, limit));
        }
        // Each look raises them: they are the queue's, and not part of the entry.
        message.headers_mut().retain(|name, _| !broker_delivery_count::HEADERS.contains(&name));
        let name = self.numbers.next(&self.taken, self.shelf, Fingerprint::of(&message));
        let shelved = deaths::shelved(name.handle(self.shelf), message);
        Ok(Some(Found { name, shelved, tag: delivery.delivery_tag, whole }))
    }

    /// Returns true if there may be a next one.
    pub(super) fn has_more(&self) -> bool {
        !self.ahead.is_empty() || self.left != Some(0)
    }

    /// Keeps a message on the shelf.
    pub(super) fn keep(&mut self, found: &Found) {
        self.held.push(found.tag);
        self.passed.insert(found.name);
    }

    /// Returns true if the scan keeps this entry on the shelf, or may do so: it does not come again.
    pub(super) fn has_passed(&self, entry: &EntryHandle) -> bool {
        Name::parse(entry.entry()).is_none_or(|name| self.passed.contains(&name))
    }

    /// Returns how many messages are held.
    pub(super) fn held(&self) -> u64 {
        (self.held.len() + self.ahead.len()) as u64
    }

    /// Returns true while its messages can be settled.
    pub(super) fn is_live(&self) -> bool {
        self.channel.is_live()
    }

    /// Removes a message from the shelf.
    pub(super) async fn remove(&self, found: &Found) -> Result<(), TransportError> {
        Receipt::new(found.tag, Arc::clone(&self.channel)).ack().await?;
        self.taken.note(self.shelf, found.name);
        Ok(())
    }

    /// Waits until the broker has processed what was removed.
    pub(super) async fn settled(&self) -> Result<(), TransportError> {
        self.channel.settle_down().await;
        let channel = self.channel.channel();
        // A request that changes nothing, behind all acknowledgements of the channel.
        let request = channel.basic_qos(1, BasicQosOptions { global: false });
        while_open(channel, request).await.map_err(|cause| error::lost(&cause).with_source(cause))?;
        self.channel.check()
    }

    /// Returns the name of a message that was stored on the shelf meanwhile.
    pub(super) fn name_of_stored(&mut self, fingerprint: Fingerprint) -> Name {
        self.numbers.next(&self.taken, self.shelf, fingerprint)
    }

    /// Requests the next messages.
    async fn ask(&mut self) -> Result<(), TransportError> {
        let count = self.left.map_or(1, |left| left.min(self.at_once));
        self.at_once = (self.at_once * 2).min(REQUESTED_TOGETHER);
        let channel = self.channel.channel();
        let queue = short(&self.queue, "the name of a queue")?;
        let asking = (0..count).map(|_| {
            while_open(channel, channel.basic_get(queue.clone(), BasicGetOptions { no_ack: false }))
        });
        let answers = try_join_all(asking).await.map_err(|error| match error::refusal(&error) {
            Some(_) => error::verifying(&self.queue, error),
            None => {
                TransportError::new(TransportErrorKind::Unreachable, error.to_string()).with_source(error)
            }
        })?;
        let mut found: Vec<_> = answers.into_iter().flatten().collect();
        found.sort_unstable_by_key(|found| found.delivery.delivery_tag);
        self.left = match (self.left, found.last()) {
            // Another client took the message.
            _ if (found.len() as u32) < count => Some(0),
            (None, last) => Some(last.map_or(0, |last| last.message_count)),
            (Some(left), _) => Some(left - count),
        };
        self.ahead.extend(found);
        Ok(())
    }

    /// Gives kept messages back, and waits until the broker has processed everything before the channel closes.
    pub(super) async fn end(self) {
        let ahead = self.ahead.iter().map(|found| found.delivery.delivery_tag);
        for tag in self.held.into_iter().chain(ahead) {
            // If that fails, the channel is gone, and everything is given back.
            let _ = Receipt::new(tag, Arc::clone(&self.channel)).release().await;
        }
        self.channel.settle_down().await;
        // When the broker answers, everything is back in its place, and the next scan sees it.
        self.channel.close().await;
    }
}
