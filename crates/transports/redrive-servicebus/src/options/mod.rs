//! The options of a transport, with the names that Service Bus and its clients use. They connect nothing.

mod connection;
mod preflight;
#[cfg(feature = "rest")]
mod rest;
mod sessions;

use std::time::Duration;

use crate::entity::Entity;

pub(crate) use connection::ConnectionOptions;
pub use connection::TransportType;
pub use sessions::Sessions;

/// The options of a [`ServiceBus`](crate::ServiceBus) transport.
///
/// ```no_run
/// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
/// use redrive_servicebus::{Entity, ServiceBus};
///
/// let transport = ServiceBus::options(Entity::subscription("orders", "billing"))
///     .retry_queue("orders-billing-retry")
///     .max_delivery_count(20)
///     .connect("Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=…;SharedAccessKey=…")
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until they are connected"]
pub struct Options {
    pub(crate) entity: Entity,
    pub(crate) retry_queue: Option<String>,
    pub(crate) parking_queue: Option<String>,
    pub(crate) dead_letter_queue: Option<String>,
    pub(crate) prefetch_count: Option<u32>,
    pub(crate) max_delivery_count: u32,
    pub(crate) max_wait_time: Duration,
    pub(crate) max_lock_renewal: Duration,
    pub(crate) hold_lock_up_to: Option<Duration>,
    pub(crate) receive_mode: ReceiveMode,
    pub(crate) transactions: Transactions,
    pub(crate) sessions: Option<Sessions>,
    pub(crate) connection: ConnectionOptions,
    pub(crate) backend: Backend,
    #[cfg(feature = "rest")]
    pub(crate) rest: rest::RestOptions,
}

/// The protocol by which a transport talks to its namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// AMQP 1.0.
    #[default]
    Amqp,
    /// The run-time REST API over HTTPS, for networks that block everything else. It has fewer operations:
    /// [REST](https://github.com/redrive-rs/redrive/blob/main/docs/transports/servicebus.md#rest). Dead letters need a separate
    /// queue (`Options::dead_letter_queue`).
    #[cfg(feature = "rest")]
    Rest,
}

/// A protocol and its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Amqp,
    #[cfg(feature = "rest")]
    Rest {
        /// The time that a request waits for a message.
        poll_wait: Duration,
        /// The most requests that wait at the same time.
        polls: usize,
    },
}

/// The mode in which messages are received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiveMode {
    /// Messages are locked until they are settled.
    #[default]
    PeekLock,
    /// Messages are removed when they are delivered. This mode is refused: a message would be lost if its handler fails.
    ReceiveAndDelete,
}

/// The use of transactions to store a copy and complete its original.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transactions {
    /// Uses transactions if the namespace has them. If it has none (the Basic tier), the copy is stored first and the original is
    /// completed afterwards: a crash in between leaves both. The log warns once.
    #[default]
    Auto,
    /// Never uses transactions: the copy is stored first and the original is completed afterwards.
    Off,
}

impl Options {
    pub(crate) fn new(entity: impl Into<Entity>) -> Self {
        Self {
            entity: entity.into(),
            retry_queue: None,
            parking_queue: None,
            dead_letter_queue: None,
            prefetch_count: None,
            max_delivery_count: 10,
            max_wait_time: Duration::from_secs(5),
            max_lock_renewal: Duration::from_secs(5 * 60),
            hold_lock_up_to: None,
            receive_mode: ReceiveMode::PeekLock,
            transactions: Transactions::Auto,
            sessions: None,
            connection: ConnectionOptions::default(),
            backend: Backend::Amqp,
            #[cfg(feature = "rest")]
            rest: rest::RestOptions::default(),
        }
    }

    /// Sets the queue through which retried and redriven messages of a subscription come back. A copy that is sent to the topic
    /// would reach every subscription. A copy in this queue reaches only this consumer, which reads the queue beside the
    /// subscription, with a separate prefetch limit. The queue must exist, and no other consumer may read it. Without it, a
    /// subscription can only be consumed without retries. If the consumed entity is a queue, copies wait in this queue instead of
    /// the entity itself.
    pub fn retry_queue(mut self, name: impl Into<String>) -> Self {
        self.retry_queue = Some(name.into());
        self
    }

    /// Sets the queue that parked messages are moved to. Default: they stay in the dead-letter queue, marked as parked.
    pub fn parking_queue(mut self, name: impl Into<String>) -> Self {
        self.parking_queue = Some(name.into());
        self
    }

    /// Sets the queues of the shelves from a configuration. With AMQP only the parking shelf has a queue: dead letters are in the
    /// entity's own dead-letter queue, and a transport that sets another one does not connect.
    #[cfg(feature = "config")]
    pub fn shelves(mut self, queues: redrive_core::options::ShelfQueues) -> Self {
        self.parking_queue = queues.parking_queue.or(self.parking_queue);
        self.dead_letter_queue = queues.dead_letter_queue.or(self.dead_letter_queue);
        self
    }

    /// Sets the most messages in flight, handled or waiting for their handler. Default: the prefetch of the consumer.
    pub fn prefetch_count(mut self, count: u32) -> Self {
        self.prefetch_count = Some(count.max(1));
        self
    }

    /// Sets the entity's `MaxDeliveryCount`: the broker dead-letters a message after this many deliveries. Default: 10, as in
    /// Azure. The rights to listen and send do not suffice to read it from the entity. The limits of the layers are compared with
    /// it when the transport is opened.
    pub fn max_delivery_count(mut self, count: u32) -> Self {
        self.max_delivery_count = count.max(1);
        self
    }

    /// Sets how long an operation on a shelf waits for a message that it found there but that is not delivered: another client
    /// may have it in flight. Default: 5 s.
    pub fn max_wait_time(mut self, wait: Duration) -> Self {
        self.max_wait_time = wait;
        self
    }

    /// Sets the longest time for which the lock of a delivery is renewed. Default: 5 min. Afterwards the lock expires, and the
    /// message is delivered again, which counts. A wait that [keeps the lock](Self::hold_lock_up_to) is renewed to its end.
    pub fn max_lock_renewal(mut self, longest: Duration) -> Self {
        self.max_lock_renewal = longest;
        self
    }

    /// Keeps the lock for retries with waits up to this one, instead of sending a copy. The broker then counts the attempts
    /// ([`InPlace`](redrive_core::transport::InPlace)), and `MaxDeliveryCount` bounds them. Default: off.
    pub fn hold_lock_up_to(mut self, longest: Duration) -> Self {
        self.hold_lock_up_to = Some(longest);
        self
    }

    /// Sets how messages are received. Only [`ReceiveMode::PeekLock`] is accepted, which is the default.
    pub fn receive_mode(mut self, mode: ReceiveMode) -> Self {
        self.receive_mode = mode;
        self
    }

    /// Sets how the sessions of an entity that requires them are consumed. Its retry queue must require sessions too. A retried
    /// message keeps its place in its session: the message is given back with its history written on it, and the session pauses
    /// until the wait is over. The longest such wait is [`hold_lock_up_to`](Self::hold_lock_up_to), or
    /// [`max_lock_renewal`](Self::max_lock_renewal) if that is not set: a transport whose layers need longer waits does not open.
    pub fn sessions(mut self, sessions: Sessions) -> Self {
        self.sessions = Some(sessions);
        self
    }

    /// Sets the use of transactions. Default: [`Transactions::Auto`].
    pub fn transactions(mut self, transactions: Transactions) -> Self {
        self.transactions = transactions;
        self
    }

    /// Sets the protocol. Default: [`Backend::Amqp`].
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Sets the protocol below AMQP. Default: the one that the connection string names (`TransportType=AmqpWebSockets`), or else
    /// [`TransportType::AmqpTcp`].
    pub fn transport(mut self, transport: TransportType) -> Self {
        self.connection.transport = Some(transport);
        self
    }

    /// Sets certificates (PEM) to trust in addition to those of the system.
    pub fn ca_certificates(mut self, pem: impl Into<String>) -> Self {
        self.connection.ca_certificates = Some(pem.into());
        self
    }

    /// Returns true if locks of messages are held instead of sending copies.
    pub(crate) fn holds_locks(&self) -> bool {
        self.hold_lock_up_to.is_some() && self.sessions.is_none()
    }

    /// Returns the longest pause of a session for a retry.
    pub(crate) fn longest_rest(&self) -> Duration {
        self.hold_lock_up_to.unwrap_or(self.max_lock_renewal)
    }

    /// Returns the most deliveries that each source may have in flight for a consumer with this prefetch. 0 means any number.
    pub(crate) fn max_in_flight(&self, prefetch: u32) -> u32 {
        let asked = if prefetch == 0 { u32::MAX } else { prefetch };
        asked.min(self.prefetch_count.unwrap_or(1000))
    }

    /// Returns the number of tasks that receive deliveries.
    pub(crate) fn intakes(&self) -> usize {
        self.sources().len() * self.sessions.map_or(1, |sessions| sessions.concurrent as usize)
    }

    pub(crate) fn protocol(&self) -> Protocol {
        match self.backend {
            Backend::Amqp => Protocol::Amqp,
            #[cfg(feature = "rest")]
            Backend::Rest => Protocol::Rest { poll_wait: self.rest.poll_wait, polls: self.rest.polls },
        }
    }

    /// Returns the queue that dead letters are moved to, or `None` if the broker dead-letters them.
    pub(crate) fn dead_letter_target(&self) -> Option<&str> {
        #[cfg(feature = "rest")]
        if self.backend == Backend::Rest {
            return self.dead_letter_queue.as_deref();
        }
        None
    }

    /// Returns true if one transaction may store a copy and complete its original.
    pub(crate) fn has_transactions(&self) -> bool {
        self.transactions == Transactions::Auto && self.backend == Backend::Amqp
    }

    /// Returns the queue that copies are sent to, or `None` if they would reach other consumers.
    pub(crate) fn retry_target(&self) -> Option<&str> {
        match (&self.retry_queue, &self.entity) {
            (Some(queue), _) => Some(queue),
            (None, Entity::Queue(queue)) => Some(queue),
            (None, Entity::Subscription { .. }) => None,
        }
    }

    /// Returns the entities to read: the consumed entity, and its retry queue.
    pub(crate) fn sources(&self) -> Vec<Entity> {
        let retry = self.retry_queue.as_ref().map(Entity::queue);
        std::iter::once(self.entity.clone()).chain(retry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_go_where_only_this_consumer_reads() {
        assert_eq!(Options::new("orders").retry_target(), Some("orders"));
        let subscription = Options::new(Entity::subscription("orders", "billing"));
        assert_eq!(subscription.retry_target(), None);
        let subscription = subscription.retry_queue("back");
        assert_eq!(subscription.retry_target(), Some("back"));
        assert_eq!(subscription.sources().len(), 2);
    }
}
