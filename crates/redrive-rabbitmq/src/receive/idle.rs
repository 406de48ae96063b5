//! When a subscription that brings nothing is to be made again. Pure.
//!
//! RabbitMQ 3.10 does not tell the consumers of a quorum queue that it was deleted when it is declared again immediately: they
//! get no more deliveries, and still count as consumers.

use std::time::Duration;

/// Each further subscription that brings nothing doubles the time to the next, at most this often.
const DOUBLINGS: u32 = 6;

/// Watches a quiet subscription. It outlives subscriptions: a consumer that is not served for good reasons (a lower priority,
/// another single active consumer) subscribes less and less often.
#[derive(Debug)]
pub(super) struct IdleWatch {
    /// Zero: never.
    period: Duration,
    quiet: Duration,
    /// Messages waited at the end of the last period.
    waited: bool,
    /// How many subscriptions in a row brought nothing.
    in_vain: u32,
}

impl IdleWatch {
    pub(super) fn every(period: Duration) -> Self {
        Self { period, quiet: Duration::ZERO, waited: false, in_vain: 0 }
    }

    /// A subscription begins.
    pub(super) fn begin(&mut self) {
        (self.quiet, self.waited) = (Duration::ZERO, false);
    }

    /// A delivery came.
    pub(super) fn arrived(&mut self) {
        *self = Self::every(self.period);
    }

    /// No delivery came for this much longer. True when it is time to count the waiting messages.
    pub(super) fn passed(&mut self, time: Duration) -> bool {
        self.quiet += time;
        !self.period.is_zero() && self.quiet >= self.period * (1 << self.in_vain.min(DOUBLINGS))
    }

    /// This many messages wait, and nothing is in flight. True when the queue is to be subscribed to again: messages waited twice in a
    /// row, and none came.
    pub(super) fn counted(&mut self, waiting: u32) -> bool {
        self.quiet = Duration::ZERO;
        let waited = std::mem::replace(&mut self.waited, waiting > 0);
        let blind = waited && waiting > 0;
        self.in_vain += u32::from(blind);
        blind
    }

    /// The broker refuses to count, and has closed the channel: it must not be asked often.
    pub(super) fn refused(&mut self) {
        self.in_vain = DOUBLINGS;
    }

    /// Nothing can be concluded: a delivery is in flight, or the broker does not answer.
    pub(super) fn unknown(&mut self) {
        self.begin();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// After how many seconds a consumer that nothing comes to subscribes again, as long as this many wait.
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
    fn what_came_or_is_in_hand_is_no_silence() {
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
