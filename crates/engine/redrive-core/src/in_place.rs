//! Retries by the broker itself, without a copy.

use std::time::Duration;

/// Ability of a broker to hold a failed message back by itself and hand it out again, without a copy
/// ([`Settlement::RetryInPlace`](crate::transport::Settlement::RetryInPlace)); part of [`Delays`](crate::transport::Delays).
///
/// Nothing can be written on a message that is not copied. If a broker retries in place, therefore,
///
/// - the attempt is the sum of the broker's count and the count on the message. The broker's count includes deaths of the process
///   and lost connections, so these cost an attempt;
/// - [`Delivery::broker_delivery_count`](crate::Delivery::broker_delivery_count) counts from the last copy on, including
///   failures;
/// - reason, text, times and history of a failure are not kept until the message is copied, and
///   [`FailureHistory::first_failed_at`](crate::FailureHistory::first_failed_at) is not known: a policy's deadline counts from
///   the last copy on.
///
/// A retry that must wait longer than the broker would hold the message uses a copy, so that no retry comes early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InPlace {
    /// The broker holds the message back for the requested time, at most for `longest`.
    Any {
        /// Maximum time for which a message is held back.
        longest: Duration,
    },
    /// The broker holds the message back for `shortest` times the number of failures that it counted, at most for `longest`,
    /// whatever time is requested.
    Linear {
        /// Time for which a message is held back after its first failure.
        shortest: Duration,
        /// Maximum time for which it is held back.
        longest: Duration,
    },
}

impl InPlace {
    /// Returns how long the broker holds a message for which `wait` is asked, after it counted this many failures.
    pub(crate) fn held_for(&self, wait: Duration, failures: u32) -> Duration {
        match self {
            Self::Any { .. } => wait,
            Self::Linear { .. } => self.longest_after(failures),
        }
    }

    /// Returns the longest wait that the broker makes after it counted this many failures, including the last one.
    #[must_use]
    pub fn longest_after(&self, failures: u32) -> Duration {
        match *self {
            Self::Any { longest } => longest,
            Self::Linear { shortest, longest } => shortest.saturating_mul(failures.max(1)).min(longest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_by_the_shortest_up_to_the_longest() {
        let in_place =
            InPlace::Linear { shortest: Duration::from_millis(300), longest: Duration::from_secs(1) };
        let waits = [0, 1, 2, 3, 4, u32::MAX].map(|failures| in_place.longest_after(failures).as_millis());
        assert_eq!(waits, [300, 300, 600, 900, 1000, 1000]);
        let any = InPlace::Any { longest: Duration::from_secs(1) };
        assert_eq!(any.longest_after(1), Duration::from_secs(1));
    }
}
