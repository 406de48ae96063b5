//! What happened in a run. Plain values.

use std::collections::BTreeMap;
use std::time::Duration;

use redrive_core::{Delivery, Disposition, Failure, FailureHistory, Message, Reason};

/// What happened so far in a run of a [`TestConsumer`](crate::TestConsumer). `Display` prints a table of all attempts.
///
/// Times are virtual, measured from the start of the first run, when its messages are sent.
#[derive(Clone, Debug, Default)]
pub struct TestRun {
    pub(crate) messages: Vec<MessageRecord>,
    pub(crate) published: BTreeMap<String, Vec<PublishedMessage>>,
}

/// What happened to one message.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MessageRecord {
    /// The id. Messages with the same id share a record.
    pub id: String,
    /// Every delivery, in the order of arrival.
    pub attempts: Vec<AttemptRecord>,
    /// Where the message is at the end of the run.
    pub end: End,
    /// The message as it is there; if it was removed, as it was delivered last.
    pub message: Message,
}

/// What happened to one delivery of a message.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AttemptRecord {
    /// Number of the attempt: 1 the first time.
    pub number: u32,
    /// When it began.
    pub at: Duration,
    /// How long layers and handler took.
    pub took: Duration,
    /// The message as it was delivered.
    pub message: Message,
    /// What layers and handler decided; `None` while the handler has not ended.
    pub disposition: Option<Disposition>,
    /// Why the broker has not carried the decision out yet, while the consumer tries again.
    pub not_settled: Option<String>,
}

/// Where a message is at the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// Removed, because it was handled.
    Acknowledged,
    /// Removed for another reason: at the handler's request, or by an operator.
    Discarded,
    /// On the dead-letter shelf.
    DeadLettered,
    /// On the parking shelf.
    Parked,
    /// In the queue, until this time.
    Waiting(Duration),
    /// In the queue, not delivered yet.
    Ready,
    /// Delivered, and not settled yet.
    InFlight,
}

/// A message that a handler published to a queue other than its own.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PublishedMessage {
    /// The message.
    pub message: Message,
    /// When it will be delivered, if it was published with a wait that is not over.
    pub due: Option<Duration>,
}

impl TestRun {
    /// Returns all messages that were sent or delivered, in that order.
    #[must_use]
    pub fn messages(&self) -> &[MessageRecord] {
        &self.messages
    }

    /// Returns what happened to the message with this id.
    ///
    /// # Panics
    ///
    /// If there was no such message.
    #[must_use]
    #[track_caller]
    pub fn message(&self, id: &str) -> &MessageRecord {
        match self.messages.iter().find(|message| message.id == id) {
            Some(message) => message,
            None => panic!("{id}: no message of this id was sent or delivered\n\n{self}"),
        }
    }

    /// Returns the messages in this queue, which handlers published; empty if there are none. For the consumer's own queue, use
    /// [`messages`](Self::messages).
    #[must_use]
    pub fn published(&self, queue: &str) -> &[PublishedMessage] {
        self.published.get(queue).map_or(&[], Vec::as_slice)
    }
}

impl MessageRecord {
    /// Returns what redrive wrote on the message when it failed: reason, error, counts, past failures.
    #[must_use]
    pub fn history(&self) -> FailureHistory {
        FailureHistory::read(&self.message)
    }

    /// Returns why the message is where it is, if it failed.
    pub(crate) fn reason(&self) -> Option<Reason> {
        matches!(self.end, End::DeadLettered | End::Parked).then(|| self.history().reason).flatten()
    }
}

impl AttemptRecord {
    pub(crate) fn new(delivery: &Delivery, at: Duration) -> Self {
        Self {
            number: delivery.attempt(),
            at,
            took: Duration::ZERO,
            message: delivery.message().clone(),
            disposition: None,
            not_settled: None,
        }
    }

    pub(crate) fn id(&self) -> &str {
        self.message.id().unwrap_or_default()
    }

    /// Returns the text of the error if the attempt failed: redacted, as redrive writes it on the message.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.disposition.as_ref()?.failure().map(Failure::text)
    }

    /// Returns when the next attempt is due, if there is one.
    #[must_use]
    pub fn next_at(&self) -> Option<Duration> {
        let wait = self.disposition.as_ref()?.wait()?;
        Some(self.at.saturating_add(self.took).saturating_add(wait))
    }
}
