//! What this process knows of deliveries that come again: which it settled, which it handled and lost, and which a process may have
//! died of. One door; nothing here speaks to a broker.

mod in_flight_log;
mod ledger_state;
mod losses;
mod settled_cache;
mod suspects;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use parking_lot::{Mutex, MutexGuard};
use redrive_core::Delivery;
use redrive_core::engine::lost_here;
use tokio::time::Instant;

pub(crate) use self::in_flight_log::{Begun, InFlightLog, LedgerChange};
use self::losses::Losses;
pub(crate) use self::settled_cache::Ticket;
use self::settled_cache::{COMES_AGAIN_WITHIN, SettledCache};
pub use self::suspects::Suspects;
pub(crate) use self::suspects::{Rule, Step, Suspicion, Watch};
use crate::signal_state::SignalState;

/// The redeliveries of one consumer.
pub(crate) struct Redelivery {
    rule: Rule,
    ledger: Option<InFlightLog>,
    /// `None`: settled deliveries are not remembered.
    settled: Option<Mutex<SettledCache>>,
    losses: Mutex<Losses>,
    /// True once any delivery was handled and lost.
    any_lost: AtomicBool,
    signals: Arc<SignalState>,
}

/// What is known of the end of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Settled, and a redelivery of it is one.
    Done,
    /// Settled, but a redelivery may be the only one left.
    Settled,
    /// Not settled: it is expected again.
    ComesAgain,
}

impl Redelivery {
    /// `remembered`: how many settled deliveries are remembered. `max_in_flight`: how many may be in flight at once.
    pub(crate) fn new(
        rule: Rule,
        ledger: Option<InFlightLog>,
        remembered: Option<NonZeroUsize>,
        max_in_flight: usize,
        signals: Arc<SignalState>,
    ) -> Self {
        Self {
            rule,
            ledger,
            settled: remembered.map(|capacity| Mutex::new(SettledCache::new(capacity, max_in_flight))),
            losses: Mutex::default(),
            any_lost: AtomicBool::new(false),
            signals,
        }
    }

    /// Returns the rule by which deliveries are suspects.
    pub(crate) fn rule(&self) -> Rule {
        self.rule
    }

    /// Returns true if the delivery is no suspect. Costs two comparisons.
    pub(crate) fn ordinary(&self, delivery: &Delivery) -> bool {
        self.rule.ordinary(delivery) && !self.ledger.as_ref().is_some_and(InFlightLog::names_any)
    }

    /// Judges a delivery that is not [ordinary](Self::ordinary). `deaths`: how often the ledger saw a process die with it.
    pub(crate) fn suspicion(&self, delivery: &Delivery, deaths: u32) -> Suspicion {
        // A known delivery is deduplicated: no handler runs.
        if self.rule.is_off() || self.knows(delivery) {
            return Suspicion::None;
        }
        let interrupted =
            || self.signals.interrupted_at().is_some_and(|at| at.elapsed() < COMES_AGAIN_WITHIN);
        let pardoned = delivery.redelivered() && interrupted();
        self.rule.suspicion(delivery, pardoned, deaths)
    }

    /// Returns how many processes died with this delivery, as far as the ledger says.
    pub(crate) fn deaths(&self, delivery: &Delivery) -> u32 {
        self.ledger.as_ref().map_or(0, |ledger| ledger.deaths(delivery))
    }

    /// Records in the ledger that a handler begins; until the guard is dropped.
    pub(crate) fn begin(&self, delivery: &Delivery) -> Option<Begun<'_>> {
        self.ledger.as_ref().map(|ledger| ledger.begin(delivery))
    }

    /// Returns whether the ledger can be written, if that has changed since the last call. Cheap.
    pub(crate) fn ledger_change(&self) -> Option<LedgerChange> {
        self.ledger.as_ref().and_then(InFlightLog::change)
    }

    /// Records a delivery in flight. Returns true if it is done, and only its acknowledgement was lost.
    pub(crate) fn arrived(&self, delivery: &Delivery) -> (bool, Option<Ticket>) {
        self.cache_for(delivery).map_or((false, None), |mut cache| cache.arrived(delivery, &Instant::now))
    }

    /// Records what is known of the end of a delivery, if that was not recorded yet.
    pub(crate) fn leave(&self, ticket: &mut Option<Ticket>, known: Known) {
        let (Some(ticket), Some(cache)) = (ticket.take(), &self.settled) else { return };
        let how = match known {
            Known::Done => SettledCache::done,
            Known::Settled => SettledCache::settled,
            Known::ComesAgain => SettledCache::comes_again,
        };
        how(&mut cache.lock(), &ticket, &Instant::now);
    }

    /// Returns true if the delivery is done, and only its acknowledgement was lost.
    fn knows(&self, delivery: &Delivery) -> bool {
        // Only redelivered messages can be known, and most are not redelivered.
        delivery.redelivered()
            && self.cache_for(delivery).is_some_and(|cache| cache.knows(delivery, Instant::now()))
    }

    fn cache_for(&self, delivery: &Delivery) -> Option<MutexGuard<'_, SettledCache>> {
        let mut cache = self.settled.as_ref()?.lock();
        if cache.is_first_with(delivery) {
            let (resumed, unreceived) = self.signals.take_interruption();
            cache.interrupted(delivery.interruptions(), unreceived.as_deref(), resumed);
        }
        Some(cache)
    }

    /// Writes on a redelivery how often this process handled the message and lost it, whatever the broker counts.
    pub(crate) fn with_losses(&self, delivery: Delivery, now: SystemTime) -> Delivery {
        if !delivery.redelivered() || !self.any_lost.load(Ordering::Relaxed) {
            return delivery;
        }
        let hold = self.signals.facts().limits.hold;
        let times = self.losses.lock().times(&delivery, now, hold);
        if times == 0 { delivery } else { lost_here(delivery, times) }
    }

    /// Records that a handler begins with a redelivery; until the guard is dropped. Other deliveries need no record.
    pub(crate) fn handling_again<'a>(&'a self, delivery: &'a Delivery) -> Option<HandlingAgain<'a>> {
        if !delivery.redelivered() {
            return None;
        }
        self.any_lost.store(true, Ordering::Relaxed);
        self.losses.lock().begin(delivery);
        Some(HandlingAgain { losses: &self.losses, delivery })
    }

    /// Records that a message was handled, and lost before it could be settled. Returns how often by now.
    pub(crate) fn handled_and_lost(&self, delivery: &Delivery) -> u32 {
        self.any_lost.store(true, Ordering::Relaxed);
        self.losses.lock().note(delivery)
    }

    /// Forgets how often a message was lost: it is settled.
    pub(crate) fn settled(&self, delivery: &Delivery) {
        if self.any_lost.load(Ordering::Relaxed) {
            self.losses.lock().forget(delivery);
        }
    }
}

/// A handler that runs with a redelivery.
pub(crate) struct HandlingAgain<'a> {
    losses: &'a Mutex<Losses>,
    delivery: &'a Delivery,
}

impl Drop for HandlingAgain<'_> {
    fn drop(&mut self) {
        self.losses.lock().end(self.delivery);
    }
}
