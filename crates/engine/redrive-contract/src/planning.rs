//! Settlements as the core plans them.

use std::time::Duration;

use redrive_core::transport::{Needs, Planning, Settlement};
use redrive_core::{Delivery, Disposition, Failure, Reason, Shelf, Transport};

use crate::started::Started;

/// How far a broker's clock may run ahead of ours within one wait.
pub(crate) const CLOCK_ERROR: Duration = Duration::from_millis(10);
/// A wait short enough for tests to wait for.
pub(crate) const SHORT: Duration = Duration::from_millis(100);
/// A wait that exceeds [`SHORT`] by more than a broker's jitter.
pub(crate) const LONG: Duration = Duration::from_millis(400);
/// A wait that no test waits for.
pub(crate) const FAR: Duration = Duration::from_secs(60);

/// Returns the needs with which nearly all clauses start: their waits, and a prefetch greater than any of them uses.
pub(crate) fn needs() -> Needs {
    let mut needs = Needs::none();
    needs.waits.extend([SHORT, LONG, FAR]);
    needs.prefetch = 300;
    needs
}

/// Returns a retry by a copy, as the core plans it for a message that the broker cannot retry in place.
pub(crate) fn copied<T: Transport>(
    transport: &Started<T>,
    delivery: &Delivery,
    wait: Duration,
) -> Settlement {
    let mut facts = transport.facts();
    facts.delays.in_place = None;
    Settlement::plan(delivery, Disposition::Retry(wait, failure()), &Planning::new(transport.now(), &facts))
}

/// Returns a retry, as the core plans it.
pub(crate) fn retry<T: Transport>(transport: &Started<T>, delivery: &Delivery, wait: Duration) -> Settlement {
    transport.plan(delivery, Disposition::Retry(wait, failure()))
}

/// Returns a move onto a shelf, as the core plans it.
pub(crate) fn shelve<T: Transport>(transport: &Started<T>, delivery: &Delivery, shelf: Shelf) -> Settlement {
    transport.plan(
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
