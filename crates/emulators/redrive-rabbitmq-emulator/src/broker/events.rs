//! What happened that no client is told.

use std::collections::VecDeque;

use bytes::Bytes;
use redrive_amqp091::{Properties, RawTable, ShortStr, Table};
use redrive_emulator_host::Timestamp;

use super::message::Message;

/// A message, for tests to look at.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageView {
    /// The exchange that it was published to, or dead-lettered to.
    pub exchange: String,
    /// Its routing key.
    pub routing_key: String,
    /// Its properties; the headers are encoded.
    pub properties: Properties,
    /// Its body.
    pub body: Bytes,
}

impl MessageView {
    pub(crate) fn of(message: &Message) -> Self {
        Self {
            exchange: message.exchange.to_string(),
            routing_key: message.routing_key.to_string(),
            properties: message.decode_properties().unwrap_or_default(),
            body: message.body.clone(),
        }
    }

    /// Decodes the headers.
    #[must_use]
    pub fn headers(&self) -> Table {
        self.properties.headers.as_ref().map(RawTable::decode).unwrap_or_default()
    }
}

/// Why a message was dropped: it is in no queue any more, and no client was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DropReason {
    /// Rejected, and the queue has no dead-letter exchange.
    Rejected,
    /// Expired, and the queue has no dead-letter exchange.
    Expired,
    /// Too many messages, and the queue has no dead-letter exchange.
    MaxLength,
    /// Delivered too often, and the queue has no dead-letter exchange.
    DeliveryLimit,
    /// The dead-letter exchange does not exist.
    NoDeadLetterExchange,
    /// The dead-letter exchange routes it nowhere.
    DeadLetterUnroutable,
    /// It would reach a queue again that it died in, without a rejection in between.
    Cycle,
    /// It goes round and round without time passing. RabbitMQ 3.10.8 was seen to go on, and to answer nobody.
    Endless,
    /// The target of the dead letter refused it.
    DeadLetterRefused,
    /// Published without `mandatory`, and no queue is bound for it.
    Unroutable,
    /// Its queue was deleted.
    QueueDeleted,
    /// Its queue was unused for the time of `x-expires`.
    QueueExpired,
    /// Its queue was purged.
    Purged,
}

/// Why, as an operator reads it.
impl std::fmt::Display for DropReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Rejected => "rejected, and its queue has no dead-letter exchange",
            Self::Expired => "expired, and its queue has no dead-letter exchange",
            Self::MaxLength => "its queue is full, and has no dead-letter exchange",
            Self::DeliveryLimit => "delivered too often, and its queue has no dead-letter exchange",
            Self::NoDeadLetterExchange => "the dead-letter exchange of its queue does not exist",
            Self::DeadLetterUnroutable => "the dead-letter exchange of its queue routes it nowhere",
            Self::Cycle => "as a dead letter it would reach a queue again that it died in, without a rejection in between",
            Self::Endless => "as a dead letter it goes round and round without time passing",
            Self::DeadLetterRefused => "the target of the dead letter refused it",
            Self::Unroutable => "published without `mandatory`, and no queue is bound for it",
            Self::QueueDeleted => "its queue was deleted",
            Self::QueueExpired => "its queue was unused for the time of `x-expires`",
            Self::Purged => "its queue was purged",
        })
    }
}

/// Something that no client is told.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// When, on the emulator's clock.
    pub at: Timestamp,
    /// The virtual host.
    pub vhost: String,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum EventKind {
    /// A message was dropped.
    Dropped {
        /// The queue that it was in; empty if it was in none.
        queue: String,
        /// Why.
        reason: DropReason,
        /// The message, before its death.
        message: Box<MessageView>,
    },
    /// A message was dead-lettered.
    DeadLettered {
        /// The queue that it died in.
        queue: String,
        /// `rejected`, `expired`, `maxlen` or `delivery_limit`.
        reason: &'static str,
        /// The queues that it reached.
        to: Vec<String>,
    },
    /// A queue was unused for the time of `x-expires`, and deleted.
    QueueExpired {
        /// Its name.
        queue: String,
        /// Number of messages that were lost with it.
        messages: usize,
    },
    /// A queue has a dead-letter exchange, and dead-lettering is switched off.
    DeadLetteringIgnored {
        /// The queue's name.
        queue: String,
    },
    /// A delivery was not settled in time.
    ConsumerTimedOut {
        /// The queue's name.
        queue: String,
    },
}

/// The latest events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    kept: VecDeque<Event>,
    most: usize,
    /// How many of the latest were not logged.
    unlogged: usize,
}

impl Events {
    pub(crate) fn new(most: usize) -> Self {
        Self { kept: VecDeque::new(), most, unlogged: 0 }
    }

    /// Builds the event only if events are kept.
    pub(crate) fn add(&mut self, at: Timestamp, vhost: &ShortStr, kind: impl FnOnce() -> EventKind) {
        if self.most == 0 {
            return;
        }
        if self.kept.len() >= self.most {
            self.kept.pop_front();
        }
        self.unlogged += 1;
        self.kept.push_back(Event { at, vhost: vhost.to_string(), kind: kind() });
    }

    /// Returns the events since the last call, of those that are kept.
    pub(crate) fn unlogged(&mut self) -> Vec<Event> {
        let from = self.kept.len().saturating_sub(std::mem::take(&mut self.unlogged));
        self.kept.range(from..).cloned().collect()
    }

    pub(crate) fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.kept).into()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.kept.iter()
    }
}
