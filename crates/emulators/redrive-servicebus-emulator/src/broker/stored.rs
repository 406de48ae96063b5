//! A message as an entity keeps it.

use std::sync::Arc;

use redrive_emulator_host::Timestamp;
use uuid::Uuid;

use crate::amqp::Message;

/// Number of a message in its entity, in the order of arrival.
pub type SequenceNumber = i64;

/// A message with the broker's data. The sender's content is shared and does not change, unless a client asks for that
/// (properties on abandon, reasons on dead-letter).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stored {
    pub(crate) content: Arc<Message>,
    /// Size that counts against the quota, in bytes.
    pub(crate) size: u64,
    pub(crate) session: Option<Arc<str>>,
    pub(crate) meta: Meta,
    /// Lost with a restart.
    pub(crate) lock: Option<Lock>,
}

/// The data that changes while the message rests.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Meta {
    pub(crate) place: Place,
    /// Failed deliveries so far.
    pub(crate) delivery_count: u32,
    pub(crate) enqueued_at: Timestamp,
    /// Its number in the entity that it was first sent to; differs after forwarding.
    pub(crate) enqueued_sequence: SequenceNumber,
    pub(crate) expires_at: Option<Timestamp>,
    /// The entity that dead-lettered it, if it was forwarded after that.
    pub(crate) dead_letter_source: Option<Arc<str>>,
}

/// Where in its entity a message is. `Locked` is not a place: active and deferred messages may be locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Can be received in its turn.
    Active,
    /// Can only be received by its sequence number.
    Deferred,
    /// Becomes active at that time, under a new sequence number.
    Scheduled(Timestamp),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) token: Uuid,
    /// For a message in a session: the session's lock at the time of delivery. The session's lock decides.
    pub(crate) until: Timestamp,
}

impl Stored {
    /// Returns when the message expires; `None` while it is locked or deferred.
    pub(crate) fn expiry(&self) -> Option<Timestamp> {
        match (self.meta.place, self.lock) {
            (Place::Active, None) => self.meta.expires_at,
            _ => None,
        }
    }
}
