//! Decides when to renew a subscription that brings no deliveries. Pure.
//!
//! If a quorum queue is deleted and declared again immediately, RabbitMQ 3.10 does not tell its consumers: they get no more
//! deliveries, and still count as consumers.

use std::time::Duration;

/// Maximum number of times that the period doubles; it doubles with each subscription that brings nothing.
const DOUBLINGS: u32 = 6;

/// Watches an idle subscription. It outlives subscriptions: a consumer that rightly gets nothing (because of a lower priority, or
/// another single active consumer) subscribes less and less often.
#[derive(Debug)]
pub(super) struct IdleWatch {
    /// Zero: never.
    period: Duration,
    quiet: Duration,
    /// True if messages waited at the end of the last period.
    waited: bool,
    /// Number of subscriptions in a row that brought nothing.
    in_vain: u32,
}

impl IdleWatch {
    pub(super) fn every(period: Duration) -> Self {
        Self { period, quiet: Duration::ZERO, waited: false, in_vain: 0 }
    }

    /// Records a new subscription.
    pub(super) fn begin(&mut self) {
        (self.quiet, self.waited) = (Duration::ZERO, false);
    }

    /// Records a delivery.
    pub(super) fn arrived(&mut self) {
        *self = Self::every(self.period);
    }

    /// Records time without a delivery. Returns true if it is time to count the waiting messages.
    pub(super) fn passed(&mut self, time: Duration) -> bool {
        self.quiet += time;
        !self.period.is_zero() && self.quiet >= self.period * (1 << self.in_vain.min(DOUBLINGS))
    }

    /// Records the number of waiting messages while nothing is in flight. Returns true if the consumer should subscribe again:
    /// messages waited twice in a row, and none came.
    pub(super) fn counted(&mut self, waiting: u32) -> bool {
        self.quiet = Duration::ZERO;
        let waited = std::mem::replace(&mut self.waited, waiting > 0);
        let blind = waited && waiting > 0;
        self.in_vain += u32::from(blind);
        blind
    }

    /// Records that the broker refuses to count, and has closed the channel: it must not be asked often.
    pub(super) fn refused(&mut self) {
        self.in_vain = DOUBLINGS;
    }

    /// Records that no conclusion is possible: a delivery is in flight, or the broker does not answer.
    pub(super) fn unknown(&mut self) {
        self.begin();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns after how many seconds an idle consumer subscribes again, while this many messages wait.
    fn again_after(watch: &mut IdleWatch, waiting: u32) -> Option<u32> {
        watch.begin();
        (1..10_000).find(|_| watch.passed(SECOND) && watch.counted(waiting))
    }

    #[test]
    fn it_is_subscribed_again_when_messages_waited_twice() {
        let mut watch = IdleWatch::every(30 * SECOND);
        assert_eq!(again_after(&mut watch, 1), Some(60));
        assert_eq!(again_after(&mut watch, 0), None);
    }

    #[test]
    fn a_consumer_that_is_not_served_subscribes_less_and_less_often() {
        let mut watch = IdleWatch::every(30 * SECOND);
        let again: Vec<_> = (0..9).filter_map(|_| again_after(&mut watch, 7)).collect();
        assert_eq!(again, [60, 120, 240, 480, 960, 1920, 3840, 3840, 3840]);
        watch.arrived();
        assert_eq!(again_after(&mut watch, 7), Some(60));
    }

    #[test]
    fn what_came_or_is_in_flight_is_no_silence() {
        let mut watch = IdleWatch::every(2 * SECOND);
        assert!(!watch.passed(SECOND));
        watch.arrived();
        assert!(!watch.passed(SECOND) && watch.passed(SECOND));
        assert!(!watch.counted(1));
        watch.unknown();
        assert!(!watch.passed(SECOND) && watch.passed(SECOND));
        assert!(!watch.counted(1), "the count before does not stand any more");
    }

    #[test]
    fn a_broker_that_refuses_is_asked_seldom() {
        let mut watch = IdleWatch::every(30 * SECOND);
        watch.refused();
        assert_eq!(again_after(&mut watch, 1), Some(3840));
    }

    #[test]
    fn zero_is_never() {
        assert_eq!(again_after(&mut IdleWatch::every(Duration::ZERO), 1), None);
    }
}
