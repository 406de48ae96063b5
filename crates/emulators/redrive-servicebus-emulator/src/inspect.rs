use std::sync::Arc;

use crate::amqp::Map;
use crate::broker::{
    BrokerError, Counts, Delivered, EntityId, ReceiveMode, ReceiverId, SequenceNumber, Settlement, Tally,
    Timestamp,
};
use crate::server::shared_state::SharedState;

/// A view of one entity that no client notices.
#[derive(Debug, Clone)]
pub struct EntityView {
    shared: Arc<SharedState>,
    entity: EntityId,
}

impl EntityView {
    pub(crate) fn new(shared: Arc<SharedState>, entity: EntityId) -> Self {
        Self { shared, entity }
    }

    /// Returns all of its messages in order, including locked, deferred and scheduled ones.
    pub fn messages(&self) -> Vec<Delivered> {
        self.shared.with(|broker, _| broker.messages(self.entity).collect())
    }

    /// Returns the number of its messages, by state.
    pub fn counts(&self) -> Counts {
        self.shared.with(|broker, _| broker.counts(self.entity))
    }

    /// Returns how many messages left it for good.
    pub fn tally(&self) -> Tally {
        self.shared.with(|broker, _| broker.tally(self.entity))
    }

    /// Returns how many receivers wait for a message or a session: links with credit, and HTTP requests.
    pub fn waiting(&self) -> usize {
        self.shared.waiting(self.entity)
    }

    /// Returns how many open AMQP links send to it.
    pub fn senders(&self) -> usize {
        self.shared.senders(self.entity)
    }

    /// Expires the lock of a message now, which counts as a failed delivery.
    ///
    /// # Errors
    /// If no locked message has this number.
    pub fn expire_lock(&self, number: SequenceNumber) -> Result<(), BrokerError> {
        self.shared.with(|broker, _| broker.expire_lock(self.entity, number))
    }

    /// Expires the locks of all messages now. Returns how many there were.
    pub fn expire_locks(&self) -> usize {
        self.shared.with(|broker, _| {
            let locked = broker.messages(self.entity).filter(|message| message.lock_token.is_some());
            let numbers: Vec<_> = locked.map(|message| message.sequence_number).collect();
            numbers.into_iter().filter(|number| broker.expire_lock(self.entity, *number).is_ok()).count()
        })
    }

    /// Expires the lock of a session now, and notifies its holder.
    ///
    /// # Errors
    /// If no receiver holds it.
    pub fn expire_session_lock(&self, session: &str) -> Result<(), BrokerError> {
        self.shared.with(|broker, _| broker.expire_session_lock(self.entity, session))
    }

    /// Defers the next message, as a client that received it would. Returns its number; `None` if there is no message to receive.
    pub fn defer_next(&self) -> Option<SequenceNumber> {
        let receiver = ReceiverId(self.shared.next_id());
        self.shared.with(|broker, now| {
            let received = broker.receive(self.entity, receiver, ReceiveMode::PeekLock, 1, now).ok()?;
            let message = received.into_iter().next()?;
            broker
                .settle(
                    self.entity,
                    &[message.lock_token?],
                    &Settlement::Defer { properties: Map::new() },
                    now,
                )
                .ok()?;
            Some(message.sequence_number)
        })
    }

    /// Returns when the lock of a session expires; `None` if no receiver holds it.
    pub fn session_locked_until(&self, session: &str) -> Option<Timestamp> {
        self.shared.with(|broker, _| broker.session_locked_until(self.entity, session))
    }
}
