//! Splits a wait into the hops for which a broker can hold a message. Pure.

use std::time::Duration;

/// A wait ends late by at most this part of it, if the hops can be put together for that.
const LATE_BY: u32 = 10;
/// Upper bound of the hops of a wait, unless the next longer hop takes more than twice as long: each hop is a copy and a delivery.
const MOST_HOPS: usize = 8;

/// The beginning of a wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Split {
    /// The first hop; the whole wait, if it takes only one.
    pub(super) first: Duration,
    /// The whole wait, which may be longer than the one that was asked for: then its last hop fits exactly.
    pub(super) whole: Duration,
}

/// Returns by how much a wait may end late.
pub(super) fn most_late(wait: Duration) -> Duration {
    wait / LATE_BY
}

/// Splits a wait, to end later by `most_late` at most where that is possible. `hops`: how long a message can be held at once, shortest
/// first; each shorter wait is held for the next longer of them.
pub(super) fn split(wait: Duration, most_late: Duration, hops: &[Duration]) -> Split {
    let at_once = Split { first: wait, whole: wait };
    let longer = |rest: Duration| hops.get(hops.partition_point(|&hop| hop < rest)).copied();
    let shorter = |rest: Duration| hops[..hops.partition_point(|&hop| hop < rest)].last().copied();
    let (mut first, mut before, mut rest) = (None, Duration::ZERO, wait);
    for _ in 0..MOST_HOPS {
        let last = match (shorter(rest), longer(rest)) {
            (Some(_), Some(enough)) if enough - rest <= most_late => enough,
            (Some(part), _) => {
                first.get_or_insert(part);
                before += part;
                rest -= part;
                continue;
            }
            (None, _) => rest,
        };
        let held = before.saturating_add(longer(last).unwrap_or(last));
        return match first {
            Some(first) if longer(wait).is_none_or(|enough| enough > held) => {
                Split { first, whole: before.saturating_add(last) }
            }
            _ => at_once,
        };
    }
    match (shorter(wait), longer(wait)) {
        (Some(part), enough) if enough.is_none_or(|enough| enough > wait.saturating_mul(2)) => {
            Split { first: part, whole: wait }
        }
        _ => at_once,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn split_into(wait: u64, hops: &[u64]) -> (u64, u64) {
        let hops: Vec<_> = hops.iter().copied().map(secs).collect();
        let Split { first, whole } = split(secs(wait), secs(wait) / LATE_BY, &hops);
        (first.as_secs(), whole.as_secs())
    }

    #[test]
    fn a_wait_is_put_together_from_hops() {
        let hops = [1, 2, 5, 10, 30, 60];
        for (wait, expected) in [
            (0, (0, 0)),
            (10, (10, 10)),
            // Late by a tenth at most.
            (28, (28, 28)),
            (37, (30, 40)),
            (54, (30, 55)),
            (90, (60, 90)),
            // More than eight hops.
            (700, (60, 700)),
        ] {
            assert_eq!(split_into(wait, &hops), expected, "{wait}");
        }
    }

    #[test]
    fn few_hops_are_made_the_best_of() {
        assert_eq!(split_into(50, &[]), (50, 50));
        assert_eq!(split_into(50, &[60]), (50, 50), "none is shorter");
        assert_eq!(split_into(90, &[60]), (60, 90), "the rest is as long as it is");
        assert_eq!(split_into(70, &[50, 100]), (70, 70), "two hops would take as long as one");
        assert_eq!(split_into(1800, &[1, 3600]), (1800, 1800), "rather late than 1800 hops");
        assert_eq!(split_into(1200, &[1, 3600]), (1, 1200), "but not later than twice as long");
    }

    proptest! {
        #[test]
        fn a_split_is_never_early_and_begins_with_a_hop(
            wait in any::<u64>(), hops in proptest::collection::btree_set(1..u64::MAX, 0..30),
        ) {
            let (wait, hops) = (Duration::from_nanos(wait), hops.into_iter().map(Duration::from_nanos).collect::<Vec<_>>());
            let Split { first, whole } = split(wait, most_late(wait), &hops);
            prop_assert!(whole >= wait && whole <= wait.saturating_add(wait / LATE_BY));
            if first == wait {
                prop_assert_eq!(whole, wait);
            } else {
                prop_assert!(hops.contains(&first) && first < wait);
            }
        }
    }
}
