//! Inspection from outside, and injected faults: for tests and people, not for clients.

use super::stored::{Place, SequenceNumber};
use super::{Broker, BrokerError, Delivered, EntityId, ReceiverId, Tally, Timestamp};

/// Number of messages of an entity, by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Can be received.
    pub active: u64,
    /// Locked and not settled, including deferred ones.
    pub locked: u64,
    /// Deferred and not locked.
    pub deferred: u64,
    /// Scheduled for later.
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

    /// Returns how many messages left the entity for good.
    #[must_use]
    pub fn tally(&self, at: EntityId) -> Tally {
        self.entity(at).tally
    }

    /// Returns how many bytes count against the entity's quota.
    #[must_use]
    pub fn used_bytes(&self, at: EntityId) -> u64 {
        self.effects.used[self.entity(at).account.index()]
    }

    /// Returns all messages of the entity in the order of their numbers, with their locks.
    pub fn messages(&self, at: EntityId) -> impl Iterator<Item = Delivered> + '_ {
        self.entity(at).messages.iter().map(move |(number, stored)| Delivered::of(at, *number, stored))
    }

    /// Expires the lock of a message at once.
    ///
    /// # Errors
    /// [`BrokerError::MessageNotFound`] if the message is not locked.
    pub fn expire_lock(&mut self, at: EntityId, number: SequenceNumber) -> Result<(), BrokerError> {
        let entity = self.entity(at);
        if entity.messages.get(&number).is_none_or(|stored| stored.lock.is_none()) {
            return Err(entity.not_found(number));
        }
        self.delivery_failed(at, number);
        Ok(())
    }

    /// Expires the lock of a session at once.
    ///
    /// # Errors
    /// [`BrokerError::SessionLockLost`] if no receiver holds it.
    pub fn expire_session_lock(&mut self, at: EntityId, session: &str) -> Result<(), BrokerError> {
        let lock = self.check_held(at, session)?;
        self.unlock_session(at, &session.into(), true);
        self.effects.wake(super::Wake::SessionLost(lock.receiver));
        Ok(())
    }

    /// Returns when the lock of a session expires; `None` if no receiver holds it.
    #[must_use]
    pub fn session_locked_until(&self, at: EntityId, session: &str) -> Option<Timestamp> {
        self.check_held(at, session).ok().map(|lock| lock.until)
    }

    /// Returns the session that the receiver holds.
    #[must_use]
    pub fn session_of(&self, receiver: ReceiverId) -> Option<&str> {
        self.holders.get(&receiver).map(|(_, session)| session.as_ref())
    }
}
