//! Publishing, the same on every transport.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::message::Message;
use crate::transport::{TransportError, TransportErrorKind};

#[cfg(test)]
mod tests;

/// How many messages a transport is given at once.
const BATCH: usize = 1000;

/// Publishes messages: one type on every transport. Cheap to clone; keep one in the state of a service, or take one as an
/// argument of a handler.
///
/// It comes from [`Transport::publisher`](crate::Transport::publisher), which every transport also has as a method of its
/// own. It works before a consumer has the transport, beside the consumer, and until the transport is closed.
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
/// A handler publishes first and succeeds then: the message that it handles is acknowledged only after the broker has confirmed
/// what came of it. If the process dies in between, the message is handled again and publishes again. With an id that is made
/// of the delivery's id, whoever receives both can tell:
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
/// `Ok` means that the broker has confirmed that it stored the message. An error means that it did not, or that nobody knows:
/// after a connection that was lost, or a confirmation that did not come in time, the message may be stored all the same. So
/// publish it again after an error, with the same id: it is there once or twice, and never lost without an error.
///
/// # Cancel safety
///
/// When a future of these methods is dropped it is not known which of its messages are stored.
#[derive(Clone)]
pub struct Publisher {
    publish: Arc<dyn Publish>,
}

/// What a transport does for its [`Publisher`]. Implement it with the attribute `#[async_trait]` of the crate `async-trait`.
#[async_trait]
pub trait Publish: Send + Sync + 'static {
    /// What is published to: a queue, most often.
    fn destination(&self) -> &str;

    /// The same for another destination on this broker: a queue of this name, or what the broker has in its place.
    fn to(&self, destination: &str) -> Arc<dyn Publish>;

    /// Publishes messages, as many at the same time as is good for the broker. Answers for each, in its place: `Ok` where the
    /// broker has confirmed that it is stored. What is wrong with one message fails none of the others.
    ///
    /// Every message has an id.
    async fn publish(&self, messages: Vec<Outgoing>) -> Vec<Result<(), TransportError>>;

    /// The time, by the clock that waits are measured with.
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// A message that is to be published.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Outgoing {
    /// The message. It has an id.
    pub message: Message,
    /// For how long the broker is to hold it back, at least; zero for a message that is to be delivered at once.
    pub wait: Duration,
}

impl Publisher {
    /// The publisher of a transport.
    #[must_use]
    pub fn new(publish: impl Publish) -> Self {
        Self { publish: Arc::new(publish) }
    }

    /// What it publishes to: the queue of its transport, unless it was made by [`to`](Self::to).
    #[must_use]
    pub fn destination(&self) -> &str {
        self.publish.destination()
    }

    /// A publisher to another queue on the same broker: on Azure Service Bus, to a queue or topic. It is closed with the
    /// transport. No transport declares that queue; publishing fails where it is missing.
    #[must_use]
    pub fn to(&self, queue: impl AsRef<str>) -> Self {
        Self { publish: self.publish.to(queue.as_ref()) }
    }

    /// Publishes a message, and waits until the broker has confirmed that it is stored. A message without an id gets a random
    /// one.
    ///
    /// # Errors
    ///
    /// When it was not stored, or when [that is not known](Self#what-an-answer-means);
    /// [`Closed`](TransportErrorKind::Closed) after the transport was closed.
    pub async fn publish(&self, message: Message) -> Result<(), TransportError> {
        self.publish_after(message, Duration::ZERO).await
    }

    /// Publishes a message that is delivered after `wait`, not earlier; as soon as possible where that is zero.
    ///
    /// How much later it may come, and where it waits, is told on the transport's page in `docs/transports`.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](TransportErrorKind::Unsupported) where the broker, as it is set up, cannot hold a message back for this
    /// long: the error says what to do. Else as [`publish`](Self::publish).
    pub async fn publish_after(&self, message: Message, wait: Duration) -> Result<(), TransportError> {
        let outgoing = vec![Outgoing::new(message, wait)];
        self.publish.publish(outgoing).await.pop().unwrap_or_else(|| Err(unanswered()))
    }

    /// Publishes a message that is delivered at `time`, not earlier; as soon as possible where that is over.
    ///
    /// # Errors
    ///
    /// As [`publish_after`](Self::publish_after).
    pub async fn publish_at(&self, message: Message, time: SystemTime) -> Result<(), TransportError> {
        let wait = time.duration_since(self.publish.now()).unwrap_or_default();
        self.publish_after(message, wait).await
    }

    /// Publishes messages without waiting for one before the next is sent. Answers for each, in the order in which they came:
    /// as [`publish`](Self::publish) would. A message that fails fails no other.
    ///
    /// The broker may store them in another order: where their order matters, publish one after the other.
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
    /// When the value cannot be written as JSON, and as [`publish`](Self::publish).
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
