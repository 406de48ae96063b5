//! Receives deliveries.
//!
//! | module | does |
//! |---|---|
//! | [`intake`] | the task that owns the subscription, and subscribes again when it ends; no delivery goes through it |
//! | [`subscription`] | begins and ends one subscription |
//! | [`arrivals`] | what flows from the connection into the inbox, and how it is read |
//! | [`prefetch`] | adapts the prefetch to the throughput |
//! | [`idle`] | decides when to renew a subscription that brings no deliveries |

mod arrivals;
mod idle;
pub(crate) mod intake;
mod prefetch;
mod subscription;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use redrive_core::TransportError;
use redrive_core::transport::{DeliveryBuilder, Received, Receiver, SettleError, Settlement};
use redrive_transport::Inbox;
use tracing::warn;

use crate::broker::{QueueType, delivery_count};
use crate::receipt::Receipt;
use crate::settle::settle;
use crate::shared::Shared;
pub(crate) use arrivals::Arrived;

/// Receives from one RabbitMQ queue; returned by [`open`](redrive_core::Transport::open).
#[derive(Debug)]
pub struct RabbitMqReceiver {
    shared: Arc<Shared>,
    inbox: Inbox<Arrived>,
    /// True once it was logged that the queue does not count deliveries.
    warned: AtomicBool,
}

impl RabbitMqReceiver {
    pub(crate) fn new(shared: Arc<Shared>, inbox: Inbox<Arrived>) -> Self {
        Self { shared, inbox, warned: AtomicBool::new(false) }
    }

    fn received(&self, arrived: Arrived) -> Received<Receipt> {
        let (message, left_out) = arrived.read();
        let Arrived { origin, redelivered, receipt, .. } = arrived;
        if delivery_count::is_missing(message.headers(), redelivered) {
            self.warn_of_missing_counts();
        }
        let queue_type = self.shared.options.queue_type;
        let (queue, version) = (self.shared.queue(), receipt.version());
        let times = delivery_count::count(message.headers(), redelivered, queue, queue_type, version);
        let failures = if self.shared.options.delay.retries_in_place() { times - 1 } else { 0 };
        let mut delivery = DeliveryBuilder::new(message, origin.clone(), SystemTime::now())
            .broker_delivery_count(times)
            .failures_in_place(failures)
            .redelivered(redelivered)
            .interruptions(receipt.channel().interruptions());
        let receipt = receipt.with_origin(origin).read_whole(left_out.is_none());
        if let Some(left_out) = left_out {
            delivery = delivery.read_without(left_out);
        }
        Received { delivery: delivery.build(), receipt }
    }

    /// Logs once that a message was redelivered without a count although counts are expected.
    fn warn_of_missing_counts(&self) {
        let is_expected = self.shared.options.queue_type == QueueType::Quorum;
        if is_expected && !self.warned.swap(true, Ordering::Relaxed) {
            warn!(
                queue = %self.shared.queue(),
                "a message was handed out again without a count: this is a classic queue, and a quorum queue is configured. A \
                 message that kills its process is not bounded. Say `queue_type(QueueType::Classic)`, and give the consumer a \
                 ledger"
            );
        }
    }
}

impl Receiver for RabbitMqReceiver {
    type Receipt = Receipt;

    async fn receive(&self) -> Result<Option<Received<Receipt>>, TransportError> {
        Ok(self.inbox.receive().await?.map(|arrived| self.received(arrived)))
    }

    async fn settle(&self, receipt: Receipt, settlement: Settlement) -> Result<(), SettleError<Receipt>> {
        settle(&self.shared, receipt, settlement).await
    }

    async fn set_limit(&self, limit: u32) -> Result<(), TransportError> {
        // A limit above the prefetch means the prefetch.
        let prefetch = u32::from(self.shared.facts.prefetch().max(1));
        self.inbox.set_limit(limit.min(prefetch)).await
    }
}
