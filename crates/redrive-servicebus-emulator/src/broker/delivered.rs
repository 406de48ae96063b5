//! A message on its way to a client.

use std::sync::Arc;

use uuid::Uuid;

use super::stored::{Place, SequenceNumber, Stored};
use super::time::Timestamp;
use super::{EntityId, ReceiverId};
use crate::amqp::{Message, Value};

/// A message as it is received, peeked or looked at.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Delivered {
    /// Where it is, or was.
    pub entity: EntityId,
    /// Its number there.
    pub sequence_number: SequenceNumber,
    /// Its number where it was first sent to.
    pub enqueued_sequence_number: SequenceNumber,
    /// When it came there.
    pub enqueued_at: Timestamp,
    /// When it will be removed, unless somebody holds it then.
    pub expires_at: Option<Timestamp>,
    /// Failed deliveries before this one.
    pub delivery_count: u32,
    /// Where in the entity it is.
    pub place: Place,
    /// The right to settle it: of a received message, and of a locked one that is looked at. Not of a peeked one.
    pub lock_token: Option<Uuid>,
    /// Until when the lock holds.
    pub locked_until: Option<Timestamp>,
    /// The entity that dead-lettered it, once it was handed on from there.
    pub dead_letter_source: Option<Arc<str>>,
    /// What was sent.
    pub message: Arc<Message>,
    /// What it counts against the limits, in bytes.
    pub size: u64,
}

/// Whether received messages must be settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveMode {
    /// Locked until settled.
    PeekLock,
    /// Gone once received.
    ReceiveAndDelete,
}

/// A session that a receiver holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AcceptedSession {
    /// The session.
    pub session: Arc<str>,
    /// Who holds it.
    pub receiver: ReceiverId,
    /// Until when, unless renewed.
    pub locked_until: Timestamp,
}

impl Delivered {
    pub(super) fn of(entity: EntityId, sequence_number: SequenceNumber, stored: &Stored) -> Self {
        let meta = &stored.meta;
        Self {
            entity,
            sequence_number,
            enqueued_sequence_number: meta.enqueued_sequence,
            enqueued_at: meta.enqueued_at,
            expires_at: meta.expires_at,
            delivery_count: meta.delivery_count,
            place: meta.place,
            lock_token: stored.lock.map(|lock| lock.token),
            locked_until: stored.lock.map(|lock| lock.until),
            dead_letter_source: meta.dead_letter_source.clone(),
            message: Arc::clone(&stored.content),
            size: stored.size,
        }
    }

    pub(super) fn without_lock(self) -> Self {
        Self { lock_token: None, locked_until: None, ..self }
    }

    /// The message as a client gets it: with what the broker knows about it in header and annotations.
    #[must_use]
    pub fn to_message(&self) -> Message {
        let mut message = Message::clone(&self.message);
        message.header.delivery_count = self.delivery_count;
        message.header.ttl = self.time_to_live().or(message.header.ttl);
        message.delivery_annotations.0.clear();
        // A deferred message comes in an answer, without a delivery tag: older clients look for its token here.
        if let Some(token) = self.lock_token {
            message.delivery_annotations.insert_symbol("x-opt-lock-token", token);
        }
        let annotations = &mut message.message_annotations;
        let state = match self.place {
            Place::Active => 0i32,
            Place::Deferred => 1,
            Place::Scheduled(_) => 2,
        };
        annotations.insert_symbol("x-opt-enqueued-time", Value::Timestamp(self.enqueued_at.millis()));
        annotations.insert_symbol("x-opt-sequence-number", self.sequence_number);
        annotations.insert_symbol("x-opt-enqueue-sequence-number", self.enqueued_sequence_number);
        annotations.insert_symbol("x-opt-message-state", state);
        match self.locked_until {
            Some(until) => annotations.insert_symbol("x-opt-locked-until", Value::Timestamp(until.millis())),
            None => drop(annotations.remove("x-opt-locked-until")),
        }
        if let Some(source) = &self.dead_letter_source {
            annotations.insert_symbol("x-opt-deadletter-source", source.as_ref());
        }
        message
    }

    /// What the entity left of the time to live that was asked for. A header holds at most 49 days.
    fn time_to_live(&self) -> Option<u32> {
        let millis = self.expires_at?.since(self.enqueued_at).as_millis();
        Some(u32::try_from(millis).unwrap_or(u32::MAX))
    }
}
