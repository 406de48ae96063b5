//! Changes caused by time.

use super::effects::{Due, Wake};
use super::route::{Parcel, Reason};
use super::stored::{Place, SequenceNumber};
use super::{Broker, EntityId, Timestamp};

impl Broker {
    /// Returns when time alone will change something next, if ever.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.effects.due.first().map(|(at, _)| *at)
    }

    /// Applies everything that was due until `now`, each change at its own time, so that one large step of the clock has the same
    /// result as many small ones. Every other call does this first.
    pub fn advance(&mut self, now: Timestamp) {
        while let Some((at, due)) = self.effects.due.first().cloned()
            && at <= now
        {
            self.effects.not_at(at, due.clone());
            self.now = self.now.max(at);
            match due {
                Due::Activate(entity, number) => self.activate(entity, number),
                Due::Unlock(entity, number) => self.delivery_failed(entity, number),
                Due::UnlockSession(entity, session) => {
                    let lock =
                        self.entity(entity).sessions.session(&session).and_then(|session| session.lock);
                    self.unlock_session(entity, &session, true);
                    if let Some(lock) = lock {
                        self.effects.wake(Wake::SessionLost(lock.receiver));
                    }
                }
                Due::Expire(entity, number) => self.expire_if_due(entity, number),
                Due::ForgetTransaction(id) => self.transactions.forget(id),
            }
        }
        self.now = self.now.max(now);
    }

    /// Makes a scheduled message active, with a new number.
    fn activate(&mut self, at: EntityId, number: SequenceNumber) {
        let (entity, effects) = self.parts(at);
        if let Some(stored) = entity.remove(effects, number) {
            self.arrive(at, Parcel::new(stored.content, stored.size));
        }
    }

    /// Removes an expired message, unless it is locked or deferred.
    pub(super) fn expire_if_due(&mut self, at: EntityId, number: SequenceNumber) {
        let now = self.now;
        let (entity, effects) = self.parts(at);
        let Some(stored) = entity.messages.get(&number) else { return };
        if stored.meta.place != Place::Active || stored.expiry().is_none_or(|expiry| expiry > now) {
            return;
        }
        if entity.settings.dead_letter_on_expiration {
            let reason = Reason::system("TTLExpiredException", "The message expired and was dead lettered.");
            self.remove_to_dead_letters(at, number, &reason);
        } else if entity.remove(effects, number).is_some() {
            entity.tally.expired += 1;
        }
    }
}
