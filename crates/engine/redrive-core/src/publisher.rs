//! Publishes messages, in the same way on every transport.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::message::Message;
use crate::transport_error::{TransportError, TransportErrorKind};

#[cfg(test)]
mod tests;

/// Maximum number of messages passed to a transport at once.
const BATCH: usize = 1000;

/// Publishes messages: one type for every transport. Cheap to clone; keep one in the state of a service, or take one as an
/// argument of a handler.
///
/// [`Transport::publisher`](crate::Transport::publisher) creates it; every transport also has a method of the same name. It works
/// before a consumer has the transport, beside the consumer, and until the transport is closed.
///
/// ```no_run
/// # async fn example(orders: impl redrive_core::Transport) -> Result<(), redrive_core::TransportError> {
/// use std::time::Duration;
/// use redrive_core::Message;
///
/// let publisher = orders.publisher();
/// publisher.publish(Message::new("one pair of boots").with_id("order-1")).await?;
/// publisher.publish_after(Message::new("remind them"), Duration::from_secs(3600)).await?;
/// publisher.to("invoices").publish(Message::new("89.00")).await?;
/// for result in publisher.publish_all(["a lamp", "a chair"].map(Message::new)).await {
///     result?;
/// }
/// # Ok(()) }
/// ```
///
/// # In a handler
///
/// A handler publishes first and succeeds afterwards: its message is acknowledged only after the broker has confirmed the
/// published messages. If the process dies in between, the message is handled again and published again. Derive the new id from
/// the delivery's id, so that a receiver of both can recognize the duplicate:
///
/// ```
/// use redrive_core::{BoxError, Delivery, Message, Publisher};
///
/// async fn bill(order: String, delivery: Delivery, publisher: Publisher) -> Result<(), BoxError> {
///     let invoice = Message::new(order).with_id(format!("invoice-{}", delivery.id()));
///     publisher.to("invoices").publish(invoice).await?;
///     Ok(())
/// }
/// ```
///
/// # What an answer means
///
/// `Ok` means that the broker has confirmed that it stored the message. An error means that the broker did not store it, or that
/// this is not known: after a lost connection, or a confirmation that did not come in time, the message may still be stored. So
/// publish it again after an error, with the same id: it is then stored once or twice, and never lost without an error.
///
/// # Cancel safety
///
/// If a future of these methods is dropped, it is not known which of its messages are stored.
#[derive(Clone)]
pub struct Publisher {
    publish: Arc<dyn Publish>,
}

/// The transport's side of a [`Publisher`]. Implement it with the attribute `#[async_trait]` of the crate `async-trait`.
#[async_trait]
pub trait Publish: Send + Sync + 'static {
    /// Returns what it publishes to: usually a queue.
    fn destination(&self) -> &str;

    /// Returns a publisher to another destination on this broker: a queue of this name, or the broker's equivalent.
    fn to(&self, destination: &str) -> Arc<dyn Publish>;

    /// Publishes messages, with as much concurrency as suits the broker. Returns one result per message, in the same order: `Ok`
    /// if the broker has confirmed that the message is stored. A message that fails does not make others fail.
    ///
    /// Every message has an id.
    async fn publish(&self, messages: Vec<Outgoing>) -> Vec<Result<(), TransportError>>;

    /// Returns the current time, by the clock that waits are measured with.
    fn now(&self) -> SystemTime;
}

/// A message to publish.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Outgoing {
    /// The message. It has an id.
    pub message: Message,
    /// Minimum time for which the broker holds it back; zero for delivery at once.
    pub wait: Duration,
}

impl Publisher {
    /// Creates the publisher of a transport.
    #[must_use]
    pub fn new(publish: impl Publish) -> Self {
        Self { publish: Arc::new(publish) }
    }

    /// Returns what it publishes to. Default: the queue of its transport; [`to`](Self::to) creates publishers to others.
    #[must_use]
    pub fn destination(&self) -> &str {
        self.publish.destination()
    }

    /// Returns a publisher to another queue on the same broker: on Azure Service Bus, to a queue or topic. It is closed with the
    /// transport. No transport declares that queue; publishing fails if it does not exist.
    #[must_use]
    pub fn to(&self, queue: impl AsRef<str>) -> Self {
        Self { publish: self.publish.to(queue.as_ref()) }
    }

    /// Publishes a message, and waits until the broker has confirmed that it is stored. A message without an id gets a random
    /// one.
    ///
    /// # Errors
    ///
    /// If it was not stored, or if [that is not known](Self#what-an-answer-means);
    /// [`Closed`](TransportErrorKind::Closed) after the transport was closed.
    pub async fn publish(&self, message: Message) -> Result<(), TransportError> {
        self.publish_after(message, Duration::ZERO).await
    }

    /// Publishes a message that is delivered after `wait`, not earlier; as soon as possible if `wait` is zero.
    ///
    /// The [transport's page](https://github.com/redrive-rs/redrive/tree/main/docs/transports) says how much later it may come,
    /// and where it waits.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](TransportErrorKind::Unsupported) if the broker, as it is configured, cannot hold a message back for this
    /// long: the error says what to do. Otherwise the same as [`publish`](Self::publish).
    pub async fn publish_after(&self, message: Message, wait: Duration) -> Result<(), TransportError> {
        let outgoing = vec![Outgoing::new(message, wait)];
        self.publish.publish(outgoing).await.pop().unwrap_or_else(|| Err(unanswered()))
    }

    /// Publishes a message that is delivered at `time`, not earlier; as soon as possible if `time` has passed.
    ///
    /// # Errors
    ///
    /// The same as [`publish_after`](Self::publish_after).
    pub async fn publish_at(&self, message: Message, time: SystemTime) -> Result<(), TransportError> {
        let wait = time.duration_since(self.publish.now()).unwrap_or_default();
        self.publish_after(message, wait).await
    }

    /// Publishes messages without waiting for one before sending the next. Returns one result per message, in the given order,
    /// like [`publish`](Self::publish). A message that fails does not make others fail.
    ///
    /// The broker may store them in another order: if the order matters, publish one after the other.
    #[must_use = "each message has a result of its own"]
    pub async fn publish_all(
        &self,
        messages: impl IntoIterator<Item = Message>,
    ) -> Vec<Result<(), TransportError>> {
        let mut messages = messages.into_iter().map(|message| Outgoing::new(message, Duration::ZERO));
        let mut results = Vec::new();
        loop {
            let batch: Vec<_> = messages.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                return results;
            }
            let expected = results.len() + batch.len();
            results.extend(self.publish.publish(batch).await);
            results.resize_with(expected, || Err(unanswered()));
        }
    }

    /// Publishes a value as JSON: [`Message::json`], then [`publish`](Self::publish).
    ///
    /// # Errors
    ///
    /// If the value cannot be written as JSON; otherwise the same as [`publish`](Self::publish).
    #[cfg(feature = "json")]
    pub async fn publish_json<T: serde::Serialize + Sync + ?Sized>(
        &self,
        value: &T,
    ) -> Result<(), TransportError> {
        self.publish(Message::json(value)?).await
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("destination", &self.destination()).finish_non_exhaustive()
    }
}

impl Outgoing {
    fn new(mut message: Message, wait: Duration) -> Self {
        message.assign_id();
        Self { message, wait }
    }
}

fn unanswered() -> TransportError {
    let message = "the transport did not answer for this message: it is not known whether it is stored";
    TransportError::new(TransportErrorKind::Other, message)
}
