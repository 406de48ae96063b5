//! Policies that need no arithmetic: a list of waits, a closure, none at all.

use std::collections::BTreeSet;
use std::time::Duration;

use super::RetryPolicy;
use crate::delivery::Delivery;

/// No retry: the first failure is the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoRetry;

impl RetryPolicy for NoRetry {
    fn next_retry(&self, _failed: &Delivery) -> Option<Duration> {
        None
    }
}

impl<const N: usize> RetryPolicy for [Duration; N] {
    fn next_retry(&self, failed: &Delivery) -> Option<Duration> {
        after_attempt(self, failed)
    }

    fn waits(&self) -> BTreeSet<Duration> {
        self.iter().copied().collect()
    }
}

impl RetryPolicy for &'static [Duration] {
    fn next_retry(&self, failed: &Delivery) -> Option<Duration> {
        after_attempt(self, failed)
    }

    fn waits(&self) -> BTreeSet<Duration> {
        self.iter().copied().collect()
    }
}

impl RetryPolicy for Vec<Duration> {
    fn next_retry(&self, failed: &Delivery) -> Option<Duration> {
        after_attempt(self, failed)
    }

    fn waits(&self) -> BTreeSet<Duration> {
        self.iter().copied().collect()
    }
}

/// Maps the attempt that failed, 1 the first time, to the next wait. If a transport prepares its waits, attempts after the 64th must
/// not return a wait that no earlier attempt returned.
impl<F> RetryPolicy for F
where
    F: Fn(u32) -> Option<Duration> + Send + Sync + 'static,
{
    fn next_retry(&self, failed: &Delivery) -> Option<Duration> {
        self(failed.attempt())
    }
}

fn after_attempt(schedule: &[Duration], failed: &Delivery) -> Option<Duration> {
    let failures = usize::try_from(failed.attempt()).ok()?;
    schedule.get(failures.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::super::secs;
    use super::super::tests::ladder;
    use super::*;

    #[test]
    fn a_schedule_is_followed_to_its_end() {
        static SCHEDULE: [Duration; 3] = [secs(1), secs(60), secs(10)];
        assert_eq!(ladder(&SCHEDULE), SCHEDULE);
        assert_eq!(ladder(&SCHEDULE.to_vec()), SCHEDULE);
        assert_eq!(ladder(&&SCHEDULE[..]), SCHEDULE);
        assert_eq!(ladder(&[]), []);
    }

    #[test]
    fn a_long_schedule_shows_all_its_waits() {
        let schedule: Vec<_> = (1..=100).map(secs).collect();
        assert_eq!(schedule.waits().len(), 100);
    }

    #[test]
    fn a_closure_gets_the_attempt_that_failed() {
        let policy = |attempt: u32| (attempt < 3).then(|| secs(attempt.into()));
        assert_eq!(ladder(&policy), [secs(1), secs(2)]);
    }
}
