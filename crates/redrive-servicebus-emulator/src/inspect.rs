use std::sync::Arc;

use crate::broker::{BrokerError, Counts, Delivered, EntityId, SequenceNumber, Tally, Timestamp};
use crate::server::shared_state::SharedState;

/// One entity, seen from outside: no client notices that somebody looks.
#[derive(Debug, Clone)]
pub struct EntityView {
    shared: Arc<SharedState>,
    entity: EntityId,
}

impl EntityView {
    pub(crate) fn new(shared: Arc<SharedState>, entity: EntityId) -> Self {
        Self { shared, entity }
    }

    /// All of its messages in their order: locked, deferred and scheduled ones too.
    pub fn messages(&self) -> Vec<Delivered> {
        self.shared.with(|broker, _| broker.messages(self.entity).collect())
    }

    /// How many messages it has, by what can be done with them.
    pub fn counts(&self) -> Counts {
        self.shared.with(|broker, _| broker.counts(self.entity))
    }

    /// How many messages left it for good.
    pub fn tally(&self) -> Tally {
        self.shared.with(|broker, _| broker.tally(self.entity))
    }

    /// How many receivers wait here for a message, or for a session: links with credit, and requests by HTTP.
    pub fn waiting(&self) -> usize {
        self.shared.waiting(self.entity)
    }

    /// Ends the lock on a message now, as if its time had come: one more failed delivery.
    ///
    /// # Errors
    /// There is no locked message of that number.
    pub fn expire_lock(&self, number: SequenceNumber) -> Result<(), BrokerError> {
        self.shared.with(|broker, _| broker.expire_lock(self.entity, number))
    }

    /// Ends the locks on all messages now; answers how many there were.
    pub fn expire_locks(&self) -> usize {
        self.shared.with(|broker, _| {
            let locked = broker.messages(self.entity).filter(|message| message.lock_token.is_some());
            let numbers: Vec<_> = locked.map(|message| message.sequence_number).collect();
            numbers.into_iter().filter(|number| broker.expire_lock(self.entity, *number).is_ok()).count()
        })
    }

    /// Ends the lock on a session now: who holds it is told so.
    ///
    /// # Errors
    /// Nobody holds it.
    pub fn expire_session_lock(&self, session: &str) -> Result<(), BrokerError> {
        self.shared.with(|broker, _| broker.expire_session_lock(self.entity, session))
    }

    /// Until when the lock on a session holds; `None` when nobody holds it.
    pub fn session_locked_until(&self, session: &str) -> Option<Timestamp> {
        self.shared.with(|broker, _| broker.session_locked_until(self.entity, session))
    }
}
