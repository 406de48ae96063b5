//! The limits of all computed policies: attempts, deadline and jitter.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Chance, Jitter};
use crate::delivery::Delivery;

/// Default base of every policy.
pub(super) const DEFAULT_BASE: Duration = Duration::from_millis(50);
/// Default of the longest wait of every growing policy.
pub(super) const DEFAULT_CAP: Duration = Duration::from_secs(60);
/// Default number of attempts.
pub(super) const DEFAULT_ATTEMPTS: u32 = 6;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limits {
    pub(super) attempts: u32,
    pub(super) deadline: Option<Duration>,
    pub(super) jitter: Jitter,
}

impl Default for Limits {
    fn default() -> Self {
        Self { attempts: DEFAULT_ATTEMPTS, deadline: None, jitter: Jitter::None }
    }
}

impl Limits {
    /// Returns the next wait. `base_wait` returns the wait of each attempt before limits and jitter.
    pub(super) fn next_retry(
        &self,
        failed: &Delivery,
        base_wait: impl Fn(u32) -> Duration,
    ) -> Option<Duration> {
        let attempt = failed.attempt();
        if attempt >= self.attempts {
            return None;
        }
        let wait = match failed.extensions().get::<Chance>() {
            Some(&chance) => self.jitter.bound(base_wait(attempt), chance),
            None => self.jitter.apply(base_wait(attempt), failed.id(), attempt),
        };
        match self.deadline {
            Some(deadline) => (wait <= deadline.checked_sub(failing_for(failed))?).then_some(wait),
            None => Some(wait),
        }
    }

    /// Returns the waits to prepare. `base_wait` must never decrease with the attempt.
    pub(super) fn waits(&self, base_wait: impl Fn(u32) -> Duration) -> BTreeSet<Duration> {
        let longest = self.deadline.unwrap_or(Duration::MAX);
        let mut waits = BTreeSet::new();
        let mut probed_before = 0;
        for attempt in probed(self.attempts.saturating_sub(1)) {
            let wait = base_wait(attempt);
            // Past the deadline, only jitter can bring a wait below it, or an attempt that is not probed: its wait may be anywhere
            // before this one.
            let skipped = attempt - probed_before > 1;
            if wait <= longest || self.jitter != Jitter::None || skipped {
                waits.extend(self.jitter.steps(wait).map(|step| step.min(longest)));
            }
            probed_before = attempt;
        }
        // Without jitter every wait is exact, and none is left out.
        if self.jitter == Jitter::None { waits } else { merged(&waits) }
    }
}

/// Returns how long the message has been failing; zero at its first failure, or if clocks disagree.
fn failing_for(failed: &Delivery) -> Duration {
    let first = failed.history().first_failed_at;
    first.and_then(|first| failed.received_at().duration_since(first).ok()).unwrap_or_default()
}

/// Returns the attempts whose waits are prepared: each of the first 32, then ever fewer, and the last. A wait between two of them
/// is rounded up to the next.
fn probed(last: u32) -> impl Iterator<Item = u32> {
    const EACH: u32 = 32;
    let next = |&attempt: &u32| {
        let step = if attempt < EACH { 1 } else { attempt / 8 };
        Some(attempt.saturating_add(step))
    };
    let before_last = std::iter::successors(Some(1), next).take_while(move |&attempt| attempt < last);
    before_last.chain((last > 0).then_some(last))
}

/// Merges waits that are close together: a wait that is less than a tenth shorter than the next one is replaced by it.
fn merged(waits: &BTreeSet<Duration>) -> BTreeSet<Duration> {
    let mut kept: BTreeSet<Duration> = BTreeSet::new();
    for &wait in waits.iter().rev() {
        if kept.first().is_none_or(|&next| wait <= next - next / 10) {
            kept.insert(wait);
        }
    }
    kept
}

/// Adds the setters of every computed policy, and its `RetryPolicy` by `base_wait`.
macro_rules! limited {
    ($policy:ident) => {
        impl $policy {
            /// Sets the maximum number of attempts, including the first: `attempts(6)` means 5 retries. 0 and 1 mean no retry.
            /// Default: 6.
            pub fn attempts(mut self, attempts: u32) -> Self {
                self.limits.attempts = attempts;
                self
            }

            /// Allows no retry whose wait would end later than this after the first failure. Default: no deadline. The time that the
            /// handler takes for the current failure is not included. If the message does not tell when it first failed, it counts as
            /// failing for the first time; `attempts` still ends it.
            pub fn deadline(mut self, deadline: Duration) -> Self {
                self.limits.deadline = Some(deadline);
                self
            }

            /// Sets how much of each wait is random. Default: [`Jitter::None`].
            pub fn jitter(mut self, jitter: Jitter) -> Self {
                self.limits.jitter = jitter;
                self
            }
        }

        impl RetryPolicy for $policy {
            fn next_retry(&self, failed: &Delivery) -> Option<Duration> {
                self.limits.next_retry(failed, |attempt| self.base_wait(attempt))
            }

            fn waits(&self) -> BTreeSet<Duration> {
                self.limits.waits(|attempt| self.base_wait(attempt))
            }

            fn most_attempts(&self) -> Option<u32> {
                Some(self.limits.attempts.max(1))
            }
        }
    };
}
pub(super) use limited;

/// A default cap must not shorten a base that the user chose.
pub(super) fn cap_or_default(cap: Option<Duration>, base: Duration) -> Duration {
    cap.unwrap_or(DEFAULT_CAP.max(base))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probing_is_bounded_and_ends_with_the_last() {
        assert_eq!(probed(0).count(), 0);
        assert_eq!(probed(3).collect::<Vec<_>>(), [1, 2, 3]);
        let all: Vec<_> = probed(u32::MAX - 1).collect();
        assert_eq!(all.last(), Some(&(u32::MAX - 1)));
        assert!(all.len() < 256, "{}", all.len());
    }

    #[test]
    fn a_deadline_between_two_probed_attempts_hides_no_wait() {
        let limits = Limits { attempts: 100, deadline: Some(Duration::from_secs(79)), ..Limits::default() };
        let waits = limits.waits(|attempt| Duration::from_secs(u64::from(attempt)));
        assert!(probed(99).all(|attempt| attempt != 79), "79 is probed");
        assert_eq!(waits.last(), Some(&Duration::from_secs(79)));
    }

    #[test]
    fn merging_keeps_the_longest_and_drops_its_near_equals() {
        let waits = [80, 91, 99, 100].map(Duration::from_millis);
        assert_eq!(merged(&waits.into()), [waits[0], waits[3]].into());
    }
}
