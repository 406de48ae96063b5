//! Spreads retries, so that messages that failed together do not come back together.

use std::time::Duration;

use crate::text::fnv1a;

/// How much of a wait is random. The random part is a hash of the message's id and the attempt: it differs between messages, and is
/// the same for one message in every process and on every run.
///
/// Messages without an id have the same random part at the same attempt: give messages ids.
///
/// ```
/// use redrive_core::{Exponential, Jitter, secs};
///
/// let policy = Exponential::from(secs(1)).jitter(Jitter::Equal);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Jitter {
    /// The exact wait.
    #[default]
    None,
    /// Between zero and the whole wait: spreads best.
    Full,
    /// Between half of the wait and the whole wait: never comes back at once.
    Equal,
}

impl Jitter {
    /// Returns the wait for this message at this attempt: never longer than `wait`.
    pub(super) fn apply(self, wait: Duration, id: &str, attempt: u32) -> Duration {
        match self {
            Self::None => wait,
            Self::Full => part(wait, hash(id, attempt)),
            Self::Equal => {
                let half = wait / 2;
                half + part(wait - half, hash(id, attempt))
            }
        }
    }

    /// Returns the shortest or the longest wait that can result.
    pub(super) fn bound(self, wait: Duration, chance: Chance) -> Duration {
        match (self, chance) {
            (Self::Full, Chance::Least) => Duration::ZERO,
            (Self::Equal, Chance::Least) => wait / 2,
            (Self::None, _) | (_, Chance::Most) => wait,
        }
    }

    /// Returns the steps that stand for all waits up to `wait`, the longest last. Each result of [`apply`](Self::apply) is at most a
    /// quarter of `wait` shorter than the next step.
    pub(super) fn steps(self, wait: Duration) -> impl Iterator<Item = Duration> {
        let quarters = match self {
            Self::None => 4..=4,
            Self::Full => 1..=4,
            Self::Equal => 2..=4,
        };
        quarters
            .map(move |quarter| if quarter == 4 { wait } else { whole_millis(wait / 4 * quarter).min(wait) })
    }
}

/// One end of the random part. A delivery with this extension gets the wait at that end instead of a random one, for a plan that
/// shows both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chance {
    Least,
    Most,
}

/// Returns the part of `wait` that `chance` stands for: nothing at 0, almost everything at the maximum.
fn part(wait: Duration, chance: u64) -> Duration {
    // At most 94 bits of nanoseconds and 32 bits of chance: fits.
    let nanos = (wait.as_nanos() * u128::from(chance >> 32)) >> 32;
    from_nanos(nanos)
}

/// Rounds up to milliseconds: brokers count in milliseconds.
fn whole_millis(wait: Duration) -> Duration {
    from_nanos(wait.as_nanos().div_ceil(1_000_000) * 1_000_000)
}

pub(super) fn from_nanos(nanos: u128) -> Duration {
    const SECOND: u128 = 1_000_000_000;
    match u64::try_from(nanos / SECOND) {
        Ok(seconds) => Duration::new(seconds, (nanos % SECOND) as u32),
        Err(_) => Duration::MAX,
    }
}

/// Hashes id and attempt. FNV alone leaves its last input in the low bits, so neighbouring ids would get neighbouring values; the
/// finalizer of splitmix64 spreads it over all bits.
fn hash(id: &str, attempt: u32) -> u64 {
    let mut x = fnv1a(id.bytes()).wrapping_add(u64::from(attempt).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Chi-squared over 16 buckets, 15 degrees of freedom: random values exceed 37.7 once in a thousand cases. The ids are fixed, so
    /// the test always has the same result.
    fn chi_squared(ids: impl Iterator<Item = (String, u32)>) -> f64 {
        let mut buckets = [0_u32; 16];
        for (id, attempt) in ids {
            let second = Jitter::Full.apply(Duration::from_secs(16), &id, attempt).as_secs();
            buckets[second as usize] += 1;
        }
        let expected = f64::from(buckets.iter().sum::<u32>()) / 16.0;
        buckets.iter().map(|&seen| (f64::from(seen) - expected).powi(2) / expected).sum()
    }

    #[test]
    fn chances_are_spread_over_ids_and_over_attempts() {
        assert!(chi_squared((0..16_000).map(|n| (n.to_string(), 1))) < 37.7);
        assert!(chi_squared((0..16_000).map(|n| (format!("order-{n:08}"), 3))) < 37.7);
        assert!(chi_squared((0..16_000).map(|n| ("order-1".to_owned(), n))) < 37.7);
    }

    #[test]
    fn the_chance_is_the_same_in_every_version() {
        assert_eq!(hash("order-1", 1), 0x4b1f_a4bb_6f60_e07b);
    }

    #[test]
    fn no_wait_stays_no_wait() {
        for jitter in [Jitter::None, Jitter::Full, Jitter::Equal] {
            assert_eq!(jitter.apply(Duration::ZERO, "a", 1), Duration::ZERO);
        }
    }

    proptest! {
        #[test]
        fn a_jittered_wait_stays_within_its_bounds(
            seconds in any::<u64>(), nanos in 0..1_000_000_000_u32, id in ".*", attempt in any::<u32>(),
        ) {
            let wait = Duration::new(seconds, nanos);
            prop_assert_eq!(Jitter::None.apply(wait, &id, attempt), wait);
            prop_assert!(Jitter::Full.apply(wait, &id, attempt) <= wait);
            let equal = Jitter::Equal.apply(wait, &id, attempt);
            prop_assert!(wait / 2 <= equal && equal <= wait);
            for jitter in [Jitter::None, Jitter::Full, Jitter::Equal] {
                let jittered = jitter.apply(wait, &id, attempt);
                prop_assert!(jitter.bound(wait, Chance::Least) <= jittered);
                prop_assert!(jittered <= jitter.bound(wait, Chance::Most));
            }
        }

        #[test]
        fn the_steps_end_with_the_whole_wait(seconds in any::<u64>(), nanos in 0..1_000_000_000_u32) {
            let wait = Duration::new(seconds, nanos);
            for jitter in [Jitter::None, Jitter::Full, Jitter::Equal] {
                prop_assert_eq!(jitter.steps(wait).max(), Some(wait));
            }
        }
    }
}
