//! The same wait each time.

use std::collections::BTreeSet;
use std::time::Duration;

use super::limits::{self, Limits, limited};
use super::{Jitter, RetryPolicy};
use crate::delivery::Delivery;

/// The same wait each time. Defaults: 50 ms, 6 attempts.
///
/// ```
/// use redrive_core::{Fixed, RetryPolicy, secs};
///
/// assert_eq!(Fixed::from(secs(10)).attempts(3).waits(), [secs(10)].into());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct Fixed {
    wait: Duration,
    limits: Limits,
}

impl Fixed {
    fn base_wait(&self, _attempt: u32) -> Duration {
        self.wait
    }
}

limited!(Fixed);

impl Default for Fixed {
    fn default() -> Self {
        Self { wait: limits::DEFAULT_BASE, limits: Limits::default() }
    }
}

impl From<Duration> for Fixed {
    /// Uses this wait, and the defaults for the rest.
    fn from(wait: Duration) -> Self {
        Self { wait, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::ladder;
    use super::super::{NoRetry, secs};
    use super::*;

    #[test]
    fn attempts_count_the_first_run() {
        assert_eq!(ladder(&Fixed::from(secs(3)).attempts(3)), [secs(3), secs(3)]);
        for none in [0, 1] {
            assert_eq!(ladder(&Fixed::from(secs(3)).attempts(none)), ladder(&NoRetry));
        }
    }
}
