//! What the core would have the transport do.

use std::time::Duration;

use redrive_core::{
    DEFAULT_HEADER_BUDGET, Delivery, Disposition, Failure, Needs, Planning, Reason, Settlement, Shelf,
    Transport,
};

use crate::started::Started;

/// How much a broker's clock may be ahead of ours within one wait.
pub(crate) const CLOCK_ERROR: Duration = Duration::from_millis(10);
/// A wait that a test can wait for.
pub(crate) const SHORT: Duration = Duration::from_millis(100);
/// A wait that differs from [`SHORT`] by more than a broker's hesitation.
pub(crate) const LONG: Duration = Duration::from_millis(400);
/// A wait that no test waits for.
pub(crate) const FAR: Duration = Duration::from_secs(60);

/// What nearly all clauses start with: their waits, and more deliveries at once than any of them holds.
pub(crate) fn needs() -> Needs {
    let mut needs = Needs::none();
    needs.waits.extend([SHORT, LONG, FAR]);
    needs.prefetch = 300;
    needs
}

/// What the core would have the transport do.
pub(crate) fn plan<T: Transport>(
    transport: &Started<T>,
    delivery: &Delivery,
    disposition: Disposition,
) -> Settlement {
    let facts = transport.facts();
    let planning = Planning { now: transport.now(), facts: &facts, header_budget: DEFAULT_HEADER_BUDGET };
    Settlement::plan(delivery, disposition, &planning)
}

/// A wait for which the core plans a copy, also where the broker retries in place.
pub(crate) fn copied<T: Transport>(transport: &Started<T>) -> Duration {
    match transport.facts().delays.in_place {
        Some(in_place) => in_place.longest_after(1).saturating_add(Duration::from_millis(1)).max(SHORT),
        None => SHORT,
    }
}

/// A retry, as the core plans it.
pub(crate) fn retry<T: Transport>(transport: &Started<T>, delivery: &Delivery, wait: Duration) -> Settlement {
    plan(transport, delivery, Disposition::Retry(wait, failure()))
}

/// A move onto a shelf, as the core plans it.
pub(crate) fn shelve<T: Transport>(transport: &Started<T>, delivery: &Delivery, shelf: Shelf) -> Settlement {
    plan(
        transport,
        delivery,
        match shelf {
            Shelf::Parking => Disposition::Park(failure()),
            _ => Disposition::DeadLetter(failure()),
        },
    )
}

pub(crate) fn failure() -> Failure {
    Failure::new(Reason::RetryableError, "the warehouse does not answer")
}
