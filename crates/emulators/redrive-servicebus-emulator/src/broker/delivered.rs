//! A message that is handed to a client.

use std::sync::Arc;

use redrive_emulator_host::Timestamp;
use uuid::Uuid;

use super::stored::{Place, SequenceNumber, Stored};
use super::{EntityId, ReceiverId};
use crate::amqp::{Message, Value};

/// A received, peeked or inspected message.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Delivered {
    /// Where it is, or was.
    pub entity: EntityId,
    /// Its number there.
    pub sequence_number: SequenceNumber,
    /// Its number in the entity that it was first sent to.
    pub enqueued_sequence_number: SequenceNumber,
    /// When it arrived there.
    pub enqueued_at: Timestamp,
    /// When it expires, unless it is locked then.
    pub expires_at: Option<Timestamp>,
    /// Failed deliveries before this one.
    pub delivery_count: u32,
    /// Where in the entity it is.
    pub place: Place,
    /// The right to settle it; present for a received message, and for an inspected one that is locked.
    pub lock_token: Option<Uuid>,
    /// When the lock expires.
    pub locked_until: Option<Timestamp>,
    /// The entity that dead-lettered it, if it was forwarded after that.
    pub dead_letter_source: Option<Arc<str>>,
    /// The message as sent.
    pub message: Arc<Message>,
    /// Size that counts against the limits, in bytes.
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
    /// The receiver that holds it.
    pub receiver: ReceiverId,
    /// When its lock expires, unless renewed.
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

    /// Returns the message for a client: with the broker's values in header and annotations.
    #[must_use]
    pub fn to_message(&self) -> Message {
        let mut message = Message::clone(&self.message);
        message.header.delivery_count = self.delivery_count;
        message.header.ttl = self.time_to_live().or(message.header.ttl);
        message.delivery_annotations.0.clear();
        // A deferred message is part of a response, without a delivery tag: older clients expect its token here.
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

    /// Returns the requested time to live, limited by the entity. A header holds at most 49 days.
    fn time_to_live(&self) -> Option<u32> {
        let millis = self.expires_at?.since(self.enqueued_at).as_millis();
        Some(u32::try_from(millis).unwrap_or(u32::MAX))
    }
}
