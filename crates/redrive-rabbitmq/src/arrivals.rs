//! From deliveries of the client library to what the consumer is given.

use std::sync::Arc;

use redrive_core::Origin;

use crate::broker::Broker;
use crate::convert;
use crate::delay::Mode;
use crate::hand_outs;
use crate::inbox::Arrived;
use crate::session::Session;

/// Takes in the deliveries of one subscription.
pub(crate) struct Arrivals<'a> {
    session: &'a Arc<Session>,
    mode: Arc<dyn Mode>,
    /// Where the last one came from: the next one comes from there too, most often.
    origin: Origin,
}

impl<'a> Arrivals<'a> {
    pub(crate) fn on(broker: &Broker, session: &'a Arc<Session>) -> Self {
        Self { session, mode: broker.mode(), origin: from(broker.queue(), "", "") }
    }

    pub(crate) fn take_in(&mut self, delivery: lapin::message::Delivery) -> Arrived {
        let (exchange, routing_key) = (delivery.exchange.as_str(), delivery.routing_key.as_str());
        if self.origin.exchange() != exchange || self.origin.routing_key() != routing_key {
            self.origin = from(self.origin.queue(), exchange, routing_key);
        }
        let left_out = convert::left_out(&delivery.properties);
        let mut message = convert::message(&delivery.properties, delivery.data);
        self.mode.arrived(&mut message);
        Arrived {
            message,
            left_out,
            origin: self.origin.clone(),
            redelivered: delivery.redelivered,
            tag: delivery.delivery_tag,
            session: Arc::clone(self.session),
        }
    }
}

fn from(queue: &str, exchange: &str, routing_key: &str) -> Origin {
    Origin::new(queue, exchange, routing_key).with_counting_headers(&hand_outs::COUNTS)
}
