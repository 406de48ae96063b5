//! How many messages may be sent now.

use std::collections::VecDeque;
use std::time::Duration;

/// By how much the rate grows with each step of the ramp.
pub(super) const FASTER: u32 = 10;
/// The same after a failure.
const SLOWLY_FASTER: u32 = 2;
/// How many failures in a row at one message a second end the run.
const MAX_FAILURES_AT_ONE: u32 = 3;
const SECOND: Duration = Duration::from_secs(1);

/// The rate, and what was sent in the last second.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// The maximum rate.
    limit: u32,
    /// The rate now.
    rate: u32,
    faster: u32,
    step: Duration,
    /// Since when the rate is what it is; `None` before the first step.
    since: Option<Duration>,
    /// When the rate was halved last.
    halved: Option<Duration>,
    failures_at_one: u32,
    /// What was sent: when it was done, and how many.
    sent: VecDeque<(Duration, u32)>,
}

impl Pace {
    pub(super) fn new(limit: u32, rate: u32, step: Duration) -> Self {
        let limit = limit.max(1);
        Self {
            limit,
            rate: rate.clamp(1, limit),
            faster: FASTER,
            step,
            since: None,
            halved: None,
            failures_at_one: 0,
            sent: VecDeque::new(),
        }
    }

    pub(super) fn rate(&self) -> u32 {
        self.rate
    }

    /// Begins the ramp, or this rate of it, again: time in which nothing was sent proves nothing.
    pub(super) fn begin_step(&mut self, now: Duration) {
        self.since = Some(now);
    }

    /// Begins the ramp at one message a second.
    pub(super) fn begin_ramp(&mut self, now: Duration) {
        self.rate = 1;
        self.since = Some(now);
    }

    /// Raises the rate if it was kept long enough without a failure.
    pub(super) fn grow(&mut self, now: Duration) {
        let since = *self.since.get_or_insert(now);
        if now.saturating_sub(since) >= self.step {
            self.rate = self.rate.saturating_mul(self.faster).min(self.limit);
            self.since = Some(now);
            self.failures_at_one = 0;
        }
    }

    /// Returns how many messages may be sent now.
    pub(super) fn room(&mut self, now: Duration) -> u32 {
        while self.sent.front().is_some_and(|(at, _)| *at + SECOND <= now) {
            self.sent.pop_front();
        }
        self.rate.saturating_sub(self.sent.iter().map(|(_, sent)| sent).sum())
    }

    /// Returns when the next message may be sent, if none may be sent now.
    pub(super) fn next_room(&self, now: Duration) -> Duration {
        let mut sent: u32 = self.sent.iter().map(|(_, sent)| sent).sum();
        for (at, count) in &self.sent {
            sent -= count;
            if sent < self.rate {
                return *at + SECOND;
            }
        }
        now
    }

    /// Counts messages that were sent at some time before now: as if all had been sent now, so that no second has more than it may.
    pub(super) fn sent(&mut self, count: u32, now: Duration) {
        if count > 0 {
            self.sent.push_back((now, count));
        }
    }

    /// Halves the rate; several failures within a second are one. Returns false if the slowest rate fails too.
    #[must_use]
    pub(super) fn failed(&mut self, now: Duration) -> bool {
        if self.halved.is_some_and(|at| now < at + SECOND) {
            return true;
        }
        self.failures_at_one += u32::from(self.rate == 1);
        self.halved = Some(now);
        self.since = Some(now);
        self.faster = SLOWLY_FASTER;
        self.rate = (self.rate / 2).max(1);
        self.failures_at_one < MAX_FAILURES_AT_ONE
    }

    pub(super) fn set_limit(&mut self, limit: u32) {
        self.limit = limit.max(1);
        self.rate = self.rate.min(self.limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_rate_grows_tenfold_up_to_the_limit_and_after_a_failure_twofold() {
        let mut pace = Pace::new(250, 1, at(10_000));
        pace.begin_ramp(at(0));
        let mut rates = Vec::new();
        for second in [9, 10, 19, 20, 30, 40] {
            pace.grow(at(second * 1000));
            rates.push(pace.rate());
        }
        assert_eq!(rates, [1, 10, 10, 100, 250, 250]);
        assert!(pace.failed(at(45_000)));
        assert_eq!(pace.rate(), 125);
        assert!(pace.failed(at(45_999)), "the same second");
        assert_eq!(pace.rate(), 125);
        assert!(pace.failed(at(46_000)));
        pace.grow(at(55_999));
        assert_eq!(pace.rate(), 62);
        pace.grow(at(56_000));
        assert_eq!(pace.rate(), 124);
    }

    #[test]
    fn failures_at_the_slowest_rate_end_it_unless_a_step_goes_well_between_them() {
        let mut pace = Pace::new(1, 1, at(10_000));
        assert!(pace.failed(at(0)) && pace.failed(at(1000)), "two are not enough");
        pace.grow(at(11_000));
        assert!(pace.failed(at(12_000)) && pace.failed(at(13_000)));
        assert!(!pace.failed(at(14_000)));
    }

    #[test]
    fn room_comes_back_a_second_after_the_end_of_a_batch() {
        let mut pace = Pace::new(10, 10, at(10_000));
        assert_eq!(pace.room(at(0)), 10);
        pace.sent(4, at(500));
        assert_eq!(pace.room(at(500)), 6);
        pace.sent(6, at(700));
        assert_eq!((pace.room(at(1499)), pace.next_room(at(1499))), (0, at(1500)));
        assert_eq!(pace.room(at(1500)), 4);
        pace.set_limit(5);
        assert_eq!((pace.room(at(1500)), pace.next_room(at(1500))), (0, at(1700)));
        assert_eq!(pace.room(at(1700)), 5);
    }
}
