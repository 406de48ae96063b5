//! Waits that grow by a step.

use std::collections::BTreeSet;
use std::time::Duration;

use super::limits::{self, Limits, cap_or_default, limited};
use super::{Jitter, RetryPolicy};
use crate::delivery::Delivery;

/// Waits that grow by a step: base, base + step, base + 2 · step, … up to a cap. Defaults: base 50 ms, step equal to the base, cap
/// 1 min (or the base if that is longer), 6 attempts.
///
/// ```
/// use redrive_core::{Linear, RetryPolicy, secs};
///
/// let policy = Linear::from(secs(5)).step(secs(10)).cap(secs(30)).attempts(5);
/// assert_eq!(policy.waits(), [secs(5), secs(15), secs(25), secs(30)].into());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct Linear {
    base: Duration,
    step: Option<Duration>,
    cap: Option<Duration>,
    limits: Limits,
}

impl Linear {
    /// Sets the difference between a wait and the next. Default: the base.
    pub fn step(mut self, step: Duration) -> Self {
        self.step = Some(step);
        self
    }

    /// Sets the longest wait. Default: 1 min, or the base if that is longer.
    pub fn cap(mut self, cap: Duration) -> Self {
        self.cap = Some(cap);
        self
    }

    fn base_wait(&self, attempt: u32) -> Duration {
        let grown = self.step.unwrap_or(self.base).saturating_mul(attempt.saturating_sub(1));
        self.base.saturating_add(grown).min(cap_or_default(self.cap, self.base))
    }
}

limited!(Linear);

impl Default for Linear {
    fn default() -> Self {
        Self { base: limits::DEFAULT_BASE, step: None, cap: None, limits: Limits::default() }
    }
}

impl From<Duration> for Linear {
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
    fn the_step_is_the_base_unless_said_otherwise() {
        assert_eq!(ladder(&Linear::from(secs(2)).attempts(4)), [secs(2), secs(4), secs(6)]);
        assert_eq!(ladder(&Linear::from(secs(2)).step(Duration::ZERO).attempts(3)), [secs(2); 2]);
    }
}
