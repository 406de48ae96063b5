//! Waits that grow like the Fibonacci numbers.

use std::collections::BTreeSet;
use std::time::Duration;

use super::limits::{self, Limits, cap_or_default, limited};
use super::{Jitter, RetryPolicy};
use crate::delivery::Delivery;

/// Waits that grow like the Fibonacci numbers, by a factor of about 1.6: base · 1, 1, 2, 3, 5, 8, … up to a cap.
/// Defaults: base 50 ms, cap 1 min (or the base if that is longer), 6 attempts.
///
/// ```
/// use redrive_core::{Fibonacci, RetryPolicy, secs};
///
/// let policy = Fibonacci::from(secs(1)).attempts(6);
/// assert_eq!(policy.waits(), [secs(1), secs(2), secs(3), secs(5)].into());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct Fibonacci {
    base: Duration,
    cap: Option<Duration>,
    limits: Limits,
}

impl Fibonacci {
    /// Sets the longest wait. Default: 1 min, or the base if that is longer.
    pub fn cap(mut self, cap: Duration) -> Self {
        self.cap = Some(cap);
        self
    }

    fn base_wait(&self, attempt: u32) -> Duration {
        let cap = cap_or_default(self.cap, self.base);
        let (mut wait, mut next) = (self.base, self.base);
        // Any wait except zero exceeds the cap long before the 200th number.
        for _ in 1..attempt.min(200) {
            (wait, next) = (next, wait.saturating_add(next));
            if wait >= cap {
                break;
            }
        }
        wait.min(cap)
    }
}

limited!(Fibonacci);

impl Default for Fibonacci {
    fn default() -> Self {
        Self { base: limits::DEFAULT_BASE, cap: None, limits: Limits::default() }
    }
}

impl From<Duration> for Fibonacci {
    /// Uses this first wait, and the defaults for the rest.
    fn from(base: Duration) -> Self {
        Self { base, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::secs;
    use super::super::tests::ladder;
    use super::*;

    #[test]
    fn each_wait_is_the_sum_of_the_two_before() {
        let policy = Fibonacci::from(secs(1)).cap(secs(20)).attempts(10);
        assert_eq!(ladder(&policy), [1, 1, 2, 3, 5, 8, 13, 20, 20].map(secs));
    }

    #[test]
    fn the_shortest_base_still_reaches_the_longest_cap() {
        let policy = Fibonacci::from(Duration::from_nanos(1)).cap(Duration::MAX);
        assert_eq!(policy.base_wait(u32::MAX), Duration::MAX);
    }
}
