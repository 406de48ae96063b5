//! A message as an entity keeps it.

use std::sync::Arc;

use uuid::Uuid;

use super::time::Timestamp;
use crate::amqp::Message;

/// Numbers the messages of one entity in the order in which they came.
pub type SequenceNumber = i64;

/// A message and what the broker knows about it. What the sender wrote is shared and not changed, except where a client
/// asked for it (properties on abandon, reasons on dead-letter).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stored {
    pub(crate) content: Arc<Message>,
    /// What the message counts against the quota, in bytes.
    pub(crate) size: u64,
    pub(crate) session: Option<Arc<str>>,
    pub(crate) meta: Meta,
    /// Not kept over a restart.
    pub(crate) lock: Option<Lock>,
}

/// What changes while the message rests.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Meta {
    pub(crate) place: Place,
    /// Failed deliveries so far.
    pub(crate) delivery_count: u32,
    pub(crate) enqueued_at: Timestamp,
    /// The number it got where it was first sent to; differs once it was handed on.
    pub(crate) enqueued_sequence: SequenceNumber,
    pub(crate) expires_at: Option<Timestamp>,
    /// The entity that dead-lettered it, once it was handed on from there.
    pub(crate) dead_letter_source: Option<Arc<str>>,
}

/// Where in its entity a message is. Locked is not a place: an active message may be locked, and a deferred one too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// To be received in its turn.
    Active,
    /// To be received by its sequence number only.
    Deferred,
    /// Becomes active at that time, under a new sequence number.
    Scheduled(Timestamp),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) token: Uuid,
    /// Of a message in a session: what the session's lock was when it was handed out. The session's lock counts.
    pub(crate) until: Timestamp,
}

impl Stored {
    /// Whether the clock alone may remove it: not while somebody holds it, nor where it was put aside.
    pub(crate) fn expiry(&self) -> Option<Timestamp> {
        match (self.meta.place, self.lock) {
            (Place::Active, None) => self.meta.expires_at,
            _ => None,
        }
    }
}
