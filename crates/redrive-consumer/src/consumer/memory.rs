//! What this process remembers of deliveries: which it settled, and which it handled and lost.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redrive_core::{Delivery, Transport};
use tokio::time::Instant;

use super::context::Context;
use super::in_flight::InFlight;
use super::losses::Losses;
use super::settled_cache::{Clock, SettledCache, Ticket};

impl<T: Transport> Context<T> {
    /// Returns true if the delivery is done, and only its acknowledgement was lost.
    pub(crate) fn knows(&self, delivery: &Delivery) -> bool {
        // Only redelivered messages can be known, and most are not redelivered.
        delivery.redelivered()
            && self.cache_for(delivery).is_some_and(|cache| cache.knows(delivery, Instant::now()))
    }

    /// Records a delivery in flight. Returns true if it is done.
    pub(super) fn arrived(&self, delivery: &Delivery) -> (bool, Option<Ticket>) {
        self.cache_for(delivery).map_or((false, None), |mut cache| cache.arrived(delivery, &Instant::now))
    }

    /// Records with `how` what becomes of a delivery, if that was not recorded yet.
    pub(crate) fn leave(&self, in_flight: &mut InFlight, how: fn(&mut SettledCache, &Ticket, Clock<'_>)) {
        if let (Some(ticket), Some(cache)) = (in_flight.ticket.take(), &self.settled) {
            how(&mut cache.lock().unwrap_or_else(PoisonError::into_inner), &ticket, &Instant::now);
        }
    }

    fn cache_for(&self, delivery: &Delivery) -> Option<MutexGuard<'_, SettledCache>> {
        let mut cache = self.settled.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.is_first_with(delivery) {
            let (resumed, unreceived) = self.signals.take_interruption();
            cache.interrupted(delivery.interruptions(), unreceived.as_deref(), resumed);
        }
        Some(cache)
    }

    /// Records on a redelivery how often this process handled the message and lost it, whatever the broker counts.
    pub(super) fn with_losses(&self, delivery: Delivery) -> Delivery {
        if !delivery.redelivered() || !self.any_lost.load(Ordering::Relaxed) {
            return delivery;
        }
        let hold = self.signals.facts().limits.hold;
        let times = self.losses().times(&delivery, self.transport.now(), hold);
        if times == 0 { delivery } else { delivery.lost_here(times) }
    }

    /// Records that a handler begins with a redelivery; until the guard is dropped.
    pub(super) fn handling_again<'a>(&'a self, delivery: &'a Delivery) -> HandlingAgain<'a> {
        self.any_lost.store(true, Ordering::Relaxed);
        self.losses().begin(delivery);
        HandlingAgain { losses: &self.losses, delivery }
    }

    pub(super) fn handled_and_lost(&self, delivery: &Delivery) {
        self.any_lost.store(true, Ordering::Relaxed);
        let times = self.losses().note(delivery);
        // Log once per message. The first loss may just be a lost connection.
        if times == 2 {
            let held = self.transport.now().duration_since(delivery.received_at()).unwrap_or_default();
            tracing::error!(
                queue = self.queue(),
                message_id = delivery.id(),
                ?held,
                "handled twice, and lost both times before it could be settled: is the handler slower than the broker's limit \
                 for holding a message (the consumer timeout of RabbitMQ)? Give the handler a timeout, or raise that limit; the \
                 message is rejected as poison after the allowed number of deliveries"
            );
        }
    }

    pub(super) fn settled_at_last(&self, delivery: &Delivery, in_flight: &InFlight) {
        if self.any_lost.load(Ordering::Relaxed) {
            self.losses().forget(in_flight.original.as_ref().unwrap_or(delivery));
        }
    }

    fn losses(&self) -> MutexGuard<'_, Losses> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handler that runs with a redelivery.
pub(super) struct HandlingAgain<'a> {
    losses: &'a Mutex<Losses>,
    delivery: &'a Delivery,
}

impl Drop for HandlingAgain<'_> {
    fn drop(&mut self) {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner).end(self.delivery);
    }
}
