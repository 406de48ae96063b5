//! Hands messages out: in order, by number, or for peeking.

use std::collections::HashSet;

use super::entity::Entity;
use super::stored::{Lock, Place, SequenceNumber};
use super::{Broker, BrokerError, Delivered, EntityId, ReceiveMode, ReceiverId, Timestamp};

/// Maximum number of messages of a peek; it also stops at a number of bytes, and the client asks again.
const MAX_PEEKED: usize = 250;
const MAX_PEEKED_BYTES: u64 = 4 << 20;

impl Broker {
    /// Hands out up to `max` messages in order; none if there are none now: wait for a [`Wake`](super::Wake). If sessions are
    /// required, hands out messages of the session that the receiver holds.
    ///
    /// # Errors
    /// [`BrokerError::SessionLockLost`] if the receiver holds no session where one is required.
    pub fn receive(
        &mut self,
        from: EntityId,
        receiver: ReceiverId,
        mode: ReceiveMode,
        max: usize,
        now: Timestamp,
    ) -> Result<Vec<Delivered>, BrokerError> {
        self.advance(now);
        let mut delivered = Vec::new();
        while delivered.len() < max {
            let Some(number) = self.next_ready(from, receiver)? else { break };
            delivered.extend(self.hand_out(from, number, mode));
        }
        Ok(delivered)
    }

    /// Hands out deferred messages by their numbers, all or none. If sessions are required, `session` names the client's session.
    ///
    /// # Errors
    /// [`BrokerError::MessageNotFound`] if one does not exist, is not deferred, or is locked;
    /// [`BrokerError::SessionLockLost`] if no receiver holds the session.
    pub fn receive_deferred(
        &mut self,
        from: EntityId,
        numbers: &[SequenceNumber],
        mode: ReceiveMode,
        session: Option<&str>,
        now: Timestamp,
    ) -> Result<Vec<Delivered>, BrokerError> {
        self.advance(now);
        if self.entity(from).settings.requires_session {
            self.check_held(from, session.unwrap_or_default())?;
        }
        let entity = self.entity(from);
        let mut asked = HashSet::new();
        for &number in numbers {
            let found = entity.messages.get(&number).is_some_and(|stored| {
                let in_session = stored.session.is_none() || stored.session.as_deref() == session;
                stored.meta.place == Place::Deferred && stored.lock.is_none() && in_session
            });
            if !found || !asked.insert(number) {
                return Err(entity.not_found(number));
            }
        }
        Ok(numbers.iter().filter_map(|&number| self.hand_out(from, number, mode)).collect())
    }

    /// Returns up to `max` messages (at most 250, or about 4 MiB) from the number `from` on, including deferred and scheduled
    /// ones, without locking them.
    pub fn peek(
        &mut self,
        at: EntityId,
        from: SequenceNumber,
        max: usize,
        session: Option<&str>,
        now: Timestamp,
    ) -> Vec<Delivered> {
        self.advance(now);
        let entity = self.entity(at);
        let mut bytes = 0;
        let within = |delivered: &Delivered| {
            let fits = bytes < MAX_PEEKED_BYTES;
            bytes += delivered.size;
            fits
        };
        let shown = entity.numbers_from(from, session).filter_map(|number| entity.look_at(number));
        shown.map(Delivered::without_lock).take(max.min(MAX_PEEKED)).take_while(within).collect()
    }

    fn next_ready(
        &self,
        from: EntityId,
        receiver: ReceiverId,
    ) -> Result<Option<SequenceNumber>, BrokerError> {
        let entity = self.entity(from);
        if !entity.settings.requires_session {
            return Ok(entity.ready.first().copied());
        }
        let session = self.held_by(from, receiver)?;
        Ok(entity.sessions.session(&session).and_then(|session| session.ready.first().copied()))
    }

    fn hand_out(&mut self, from: EntityId, number: SequenceNumber, mode: ReceiveMode) -> Option<Delivered> {
        let now = self.now;
        let token = self.tokens.next();
        let (entity, effects) = self.parts(from);
        if mode == ReceiveMode::ReceiveAndDelete {
            let stored = entity.remove(effects, number)?;
            entity.tally.completed += 1;
            return Some(Delivered::of(from, number, &stored));
        }
        let session = entity.messages.get(&number)?.session.clone();
        let session_lock = session.and_then(|id| entity.sessions.session(&id)?.lock);
        let until = session_lock.map_or(now + entity.settings.lock_duration, |lock| lock.until);
        entity.change(effects, number, |stored| stored.lock = Some(Lock { token, until }));
        entity.look_at(number)
    }
}

impl Entity {
    pub(super) fn look_at(&self, number: SequenceNumber) -> Option<Delivered> {
        Some(Delivered::of(self.id, number, self.messages.get(&number)?))
    }

    /// If the entity has no sessions, the requested session is ignored.
    fn numbers_from<'a>(
        &'a self,
        from: SequenceNumber,
        session: Option<&str>,
    ) -> Box<dyn Iterator<Item = SequenceNumber> + 'a> {
        match session.filter(|_| self.settings.requires_session) {
            Some(session) => match self.sessions.session(session) {
                Some(session) => Box::new(session.messages.range(from..).copied()),
                None => Box::new(std::iter::empty()),
            },
            None => Box::new(self.messages.range(from..).map(|(number, _)| *number)),
        }
    }
}
