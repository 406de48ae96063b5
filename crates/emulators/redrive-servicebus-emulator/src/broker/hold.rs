//! Renews the locks of messages; accepts, renews and releases sessions.

use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::changes::Change;
use super::effects::{Due, Wake};
use super::sessions::SessionLock;
use super::{AcceptedSession, Broker, BrokerError, EntityId, ReceiverId, Timestamp};

/// Maximum size of a session's state, in bytes.
const MAX_STATE: u64 = 256 * 1024;

impl Broker {
    /// Renews the locks of messages to their full duration from now, all or none. Returns when each expires. If sessions are
    /// required, renew the session's lock instead.
    ///
    /// # Errors
    /// [`BrokerError::MessageLockLost`]; [`BrokerError::NotAllowed`] if sessions are required.
    pub fn renew(
        &mut self,
        at: EntityId,
        tokens: &[Uuid],
        now: Timestamp,
    ) -> Result<Vec<Timestamp>, BrokerError> {
        self.advance(now);
        let now = self.now;
        let (entity, effects) = self.parts(at);
        if entity.settings.requires_session {
            return Err(
                entity.not_allowed("A message of a session has no lock of its own; renew the session's.")
            );
        }
        let numbers = tokens.iter().map(|&token| entity.locked(token)).collect::<Result<Vec<_>, _>>()?;
        let until = now + entity.settings.lock_duration;
        for number in numbers {
            entity.change(effects, number, |stored| {
                if let Some(lock) = &mut stored.lock {
                    lock.until = until;
                }
            });
        }
        Ok(vec![until; tokens.len()])
    }

    /// Accepts the named session, or the next available one, for the receiver; `None` if there is none now: wait for a
    /// [`Wake`]. A named session may be empty.
    ///
    /// # Errors
    /// [`BrokerError::SessionCannotBeLocked`] if another receiver holds it; [`BrokerError::NotAllowed`] if the entity has no
    /// sessions.
    pub fn accept_session(
        &mut self,
        at: EntityId,
        session: Option<&str>,
        receiver: ReceiverId,
        now: Timestamp,
    ) -> Result<Option<AcceptedSession>, BrokerError> {
        self.advance(now);
        self.check_receiver(at, true)?;
        let entity = self.entity(at);
        let session: Arc<str> = match session {
            Some(id) if id.chars().count() > 128 => {
                return Err(entity.argument("A session id has at most 128 characters."));
            }
            Some(id) => id.into(),
            None => match entity.sessions.next_available() {
                Some(id) => id,
                None => return Ok(None),
            },
        };
        if entity.sessions.session(&session).is_some_and(|session| session.lock.is_some()) {
            return Err(BrokerError::SessionCannotBeLocked {
                path: entity.path(),
                session: session.to_string(),
            });
        }
        let until = self.now + self.entity(at).settings.lock_duration;
        let (entity, effects) = self.parts(at);
        entity.sessions.change(&session, |session| session.lock = Some(SessionLock { receiver, until }));
        effects.at(until, Due::UnlockSession(at, Arc::clone(&session)));
        self.holders.insert(receiver, (at, Arc::clone(&session)));
        Ok(Some(AcceptedSession { session, receiver, locked_until: until }))
    }

    /// Renews the lock of a session, whichever receiver holds it. Returns when it expires.
    ///
    /// # Errors
    /// [`BrokerError::SessionLockLost`] if no receiver holds it.
    pub fn renew_session(
        &mut self,
        at: EntityId,
        session: &str,
        now: Timestamp,
    ) -> Result<Timestamp, BrokerError> {
        self.advance(now);
        let lock = self.check_held(at, session)?;
        let until = self.now + self.entity(at).settings.lock_duration;
        let session: Arc<str> = session.into();
        let (entity, effects) = self.parts(at);
        effects.not_at(lock.until, Due::UnlockSession(at, Arc::clone(&session)));
        effects.at(until, Due::UnlockSession(at, Arc::clone(&session)));
        entity.sessions.change(&session, |session| session.lock = Some(SessionLock { until, ..lock }));
        Ok(until)
    }

    /// Ends the receiver's hold: its link is closed. Its session can be accepted again, and the session's messages return to
    /// their place without counting as failed. Messages outside sessions stay locked: their locks outlive the link.
    pub fn release_receiver(&mut self, receiver: ReceiverId, now: Timestamp) {
        self.advance(now);
        if let Some((at, session)) = self.holders.get(&receiver).cloned() {
            self.unlock_session(at, &session, false);
        }
        for wake in [Wake::Receiver(receiver), Wake::SessionLost(receiver)] {
            self.effects.wakes.remove(&wake);
        }
    }

    /// Returns the receiver that holds a session.
    #[must_use]
    pub fn session_holder(&self, at: EntityId, session: &str) -> Option<ReceiverId> {
        self.check_held(at, session).ok().map(|lock| lock.receiver)
    }

    /// Returns the state of a session.
    ///
    /// # Errors
    /// [`BrokerError::SessionLockLost`] if no receiver holds the session.
    pub fn session_state(
        &mut self,
        at: EntityId,
        session: &str,
        now: Timestamp,
    ) -> Result<Option<Bytes>, BrokerError> {
        self.advance(now);
        self.check_held(at, session)?;
        let session = self.entity(at).sessions.session(session);
        Ok(session.and_then(|session| session.state.as_ref()).map(|(state, _)| state.clone()))
    }

    /// Sets a session's state, or removes it.
    ///
    /// # Errors
    /// [`BrokerError::SessionLockLost`] if no receiver holds the session; [`BrokerError::MessageSizeExceeded`] beyond 256 KiB.
    pub fn set_session_state(
        &mut self,
        at: EntityId,
        session: &str,
        state: Option<Bytes>,
        now: Timestamp,
    ) -> Result<(), BrokerError> {
        self.advance(now);
        self.check_held(at, session)?;
        let now = self.now;
        let (entity, effects) = self.parts(at);
        let size = state.as_ref().map_or(0, Bytes::len) as u64;
        if size > MAX_STATE {
            return Err(entity.too_large(size, MAX_STATE));
        }
        let session: Arc<str> = session.into();
        let state = state.map(|state| (state, now));
        effects.note(|| Change::SessionState {
            entity: at,
            session: Arc::clone(&session),
            state: state.clone(),
        });
        entity.sessions.change(&session, |session| session.state = state);
        Ok(())
    }

    /// Returns the ids of sessions, in order: of those with messages, or, with `updated_since`, of those whose state was set since
    /// then. Linear in the number of sessions: for people, not for consumers.
    pub fn session_ids(
        &mut self,
        at: EntityId,
        updated_since: Option<Timestamp>,
        skip: usize,
        max: usize,
        now: Timestamp,
    ) -> Vec<Arc<str>> {
        self.advance(now);
        let mut ids: Vec<_> = self
            .entity(at)
            .sessions
            .iter()
            .filter(|(_, session)| match (updated_since, &session.state) {
                (None, _) => !session.messages.is_empty(),
                (Some(since), Some((_, updated))) => *updated >= since,
                (Some(_), None) => false,
            })
            .map(|(id, _)| Arc::clone(id))
            .collect();
        ids.sort();
        ids.into_iter().skip(skip).take(max).collect()
    }

    /// Ends the lock of a session: the messages locked under it return to their place.
    pub(super) fn unlock_session(&mut self, at: EntityId, session: &Arc<str>, failed: bool) {
        let (entity, effects) = self.parts(at);
        let Some(lock) = entity.sessions.session(session).and_then(|session| session.lock) else { return };
        let locked = entity.sessions.change(session, |session| {
            session.lock = None;
            session.locked.clone()
        });
        effects.not_at(lock.until, Due::UnlockSession(at, Arc::clone(session)));
        self.holders.remove(&lock.receiver);
        for number in locked {
            if failed {
                self.delivery_failed(at, number);
            } else {
                self.unlock(at, number);
            }
        }
        self.effects.wake(Wake::Entity(at));
    }

    pub(super) fn check_held(&self, at: EntityId, session: &str) -> Result<SessionLock, BrokerError> {
        let entity = self.entity(at);
        entity
            .sessions
            .session(session)
            .and_then(|session| session.lock)
            .ok_or_else(|| BrokerError::SessionLockLost { path: entity.path(), session: session.to_owned() })
    }

    pub(super) fn held_by(&self, at: EntityId, receiver: ReceiverId) -> Result<Arc<str>, BrokerError> {
        match self.holders.get(&receiver) {
            Some((entity, session)) if *entity == at => Ok(Arc::clone(session)),
            _ => Err(BrokerError::SessionLockLost {
                path: self.path(at).to_owned(),
                session: "of the receiver".into(),
            }),
        }
    }
}
