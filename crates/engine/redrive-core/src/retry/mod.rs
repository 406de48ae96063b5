//! Decides when to retry a failed delivery.

mod durations;
mod exponential;
mod fibonacci;
mod fixed;
mod jitter;
mod limits;
mod linear;
mod schedule;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::delivery::Delivery;
use crate::header_names;
use crate::message::Message;

pub use durations::{millis, mins, secs};
pub use exponential::Exponential;
pub use fibonacci::Fibonacci;
pub use fixed::Fixed;
pub(crate) use jitter::Chance;
pub use jitter::Jitter;
pub use linear::Linear;
pub use schedule::NoRetry;

/// Decides when to retry a failed delivery. A pure function: the attempts of one message run in different processes, so a policy
/// cannot remember anything between them.
///
/// | policy | waits, with a base of 1 s |
/// |---|---|
/// | [`Exponential`] | 1 s, 2 s, 4 s, 8 s, … |
/// | [`Fibonacci`] | 1 s, 1 s, 2 s, 3 s, 5 s, … |
/// | [`Linear`] | 1 s, 2 s, 3 s, 4 s, … |
/// | [`Fixed`] | 1 s, 1 s, 1 s, … |
/// | `[Duration; N]`, `Vec<Duration>`, `&'static [Duration]` | these, in turn, then no more |
/// | a closure `\|attempt: u32\| -> Option<Duration>` | its result for the attempt that failed |
/// | [`NoRetry`] | none |
///
/// `Arc<P>` and `Box<dyn RetryPolicy>` are policies too, to choose one at run time.
///
/// ```
/// use redrive_core::{Exponential, RetryPolicy, secs};
///
/// fn waits(policy: impl RetryPolicy) -> Vec<u64> {
///     policy.waits().iter().map(|wait| wait.as_secs()).collect()
/// }
///
/// assert_eq!(waits(Exponential::from(secs(1)).attempts(4)), [1, 2, 4]);
/// assert_eq!(waits([secs(1), secs(10), secs(60)]), [1, 10, 60]);
/// assert_eq!(waits(|attempt: u32| (attempt < 5).then_some(secs(10))), [10]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `RetryPolicy`",
    label = "does not say when to try again",
    note = "use `Exponential`, `Fixed`, `Linear`, `Fibonacci` or `NoRetry`; an array or `Vec` of `Duration`; or a \
            closure from the attempt that failed to the next wait: `|attempt: u32| -> Option<Duration>`"
)]
pub trait RetryPolicy: Send + Sync + 'static {
    /// Returns the wait before the next attempt; `None`: no more attempts. `failed.attempt()` is the attempt that just failed: 1
    /// the first time. `failed.received_at()` counts as the current time.
    fn next_retry(&self, failed: &Delivery) -> Option<Duration>;

    /// Returns the waits that [`next_retry`](Self::next_retry) can return, for transports that prepare one delay queue for each.
    /// Such a transport uses the shortest prepared wait that is not shorter than the requested one: the longest wait here must
    /// not be shorter than any result.
    ///
    /// By default, calls `next_retry` for attempt 1, 2, … of a message without headers that fails for the first time now, until it
    /// returns `None`, at most 64 times. A policy that depends on more than the attempt should override it.
    /// say itself.
    fn waits(&self) -> BTreeSet<Duration> {
        /// Number of attempts to ask for.
        const PROBED: u32 = 64;
        (1..=PROBED).map_while(|attempt| self.next_retry(&failed_attempt(attempt))).collect()
    }

    /// Returns the maximum number of attempts, including the first; `None` if there is no end, or none is known.
    ///
    /// By default, calls `next_retry` for attempt 1, 2, … until it returns `None`, at most 64 times.
    fn most_attempts(&self) -> Option<u32> {
        /// Number of attempts to ask for.
        const PROBED: u32 = 64;
        (1..=PROBED).find(|&attempt| self.next_retry(&failed_attempt(attempt)).is_none())
    }
}

impl<P: RetryPolicy + ?Sized> RetryPolicy for Arc<P> {
    fn next_retry(&self, failed: &Delivery) -> Option<Duration> {
        (**self).next_retry(failed)
    }

    fn waits(&self) -> BTreeSet<Duration> {
        (**self).waits()
    }

    fn most_attempts(&self) -> Option<u32> {
        (**self).most_attempts()
    }
}

impl RetryPolicy for Box<dyn RetryPolicy> {
    fn next_retry(&self, failed: &Delivery) -> Option<Duration> {
        (**self).next_retry(failed)
    }

    fn waits(&self) -> BTreeSet<Duration> {
        (**self).waits()
    }

    fn most_attempts(&self) -> Option<u32> {
        (**self).most_attempts()
    }
}

/// Returns a delivery that stands for attempt `attempt` of a message.
fn failed_attempt(attempt: u32) -> Delivery {
    let failures = i64::from(attempt.saturating_sub(1));
    let message = Message::new("").with_header(header_names::ATTEMPT, failures);
    Delivery::new(message.with_id("a"), "", SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the waits of one message from its first failure to its last retry.
    pub(super) fn ladder(policy: &dyn RetryPolicy) -> Vec<Duration> {
        (1..100).map_while(|attempt| policy.next_retry(&failed_attempt(attempt))).collect()
    }

    #[test]
    fn a_synthetic_delivery_shows_the_attempt_asked_for() {
        for attempt in [1, 2, 64, u32::MAX] {
            assert_eq!(failed_attempt(attempt).attempt(), attempt);
        }
    }

    #[test]
    fn the_default_waits_are_found_by_asking() {
        let policy = |attempt: u32| (attempt < 4).then(|| secs(10 - u64::from(attempt)));
        assert_eq!(policy.waits(), BTreeSet::from([secs(7), secs(8), secs(9)]));
        let endless = |attempt: u32| Some(secs(attempt.into()));
        assert_eq!(endless.waits().len(), 64);
        assert_eq!((policy.most_attempts(), endless.most_attempts()), (Some(4), None));
        assert_eq!(NoRetry.most_attempts(), Some(1));
        assert_eq!(Exponential::from(secs(1)).attempts(200).most_attempts(), Some(200));
    }

    #[test]
    fn a_policy_chosen_at_run_time_answers_the_same() {
        let policy = Exponential::from(secs(1)).jitter(Jitter::Full);
        let (arc, boxed): (Arc<dyn RetryPolicy>, Box<dyn RetryPolicy>) = (Arc::new(policy), Box::new(policy));
        for same in [&arc as &dyn RetryPolicy, &boxed, &Arc::new(policy)] {
            assert_eq!(ladder(same), ladder(&policy));
            assert_eq!(same.waits(), policy.waits());
        }
    }
}
