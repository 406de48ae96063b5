//! Inspection from outside, and injected faults: for tests and people, not for clients.

use uuid::Uuid;

use super::stored::{Place, SequenceNumber};
use super::{Broker, BrokerError, Delivered, EntityId, ReceiverId, Tally, Timestamp};

/// How many messages an entity has, by what can be done with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// To be received.
    pub active: u64,
    /// Handed out and not settled; deferred ones among them.
    pub locked: u64,
    /// Put aside, and not handed out.
    pub deferred: u64,
    /// To become active later.
    pub scheduled: u64,
}

impl Broker {
    /// Counts the entity's messages; linear in their number.
    #[must_use]
    pub fn counts(&self, at: EntityId) -> Counts {
        let mut counts = Counts::default();
        for stored in self.entity(at).messages.values() {
            let count = match (stored.lock, stored.meta.place) {
                (Some(_), _) => &mut counts.locked,
                (None, Place::Active) => &mut counts.active,
                (None, Place::Deferred) => &mut counts.deferred,
                (None, Place::Scheduled(_)) => &mut counts.scheduled,
            };
            *count += 1;
        }
        counts
    }

    /// How many messages left the entity for good.
    #[must_use]
    pub fn tally(&self, at: EntityId) -> Tally {
        self.entity(at).tally
    }

    /// How many bytes count against the entity's quota.
    #[must_use]
    pub fn used_bytes(&self, at: EntityId) -> u64 {
        self.effects.used[self.entity(at).account.index()]
    }

    /// All of the entity's messages in the order of their numbers, with their locks.
    pub fn messages(&self, at: EntityId) -> impl Iterator<Item = Delivered> + '_ {
        self.entity(at).messages.iter().map(move |(number, stored)| Delivered::of(at, *number, stored))
    }

    /// Ends the lock on a message at once, as if its time had come.
    ///
    /// # Errors
    /// [`BrokerError::MessageNotFound`] for a message that is not locked.
    pub fn expire_lock(&mut self, at: EntityId, number: SequenceNumber) -> Result<(), BrokerError> {
        let entity = self.entity(at);
        if entity.messages.get(&number).is_none_or(|stored| stored.lock.is_none()) {
            return Err(entity.not_found(number));
        }
        self.delivery_failed(at, number);
        Ok(())
    }

    /// Ends the lock on a session at once, as if its time had come.
    ///
    /// # Errors
    /// [`BrokerError::SessionLockLost`] when nobody holds it.
    pub fn expire_session_lock(&mut self, at: EntityId, session: &str) -> Result<(), BrokerError> {
        let lock = self.check_held(at, session)?;
        self.unlock_session(at, &session.into(), true);
        self.effects.wake(super::Wake::SessionLost(lock.receiver));
        Ok(())
    }

    /// Until when the lock on a session holds; `None` when nobody holds it.
    #[must_use]
    pub fn session_locked_until(&self, at: EntityId, session: &str) -> Option<Timestamp> {
        self.check_held(at, session).ok().map(|lock| lock.until)
    }

    /// The message that a lock is on.
    #[must_use]
    pub fn locked_message(&self, at: EntityId, token: Uuid) -> Option<Delivered> {
        let entity = self.entity(at);
        entity.look_at(entity.locked(token).ok()?)
    }

    /// The session that the receiver holds.
    #[must_use]
    pub fn session_of(&self, receiver: ReceiverId) -> Option<&str> {
        self.holders.get(&receiver).map(|(_, session)| session.as_ref())
    }
}
