//! What flows from the connection into the inbox: deliveries as they were read, which their receiver converts.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use redrive_core::transport::{DeliveryBuilder, Origin};
use redrive_core::{Bytes, Delivery, Message};
use redrive_transport::{Arrival, Inlet};

use crate::broker::{deaths, delivery_count};
use crate::convert;
use crate::delay::DelayStrategy;
use crate::delivery_channel::DeliveryChannel;
use crate::frames::{Sink, TakenDelivery};
use crate::receipt::Receipt;
use crate::shared::Shared;

/// A delivery that was not received yet. Dropping it gives it back to the broker.
#[derive(Debug)]
pub(crate) struct Arrived {
    /// The payload of the content header.
    header: Bytes,
    body: Bytes,
    reading: Arc<Reading>,
    pub(super) origin: Origin,
    pub(super) redelivered: bool,
    pub(super) receipt: Receipt,
}

/// How the messages of one subscription are read.
#[derive(Debug)]
struct Reading {
    strategy: Arc<dyn DelayStrategy>,
    attempts_from_deaths: bool,
}

impl Arrived {
    /// Reads the message, and says what it lacks because its headers are too large to be read.
    pub(super) fn read(&self) -> (Message, Option<String>) {
        let (mut message, left_out) = convert::read(&self.header, self.body.clone());
        self.reading.strategy.arrived(&mut message);
        if self.reading.attempts_from_deaths {
            message = deaths::as_attempts(message, self.origin.queue(), SystemTime::now());
        }
        (message, left_out)
    }
}

impl Arrival for Arrived {
    fn is_lost(&self) -> bool {
        !self.receipt.channel().is_live()
    }

    fn unreceived(&self) -> Option<Delivery> {
        // Read like one that is handled: both are recognized by the same headers.
        let (message, _) = self.read();
        let delivery = DeliveryBuilder::new(message, self.origin.clone(), SystemTime::now());
        Some(delivery.interruptions(self.receipt.channel().interruptions()).build())
    }
}

/// Puts the deliveries of one subscription into the inbox, on the task that reads the connection: none of another task wakes for
/// them.
#[derive(Debug)]
pub(super) struct Flow {
    /// Weak: the channel holds its deliveries, and they hold this.
    channel: Weak<DeliveryChannel>,
    inlet: Inlet<Arrived>,
    reading: Arc<Reading>,
    delivered: AtomicUsize,
    last_tag: AtomicU64,
}

impl Flow {
    pub(super) fn new(shared: &Shared, channel: &Arc<DeliveryChannel>, inlet: Inlet<Arrived>) -> Arc<Self> {
        let (strategy, attempts_from_deaths) = (shared.facts.strategy(), shared.options.attempts_from_deaths);
        Arc::new(Self {
            channel: Arc::downgrade(channel),
            inlet,
            reading: Arc::new(Reading { strategy, attempts_from_deaths }),
            delivered: AtomicUsize::new(0),
            last_tag: AtomicU64::new(0),
        })
    }

    /// Returns the number of deliveries since the last call.
    pub(super) fn take_delivered(&self) -> usize {
        self.delivered.swap(0, Ordering::Relaxed)
    }

    /// Returns the tag of the last delivery; 0 before the first.
    pub(super) fn last_tag(&self) -> u64 {
        self.last_tag.load(Ordering::Relaxed)
    }
}

impl Sink for Flow {
    fn take(&self, deliveries: &mut VecDeque<TakenDelivery>) {
        // Without users, the channel closes, and the broker delivers them again.
        let Some(channel) = self.channel.upgrade() else { return deliveries.clear() };
        self.delivered.fetch_add(deliveries.len(), Ordering::Relaxed);
        if let Some(last) = deliveries.back() {
            self.last_tag.store(last.tag, Ordering::Relaxed);
        }
        self.inlet.push(deliveries.drain(..).map(|taken| {
            let TakenDelivery { tag, redelivered, origin, header, body } = taken;
            let (receipt, reading) = (Receipt::new(tag, Arc::clone(&channel)), Arc::clone(&self.reading));
            Arrived { header, body, reading, origin, redelivered, receipt }
        }));
    }
}

/// Returns the origin of what is delivered from this queue, but for exchange and routing key.
pub(super) fn origin(queue: &str) -> Origin {
    Origin::new(queue, "", "").with_counting_headers(&delivery_count::HEADERS)
}
