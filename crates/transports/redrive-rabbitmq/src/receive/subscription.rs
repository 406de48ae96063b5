//! Begins and ends one subscription to the work queue.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use lapin::Consumer;
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable};
use redrive_core::TransportError;
use redrive_transport::Wishes;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::arrivals::origin;
use crate::broker::{QueueType, Version};
use crate::connection::{Connection, with_timeout};
use crate::convert::short;
use crate::delivery_channel::DeliveryChannel;
use crate::error;
use crate::frames::DeliveryQueue;
use crate::options::Options;
use crate::shared::Shared;
use crate::topology::Topology;

/// Time limit for the broker to end a subscription, or to answer while it is checked.
pub(super) const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// Consumer tags are per channel, and each channel has one consumer.
const CONSUMER_TAG: &str = "redrive";

/// A subscription and its channel.
pub(super) struct Subscription {
    pub(super) channel: Arc<DeliveryChannel>,
    /// Brings no deliveries: it ends with the subscription.
    consumer: Consumer,
}

/// A subscription has ended; why.
pub(super) struct Over(pub(super) String);

/// Why a subscription failed.
enum Refused {
    /// The queue does not exist.
    Missing(TransportError),
    Other(TransportError),
}

impl Subscription {
    /// Subscribes with this prefetch. `trusted`: the queues are still as prepared, if the connection is the same. `None`: another
    /// limit than this one is wanted meanwhile. What RabbitMQ was asked for is not given up then: nobody would give back what it
    /// delivers.
    pub(super) async fn begin(
        shared: &Shared,
        trusted: bool,
        prefetch: u16,
        (wishes, limit): (&mut Wishes, u32),
    ) -> Option<Result<Self, TransportError>> {
        let (mut trusted, mut was_missing) = (trusted, false);
        loop {
            let prepared = tokio::select! {
                prepared = Self::prepare(shared, trusted) => prepared,
                () = wishes.other_than(limit) => return None,
            };
            let begun = match prepared {
                Ok(connection) => Self::subscribe(shared, &connection, prefetch).await,
                Err(error) => Err(Refused::Other(error)),
            };
            match begun {
                Err(Refused::Missing(_)) if shared.options.topology == Topology::Declare && !was_missing => {
                    warn!(queue = %shared.queue(), "the queue is gone: declaring it again");
                    shared.queues.distrust();
                    (trusted, was_missing) = (false, true);
                }
                Err(Refused::Missing(error) | Refused::Other(error)) => return Some(Err(error)),
                Ok(subscription) => {
                    shared.deliveries.add(&subscription.channel);
                    return Some(Ok(subscription));
                }
            }
        }
    }

    /// Returns the connection to subscribe on: a later one may be to a broker where the queues are not prepared.
    async fn prepare(shared: &Shared, trusted: bool) -> Result<Arc<Connection>, TransportError> {
        let connection = shared.connections.consuming().await?;
        if !(trusted && shared.queues.is_prepared_for(&connection)) {
            shared.queues.prepare_again().await?;
        }
        Ok(connection)
    }

    async fn subscribe(
        shared: &Shared,
        connection: &Arc<Connection>,
        prefetch: u16,
    ) -> Result<Self, Refused> {
        shared.facts.note_connection(connection);
        let channel = connection.channel().await.map_err(Refused::Other)?;
        let limiting = channel.basic_qos(prefetch, BasicQosOptions { global: false });
        let limited = with_timeout(&channel, limiting).await;
        limited.map_err(|error| Refused::Other(error::interrupted("cannot set the prefetch", error)))?;
        let queue = short(shared.queue(), "the name of a queue").map_err(Refused::Other)?;
        // Before the first delivery can come.
        let deliveries = DeliveryQueue::new(connection.own(&channel), origin(shared.queue()));
        let arguments = arguments(&shared.options, connection.version);
        let consuming =
            channel.basic_consume(queue, CONSUMER_TAG.into(), BasicConsumeOptions::default(), arguments);
        let consumer = with_timeout(&channel, consuming).await.map_err(|cause| {
            if error::refusal(&cause).is_none() {
                // The connection was lost: deliveries may have been on their way, and are redelivered.
                shared.deliveries.note_interruption();
            }
            let missing = error::is_missing_queue(&cause);
            let error = error::consuming(shared.queue(), cause);
            if missing { Refused::Missing(error) } else { Refused::Other(error) }
        })?;
        info!(queue = %shared.queue(), epoch = connection.epoch, prefetch, "receiving deliveries");
        let within = shared.options.ack_within;
        let interruptions = shared.deliveries.interruptions_before(connection.epoch);
        let connection = Arc::clone(connection);
        let channel = DeliveryChannel::new(channel, deliveries, connection, prefetch, within, interruptions);
        Ok(Self { channel, consumer })
    }

    /// Asks the broker to end the subscription. Earlier deliveries still arrive, and can be settled.
    pub(super) async fn cancel(&self) -> Result<(), String> {
        let channel = self.channel.channel();
        let cancelling = channel.basic_cancel(CONSUMER_TAG.into(), BasicCancelOptions::default());
        match timeout(CANCEL_TIMEOUT, cancelling).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("RabbitMQ does not answer to the end of the subscription".to_owned()),
        }
    }

    /// Waits until the subscription ends. All deliveries that had arrived before have flowed on then. Cancel safe.
    pub(super) async fn ended(&mut self) -> Over {
        let ended = self.consumer.next().await;
        // What was sent before the end was read before it.
        self.channel.deliveries().flush();
        Over(match ended {
            Some(Err(error)) => error.to_string(),
            // The queue was deleted, or the broker took back deliveries that were held too long.
            _ => "RabbitMQ ended the subscription".to_owned(),
        })
    }

    /// Waits for the last deliveries after [`cancel`](Self::cancel): the consumer ends with the reply to it. The time limit is for a
    /// connection that is lost meanwhile.
    pub(super) async fn rest_after_cancel(&mut self) {
        let _ = timeout(CANCEL_TIMEOUT, self.ended()).await;
        debug!(epoch = self.channel.epoch(), "stopped receiving deliveries");
    }
}

/// Returns the arguments of the subscription.
fn arguments(options: &Options, version: Option<Version>) -> FieldTable {
    let mut arguments = FieldTable::default();
    if let Some(priority) = options.consumer_priority {
        arguments.insert("x-priority".into(), AMQPValue::LongInt(priority));
    }
    // Classic queues refuse it, and older brokers do not know it.
    let takes_timeout = options.queue_type == QueueType::Quorum && version >= Some(Version::V4_3);
    if let Some(timeout) = options.consumer_timeout.filter(|_| takes_timeout) {
        let millis = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
        arguments.insert("x-consumer-timeout".into(), AMQPValue::LongLongInt(millis));
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_asked_for_only_where_it_is_understood() {
        let asked = |options: Options, version| {
            let options = options.consumer_timeout(Duration::from_secs(9));
            arguments(&options, version).inner().get("x-consumer-timeout").cloned()
        };
        let nine_seconds = Some(AMQPValue::LongLongInt(9000));
        let quorum = || Options::new("orders");
        assert_eq!(asked(quorum(), Some(Version::V4_3)), nine_seconds);
        assert_eq!(asked(quorum(), Some(Version::V4_0)), None);
        assert_eq!(asked(quorum(), None), None);
        assert_eq!(asked(quorum().queue_type(QueueType::Classic), Some(Version::V4_3)), None);
    }
}
