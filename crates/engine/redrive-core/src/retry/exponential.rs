//! Waits that grow by a factor.

use std::collections::BTreeSet;
use std::time::Duration;

use super::jitter::from_nanos;
use super::limits::{self, Limits, cap_or_default, limited};
use super::{Jitter, RetryPolicy};
use crate::delivery::Delivery;

/// Waits that grow by a factor: base, base · factor, base · factor², … up to a cap.
///
/// ```
/// use redrive_core::{Exponential, Jitter, RetryPolicy, millis, mins, secs};
///
/// let policy = Exponential::from(secs(1)).factor(3.0).cap(secs(20)).attempts(6);
/// assert_eq!(policy.waits(), [secs(1), secs(3), secs(9), secs(20)].into());
///
/// // A day of trying, spread, with at most a quarter of an hour in between.
/// let patient = Exponential::from(millis(500))
///     .cap(mins(15))
///     .attempts(200)
///     .deadline(mins(24 * 60))
///     .jitter(Jitter::Equal);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct Exponential {
    base: Duration,
    factor: f64,
    cap: Option<Duration>,
    limits: Limits,
}

impl Exponential {
    /// Default of the first wait.
    pub const DEFAULT_BASE: Duration = limits::DEFAULT_BASE;
    /// Default factor between a wait and the next.
    pub const DEFAULT_FACTOR: f64 = 2.0;
    /// Default of the longest wait; the base, if that is longer.
    pub const DEFAULT_CAP: Duration = limits::DEFAULT_CAP;
    /// Default number of attempts, including the first.
    pub const DEFAULT_ATTEMPTS: u32 = limits::DEFAULT_ATTEMPTS;

    /// Sets the factor between a wait and the next. Default: [`DEFAULT_FACTOR`](Self::DEFAULT_FACTOR).
    ///
    /// Waits never become shorter: a factor below 1, or one that is not a number, counts as 1. With an infinite factor the second
    /// wait is the cap.
    pub fn factor(mut self, factor: f64) -> Self {
        // Also turns NaN into 1.
        self.factor = factor.max(1.0);
        self
    }

    /// Sets the longest wait. Default: [`DEFAULT_CAP`](Self::DEFAULT_CAP), or the base if that is longer.
    pub fn cap(mut self, cap: Duration) -> Self {
        self.cap = Some(cap);
        self
    }

    /// Returns the wait after this attempt, without jitter.
    #[must_use]
    pub fn base_wait(&self, attempt: u32) -> Duration {
        // Repeated multiplication with the same rounding never makes a later wait shorter than an earlier one, and has the same
        // result on every machine; `powf` promises neither. This many steps are enough for every factor that makes a difference.
        const MAX_STEPS: u32 = 4096;
        let cap = cap_or_default(self.cap, self.base);
        let (mut nanos, cap_nanos) = (self.base.as_nanos() as f64, cap.as_nanos() as f64);
        if self.base >= cap || attempt <= 1 || self.factor == 1.0 || self.base.is_zero() {
            return self.base.min(cap);
        }
        for _ in 1..attempt.min(MAX_STEPS) {
            nanos *= self.factor;
            if nanos >= cap_nanos {
                return cap;
            }
        }
        // Below the cap, hence finite. Rounded, because `f64` cannot represent every nanosecond of the longest waits.
        from_nanos(nanos as u128).clamp(self.base, cap)
    }
}

limited!(Exponential);

impl Default for Exponential {
    fn default() -> Self {
        Self { base: Self::DEFAULT_BASE, factor: Self::DEFAULT_FACTOR, cap: None, limits: Limits::default() }
    }
}

impl From<Duration> for Exponential {
    /// Uses this first wait, and the defaults for the rest.
    fn from(base: Duration) -> Self {
        Self { base, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::ladder;
    use super::super::{mins, secs};
    use super::*;

    #[test]
    fn the_default_is_fifty_milliseconds_doubled_five_times() {
        let waits = [50, 100, 200, 400, 800].map(Duration::from_millis);
        assert_eq!(ladder(&Exponential::default()), waits);
    }

    #[test]
    fn a_factor_that_is_none_counts_as_one() {
        for factor in [0.0, -3.0, 0.99, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(ladder(&Exponential::from(secs(2)).factor(factor)), [secs(2); 5], "{factor}");
        }
        let at_once = ladder(&Exponential::from(secs(2)).factor(f64::INFINITY).attempts(4));
        assert_eq!(at_once, [secs(2), mins(1), mins(1)]);
    }

    #[test]
    fn the_default_cap_does_not_shorten_a_long_base() {
        assert_eq!(ladder(&Exponential::from(mins(5)).attempts(3)), [mins(5), mins(5)]);
        assert_eq!(ladder(&Exponential::from(mins(5)).cap(secs(1)).attempts(2)), [secs(1)]);
    }
}
