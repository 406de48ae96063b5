//! Converts deliveries for the inbox.

use std::sync::Arc;
use std::time::SystemTime;

use redrive_core::transport::Origin;
use redrive_core::{Delivery, Message};
use redrive_transport::Arrival;

use crate::broker::{deaths, delivery_count};
use crate::convert;
use crate::delay::DelayStrategy;
use crate::delivery_channel::DeliveryChannel;
use crate::frames::TakenDelivery;
use crate::receipt::Receipt;
use crate::shared::Shared;

/// A delivery that was not received yet. Dropping it gives it back to the broker.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(super) message: Message,
    /// What the message lacks, because its headers are too large to be read.
    pub(super) left_out: Option<String>,
    pub(super) origin: Origin,
    pub(super) redelivered: bool,
    pub(super) receipt: Receipt,
}

impl Arrival for Arrived {
    fn is_lost(&self) -> bool {
        !self.receipt.channel().is_live()
    }

    fn unreceived(&self) -> Option<Delivery> {
        let delivery = Delivery::from_origin(self.message.clone(), &self.origin, SystemTime::now());
        Some(delivery.after_interruptions(self.receipt.channel().interruptions()))
    }
}

/// Converts the deliveries of one channel.
pub(super) struct Arrivals<'a> {
    channel: &'a Arc<DeliveryChannel>,
    strategy: Arc<dyn DelayStrategy>,
    attempts_from_deaths: bool,
    /// Origin of the last delivery: usually also that of the next.
    origin: Origin,
}

impl<'a> Arrivals<'a> {
    pub(super) fn on(shared: &Shared, channel: &'a Arc<DeliveryChannel>) -> Self {
        let (strategy, origin) = (shared.facts.strategy(), origin(shared.queue(), "", ""));
        Self { channel, strategy, attempts_from_deaths: shared.options.attempts_from_deaths, origin }
    }

    pub(super) fn convert(&mut self, taken: TakenDelivery) -> Arrived {
        let TakenDelivery { tag, redelivered, source, header, body } = taken;
        let (mut message, left_out) = convert::read(&header, body);
        let (exchange, routing_key) = (&*source.exchange, &*source.routing_key);
        if self.origin.exchange() != exchange || self.origin.routing_key() != routing_key {
            self.origin = origin(self.origin.queue(), exchange, routing_key);
        }
        self.strategy.arrived(&mut message);
        // Read here already, so that lost and handled deliveries are recognized by the same headers.
        if self.attempts_from_deaths {
            message = deaths::as_attempts(message, self.origin.queue(), SystemTime::now());
        }
        Arrived {
            message,
            left_out,
            origin: self.origin.clone(),
            redelivered,
            receipt: Receipt::new(tag, Arc::clone(self.channel)),
        }
    }
}

fn origin(queue: &str, exchange: &str, routing_key: &str) -> Origin {
    Origin::new(queue, exchange, routing_key).with_counting_headers(&delivery_count::HEADERS)
}
