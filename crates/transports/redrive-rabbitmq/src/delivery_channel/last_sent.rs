//! Knows whether the broker may still be processing settlements. Pure.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// RabbitMQ passes about 32 settlements of one channel on to a quorum queue at once, and drops those that still wait when the
/// channel closes. After more settlements than this within ten seconds, a channel stays open a while longer.
const BURST: usize = 16;
const BURST_WITHIN: Duration = Duration::from_secs(10);

/// When the last settlements were sent that the broker may not have processed.
#[derive(Debug, Default)]
pub(super) struct LastSent(VecDeque<Instant>);

impl LastSent {
    pub(super) fn note(&mut self, now: Instant) {
        if self.0.len() > BURST {
            self.0.pop_front();
        }
        self.0.push_back(now);
    }

    /// Returns true if more were sent than RabbitMQ passes on at once.
    pub(super) fn is_burst(&self, now: Instant) -> bool {
        self.0.len() > BURST
            && self.0.front().is_some_and(|first| now.saturating_duration_since(*first) < BURST_WITHIN)
    }

    /// The broker had time to process what was sent until then. Work in small steps waits once for many of them.
    pub(super) fn forget(&mut self, until: Instant) {
        self.0.retain(|sent| *sent > until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_that_was_waited_for_is_not_waited_for_again() {
        let (mut sent, now) = (LastSent::default(), Instant::now());
        let at = |millis| now + Duration::from_millis(millis);
        (0..16).for_each(|millis| sent.note(at(millis)));
        assert!(!sent.is_burst(at(16)));
        sent.note(at(16));
        assert!(sent.is_burst(at(16)) && !sent.is_burst(at(10_000)));
        sent.note(at(20));
        // What was sent while it waited is still new.
        sent.forget(at(16));
        (21..36).for_each(|millis| sent.note(at(millis)));
        assert!(!sent.is_burst(at(36)));
        sent.note(at(36));
        assert!(sent.is_burst(at(36)));
    }
}
