//! RabbitMQ as somebody sees it who does not use redrive.

use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt as _};
use lapin::options::{
    BasicPublishOptions, ConfirmSelectOptions, ExchangeDeleteOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};
use redrive::rabbitmq::RabbitMq;
use redrive::{Message, Publisher, TransportErrorKind};
use redrive_brokers::Refusals;

use crate::fate::Fate;

/// RabbitMQ gives a quorum queue a quarter of a second to tell how many messages and consumers it has. One that is too busy has
/// none, it says.
const TOLD_WITHIN: Duration = Duration::from_millis(200);

/// A connection of one's own.
#[derive(Debug)]
pub struct Rabbit {
    connection: Connection,
}

impl Rabbit {
    /// Connects.
    ///
    /// # Panics
    /// When that is not possible.
    pub async fn connect(url: &str) -> Self {
        Self::try_connect(url).await.expect("the broker is there")
    }

    /// Connects, where that is possible.
    ///
    /// # Errors
    /// When it is not.
    pub async fn try_connect(url: &str) -> lapin::Result<Self> {
        let connection = Connection::connect(url, ConnectionProperties::default()).await?;
        Ok(Self { connection })
    }

    /// A new channel.
    ///
    /// # Panics
    /// When there is none to be had.
    pub async fn channel(&self) -> Channel {
        self.connection.create_channel().await.expect("a channel")
    }

    /// Ends the connection, and with it everything that was in flight, as the death of a process does.
    pub async fn close(self) {
        // Whoever is gone already is gone.
        let _ = self.connection.close(200, "dead".into()).await;
    }

    /// How many messages are ready in a queue; `None` when there is no such queue.
    pub async fn ready(&self, queue: &str) -> Option<u32> {
        self.counts(queue).await.map(|(messages, _)| messages)
    }

    /// How many messages are ready in a queue, and how many consumers it has; `None` when there is no such queue.
    pub async fn counts(&self, queue: &str) -> Option<(u32, u32)> {
        loop {
            let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            // A missing queue closes the channel.
            let channel = self.channel().await;
            let asked = Instant::now();
            let found = channel.queue_declare(queue.into(), options, FieldTable::default()).await.ok()?;
            let took = asked.elapsed();
            let _ = channel.close(200, "OK".into()).await;
            let counts = (found.message_count(), found.consumer_count());
            if counts != (0, 0) || took < TOLD_WITHIN {
                return Some(counts);
            }
        }
    }

    /// Publishes straight into a queue, and waits until it is stored. What is refused is published again, as [`publish`] does.
    ///
    /// # Errors
    /// When the broker closes the channel or the connection instead.
    ///
    /// # Panics
    /// When it is not stored.
    pub async fn publish(&self, queue: &str, properties: BasicProperties, body: &[u8]) -> lapin::Result<()> {
        let channel = self.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let mut refusals = Refusals::default();
        loop {
            let sent = channel.basic_publish("".into(), queue.into(), options, body, properties.clone());
            match sent.await?.await? {
                Confirmation::Ack(None) => return Ok(()),
                Confirmation::Nack(None) => refusals.try_again(queue).await,
                answer => panic!("not stored: {answer:?}"),
            }
        }
    }

    /// Deletes these exchanges.
    pub async fn delete_exchanges(&self, exchanges: impl IntoIterator<Item = String>) {
        for exchange in exchanges {
            let _ =
                self.channel().await.exchange_delete(exchange.into(), ExchangeDeleteOptions::default()).await;
        }
    }

    /// Deletes these queues; a shared broker must be left as it was.
    pub async fn delete(&self, queues: impl IntoIterator<Item = String>) {
        for queue in queues {
            let channel = self.channel().await;
            // Whoever waits for nothing is not harmed by a queue that stays.
            let _ = channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await;
        }
    }
}

/// Has the queues declared, and waits until they are safe: a quorum queue that is new may lose what it confirms. One message
/// is published, which is handled with success.
///
/// # Panics
/// When the broker does not take it.
pub async fn declare_and_wait(transport: &RabbitMq) {
    let message = (0..).map(|number| format!("first-{number}")).find(|id| Fate::of(id, 1) == Fate::Done);
    publish_all(transport, message.map(|id| Message::new("the first").with_id(id))).await;
}

/// Publishes messages, each confirmed, several at a time. What is refused is published again, as [`publish`] does.
///
/// # Panics
/// When one is not stored.
pub async fn publish_all(transport: &RabbitMq, messages: impl IntoIterator<Item = Message>) {
    let publisher = transport.publisher();
    let publish = |message| publish(&publisher, message);
    stream::iter(messages).map(publish).buffer_unordered(32).collect::<()>().await;
}

/// Publishes a message, and waits until it is stored. What is refused is published again: see [`Refusals`].
///
/// # Panics
/// When it is not stored.
pub async fn publish(publisher: &Publisher, message: Message) {
    let mut refusals = Refusals::default();
    while let Err(error) = publisher.publish(message.clone()).await {
        assert_eq!(error.kind(), TransportErrorKind::Full, "not stored: {error}");
        refusals.try_again(error).await;
    }
}
