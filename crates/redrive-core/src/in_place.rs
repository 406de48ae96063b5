//! Retries that the broker makes itself, without a copy.

use std::time::Duration;

/// What a broker can do that holds a failed message back itself and hands it out again, without a copy
/// ([`Settlement::RetryInPlace`](crate::Settlement::RetryInPlace)); part of [`Delays`](crate::Delays).
///
/// Nothing can be written on a message that is not copied. Where a broker retries in place therefore
///
/// - the attempt is read from the broker's count, to which what is written on the message is added: it counts the process's
///   death and a lost connection too, so that these cost an attempt;
/// - [`Delivery::broker_delivery_count`](crate::Delivery::broker_delivery_count) counts from the last copy on, failures included;
/// - reason, text, times and history of a failure are not kept until the message is copied, and
///   [`FailureHistory::first_failed_at`](crate::FailureHistory::first_failed_at) is not known: a policy's deadline counts from the last copy on.
///
/// A retry that must wait longer than the broker would hold the message goes by a copy, so that none comes early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InPlace {
    /// Held back for as long as is asked, for `longest` at most.
    Any {
        /// How long a message is held back at most.
        longest: Duration,
    },
    /// Held back for `shortest` times the number of failures that the broker counted, for `longest` at most, whatever is
    /// asked.
    Linear {
        /// How long a message is held back after its first failure.
        shortest: Duration,
        /// How long it is held back at most.
        longest: Duration,
    },
}

impl InPlace {
    /// The longest wait that the broker makes after it counted this many failures, the last one included.
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
