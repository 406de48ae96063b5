//! What a consumer did, and why it ended.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use redrive_core::text::{joined, with_causes};
use redrive_core::transport::UnmetNeed;
use redrive_core::{Disposition, TransportError};

/// Counts how the deliveries of a consumer ended, from its start to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Handled, and removed.
    pub acknowledged: u64,
    /// Failed, and waiting for the next attempt.
    pub retried: u64,
    /// To be delivered again later, at the handler's request.
    pub snoozed: u64,
    /// Put onto the dead-letter shelf.
    pub dead_lettered: u64,
    /// Put onto the parking shelf.
    pub parked: u64,
    /// Failed, and removed at the handler's request.
    pub discarded: u64,
    /// Given back.
    pub released: u64,
    /// Deduplicated: settled without being handled, because they had been settled before.
    pub deduplicated: u64,
    /// Not settled: lost with a connection, or when a lock expired; the broker delivers them again.
    pub lost: u64,
    /// Handled alone, because they may have killed a process. They are also counted under their outcome.
    pub suspects: u64,
}

/// The counters behind a [`Report`].
#[derive(Default)]
pub(crate) struct Counters {
    acknowledged: AtomicU64,
    retried: AtomicU64,
    snoozed: AtomicU64,
    dead_lettered: AtomicU64,
    parked: AtomicU64,
    discarded: AtomicU64,
    released: AtomicU64,
    deduplicated: AtomicU64,
    lost: AtomicU64,
    suspects: AtomicU64,
}

impl Counters {
    pub(crate) fn settled(&self, disposition: &Disposition) {
        let counter = match disposition {
            Disposition::Ack => &self.acknowledged,
            Disposition::Retry(..) => &self.retried,
            Disposition::Snooze(_) => &self.snoozed,
            Disposition::DeadLetter(_) => &self.dead_lettered,
            Disposition::Park(_) => &self.parked,
            Disposition::Discard(_) => &self.discarded,
            Disposition::Release => &self.released,
            // A decision of a newer `redrive-core`: this report has no count for it.
            _ => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn deduplicated(&self) {
        self.deduplicated.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn suspect(&self) {
        self.suspects.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn report(&self) -> Report {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Report {
            acknowledged: read(&self.acknowledged),
            retried: read(&self.retried),
            snoozed: read(&self.snoozed),
            dead_lettered: read(&self.dead_lettered),
            parked: read(&self.parked),
            discarded: read(&self.discarded),
            released: read(&self.released),
            deduplicated: read(&self.deduplicated),
            lost: read(&self.lost),
            suspects: read(&self.suspects),
        }
    }
}

/// Why a consumer did not start, or ended without being asked to. `Debug` shows it as `main` should: the message, and its causes.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ConsumerError {
    /// The broker cannot honour the configuration. No message was taken.
    #[error("the consumer of queue `{queue}` refuses to start: {}", joined(.unmet, "; "))]
    Refused {
        /// The queue.
        queue: String,
        /// The needs that cannot be honoured.
        unmet: Vec<UnmetNeed>,
    },
    /// The ledger cannot be used. No message was taken.
    #[error("the consumer of queue `{queue}` did not start: {what}")]
    Ledger {
        /// The queue.
        queue: String,
        /// What is wrong, on which file, and what to do.
        what: String,
    },
    /// The transport did not start. No message was taken.
    #[error("the consumer of queue `{queue}` did not start: {error}")]
    Start {
        /// The queue.
        queue: String,
        /// What the transport says.
        #[source]
        error: TransportError,
    },
    /// The transport was closed, or was refused before it could receive for the first time. Handlers were allowed to finish, and the rest of the deliveries in flight was given back.
    #[error("the consumer of queue `{queue}` had to end: {error}")]
    Transport {
        /// The queue.
        queue: String,
        /// What the transport says.
        #[source]
        error: TransportError,
    },
    /// The consumer could not receive for as long as [`give_up_after`](super::Consumer::give_up_after) allows.
    #[error("the consumer of queue `{queue}` had to end: it could not receive for {}: {error}", humantime::format_duration(*.after))]
    GaveUp {
        /// The queue.
        queue: String,
        /// The time that was allowed.
        after: std::time::Duration,
        /// Why it could not receive.
        #[source]
        error: TransportError,
    },
    /// A layer failed in `poll_ready`, outside of any call, so that no message can pass it any more.
    #[error("the consumer of queue `{queue}` had to end: a layer is broken: {}", redrive_core::redact(&.error.to_string()))]
    Layer {
        /// The queue.
        queue: String,
        /// The layer's error.
        error: redrive_core::BoxError,
    },
}

impl fmt::Debug for ConsumerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&with_causes(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrive_core::TransportErrorKind;

    #[test]
    fn what_a_main_shows_is_told_once() {
        let broker = std::io::Error::other("ACCESS_REFUSED");
        let error = TransportError::new(TransportErrorKind::Unauthorized, "the broker says ACCESS_REFUSED");
        let error = error.with_source(broker);
        let shown = "the broker says ACCESS_REFUSED (Unauthorized)";
        assert_eq!(format!("{error:?}"), shown);
        let error = ConsumerError::Start { queue: "orders".to_owned(), error };
        let shown = "the consumer of queue `orders` did not start: the broker says ACCESS_REFUSED";
        assert_eq!(format!("{error:?}"), shown);
        let lost = TransportError::new(TransportErrorKind::Unreachable, "no connection to `orders`");
        let lost = lost.with_source(std::io::Error::other("timed out"));
        assert_eq!(format!("{lost:?}"), "no connection to `orders` (Unreachable)\n  caused by: timed out");
    }

    #[test]
    fn the_error_of_a_layer_is_told_without_its_secrets() {
        let error = "cannot reach redis://:hunter2@cache".into();
        let told = ConsumerError::Layer { queue: "orders".into(), error }.to_string();
        assert!(told.contains("redis://:***@cache"), "{told}");
    }
}
