//! What this process remembers of deliveries: those that it settled, and those that it handled and lost.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use tokio::time::Instant;

use super::context::Context;
use super::in_hand::InHand;
use super::losses::Losses;
use super::settled_cache::{SettledCache, Ticket};
use crate::delivery::Delivery;
use crate::transport::Transport;

impl<T: Transport> Context<T> {
    /// Whether it is done, and only its acknowledgement was lost.
    pub(crate) fn knows(&self, delivery: &Delivery) -> bool {
        // Nothing else is ever looked up, and most are not.
        delivery.redelivered()
            && self.cache_for(delivery).is_some_and(|cache| cache.knows(delivery, Instant::now()))
    }

    /// It is in flight from now on; answers whether it is done.
    pub(super) fn arrived(&self, delivery: &Delivery) -> (bool, Option<Ticket>) {
        self.cache_for(delivery).map_or((false, None), |mut cache| cache.arrived(delivery, Instant::now()))
    }

    /// What is left in flight comes again.
    pub(crate) fn leave(&self, in_hand: &mut InHand, how: fn(&mut SettledCache, &Ticket, Instant)) {
        if let (Some(ticket), Some(cache)) = (in_hand.ticket.take(), &self.settled) {
            how(&mut cache.lock().unwrap_or_else(PoisonError::into_inner), &ticket, Instant::now());
        }
    }

    fn cache_for(&self, delivery: &Delivery) -> Option<MutexGuard<'_, SettledCache>> {
        let mut cache = self.settled.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.is_first_with(delivery) {
            let (resumed, unreceived) = self.told.take_interruption();
            cache.interrupted(delivery.interruptions(), unreceived.as_deref(), resumed);
        }
        Some(cache)
    }

    /// What was handled and lost, again and again, was handed out as often, whatever the broker counts.
    pub(super) fn with_losses(&self, delivery: Delivery) -> Delivery {
        if !delivery.redelivered() {
            return delivery;
        }
        let times = self.losses().times(&delivery);
        if times == 0 {
            delivery
        } else {
            delivery.with_broker_delivery_count_of_at_least(times.saturating_add(1))
        }
    }

    pub(super) fn handled_and_lost(&self, delivery: &Delivery) {
        self.any_lost.store(true, Ordering::Relaxed);
        let times = self.losses().note(delivery);
        // Once for each message: the first time may be a connection that was cut.
        if times == 2 {
            let held = self.transport.now().duration_since(delivery.received_at()).unwrap_or_default();
            tracing::error!(
                queue = self.queue(),
                id = delivery.id(),
                ?held,
                "handled twice, and lost both times before it could be settled: is the handler slower than the broker's limit \
                 for holding a message (the consumer timeout of RabbitMQ)? Give the handler a timeout, or raise that limit; the \
                 message is turned away as poison after as many deliveries as are allowed"
            );
        }
    }

    pub(super) fn settled_at_last(&self, delivery: &Delivery, in_hand: &InHand) {
        if self.any_lost.load(Ordering::Relaxed) {
            self.losses().forget(in_hand.original.as_ref().unwrap_or(delivery));
        }
    }

    fn losses(&self) -> MutexGuard<'_, Losses> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
