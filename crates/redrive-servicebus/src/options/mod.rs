//! The options of a transport, under the names that Service Bus and its clients use. They connect nothing.

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

/// How a [`ServiceBus`](crate::ServiceBus) transport is set up.
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
    /// The run-time REST API, by HTTPS: for networks that let nothing else through. It can do less:
    /// [REST](https://github.com/redrive-rs/redrive/blob/main/docs/transports/servicebus.md#rest). Dead letters need a queue of their own (`Options::dead_letter_queue`).
    #[cfg(feature = "rest")]
    Rest,
}

/// A protocol, with what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Amqp,
    #[cfg(feature = "rest")]
    Rest {
        /// How long a request waits for a message.
        poll_wait: Duration,
        /// The most requests that wait at the same time.
        polls: usize,
    },
}

/// How messages are received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiveMode {
    /// Locked, until they are settled.
    #[default]
    PeekLock,
    /// Removed as they are handed out. Refused: a message would be gone before its handler has seen it.
    ReceiveAndDelete,
}

/// Whether a copy is stored and its original completed in one transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transactions {
    /// Wherever the namespace has them. Where it has none (the Basic tier), the copy is stored first and the original
    /// completed then: a crash in between leaves two. Told once, as a warning.
    #[default]
    Auto,
    /// Never: the copy is stored first and the original completed then.
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

    /// The queue through which retried and redriven messages of a subscription come back. A copy that is sent to the topic
    /// would reach every subscription; one that is sent to this queue reaches this consumer, which reads it too, beside the
    /// subscription and with a prefetch of its own. It must exist, and nobody else may read it. Without one, a subscription can
    /// only be consumed without retries. For a queue: where its copies wait, instead of in the queue itself.
    pub fn retry_queue(mut self, name: impl Into<String>) -> Self {
        self.retry_queue = Some(name.into());
        self
    }

    /// The queue that parked messages are moved to. By default they stay in the dead-letter queue, marked.
    pub fn parking_queue(mut self, name: impl Into<String>) -> Self {
        self.parking_queue = Some(name.into());
        self
    }

    /// The queues of the shelves, as a configuration names them. By AMQP only the parking shelf has one: dead letters are in the
    /// entity's own dead-letter queue, and a transport with another name for it does not connect.
    #[cfg(feature = "config")]
    pub fn shelves(mut self, queues: redrive_core::ShelfQueues) -> Self {
        self.parking_queue = queues.parking_queue.or(self.parking_queue);
        self.dead_letter_queue = queues.dead_letter_queue.or(self.dead_letter_queue);
        self
    }

    /// The most messages in flight, handled or about to be. Default: what the consumer asks for.
    pub fn prefetch_count(mut self, count: u32) -> Self {
        self.prefetch_count = Some(count.max(1));
        self
    }

    /// The entity's `MaxDeliveryCount`: the broker dead-letters a message after this many deliveries. Default: 10, as in Azure. It
    /// cannot be read with the rights to listen and send, so it is set here, and the limits of the layers are compared with it when
    /// the transport is opened.
    pub fn max_delivery_count(mut self, count: u32) -> Self {
        self.max_delivery_count = count.max(1);
        self
    }

    /// How long an operation on a shelf waits for a message that it saw there and that is not handed out: somebody else may have it
    /// in flight. Default: 5 s.
    pub fn max_wait_time(mut self, wait: Duration) -> Self {
        self.max_wait_time = wait;
        self
    }

    /// How long the lock of a delivery is renewed at most. Default: 5 min. Afterwards it runs out, and the message is delivered again,
    /// counted.
    pub fn max_lock_renewal(mut self, longest: Duration) -> Self {
        self.max_lock_renewal = longest;
        self
    }

    /// Retries with waits up to this one keep the lock and wait here, instead of sending a copy: nothing is sent, and the
    /// broker counts the attempts ([`InPlace`](redrive_core::InPlace)). Attempts are then bounded by `MaxDeliveryCount`. Default: off.
    pub fn hold_lock_up_to(mut self, longest: Duration) -> Self {
        self.hold_lock_up_to = Some(longest);
        self
    }

    /// How messages are received: [`ReceiveMode::PeekLock`], and nothing else is accepted.
    pub fn receive_mode(mut self, mode: ReceiveMode) -> Self {
        self.receive_mode = mode;
        self
    }

    /// For an entity that requires sessions (and for its retry queue, which then requires them too): how many are consumed at
    /// a time. A retry keeps its place in its session: the message is given back with its history written on it, and its session
    /// rests until the wait is over. For how long at most says [`hold_lock_up_to`](Self::hold_lock_up_to), and else
    /// [`max_lock_renewal`](Self::max_lock_renewal): a transport whose layers ask for longer waits does not open.
    pub fn sessions(mut self, sessions: Sessions) -> Self {
        self.sessions = Some(sessions);
        self
    }

    /// Whether transactions are used.
    pub fn transactions(mut self, transactions: Transactions) -> Self {
        self.transactions = transactions;
        self
    }

    /// The protocol. Default: [`Backend::Amqp`].
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// How the namespace is reached. Default: as the connection string says (`TransportType=AmqpWebSockets`), and else
    /// [`TransportType::AmqpTcp`].
    pub fn transport(mut self, transport: TransportType) -> Self {
        self.connection.transport = Some(transport);
        self
    }

    /// Certificates (PEM) to trust besides those of the system.
    pub fn ca_certificates(mut self, pem: impl Into<String>) -> Self {
        self.connection.ca_certificates = Some(pem.into());
        self
    }

    /// Whether locks of messages are held instead of sending copies.
    pub(crate) fn holds_locks(&self) -> bool {
        self.hold_lock_up_to.is_some() && self.sessions.is_none()
    }

    /// For how long a session rests for a retry.
    pub(crate) fn longest_rest(&self) -> Duration {
        self.hold_lock_up_to.unwrap_or(self.max_lock_renewal)
    }

    /// How many deliveries each source may have in flight at most, for a consumer that asks for this many; 0: any number.
    pub(crate) fn max_in_flight(&self, prefetch: u32) -> u32 {
        let asked = if prefetch == 0 { u32::MAX } else { prefetch };
        asked.min(self.prefetch_count.unwrap_or(1000))
    }

    /// How many tasks take deliveries.
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

    /// Where dead letters are moved to; `None`: the broker itself dead-letters them.
    pub(crate) fn dead_letter_target(&self) -> Option<&str> {
        #[cfg(feature = "rest")]
        if self.backend == Backend::Rest {
            return self.dead_letter_queue.as_deref();
        }
        None
    }

    /// Whether a copy can be stored and its original completed in one transaction.
    pub(crate) fn has_transactions(&self) -> bool {
        self.transactions == Transactions::Auto && self.backend == Backend::Amqp
    }

    /// Where copies are sent to come back; `None` where they would reach others.
    pub(crate) fn retry_target(&self) -> Option<&str> {
        match (&self.retry_queue, &self.entity) {
            (Some(queue), _) => Some(queue),
            (None, Entity::Queue(queue)) => Some(queue),
            (None, Entity::Subscription { .. }) => None,
        }
    }

    /// What is read: the entity, and the queue through which its copies come back.
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
