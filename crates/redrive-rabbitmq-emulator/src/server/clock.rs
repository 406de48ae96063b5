use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::broker::Timestamp;

/// The time that is passed to the broker: the machine's clock, or a clock that moves only when advanced. Either can be
/// advanced.
#[derive(Debug)]
pub(crate) struct Clock {
    stands_at: Option<i64>,
    put_forward: AtomicI64,
}

impl Clock {
    pub(crate) fn new(is_virtual: bool) -> Self {
        Self { stands_at: is_virtual.then(machine_millis), put_forward: AtomicI64::new(0) }
    }

    pub(crate) fn now(&self) -> Timestamp {
        let base = self.stands_at.unwrap_or_else(machine_millis);
        Timestamp::from_millis(base.saturating_add(self.put_forward.load(Ordering::SeqCst)))
    }

    pub(crate) fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        // Repeated advances by centuries saturate at the maximum.
        let _ = self
            .put_forward
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| Some(now.saturating_add(by)));
    }

    /// Returns true if time passes by itself.
    pub(crate) fn runs(&self) -> bool {
        self.stands_at.is_none()
    }
}

fn machine_millis() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_clock_moves_only_when_it_is_told() {
        let clock = Clock::new(true);
        let start = clock.now();
        clock.advance(Duration::from_secs(30));
        assert_eq!(clock.now().since(start), Duration::from_secs(30));
        assert_eq!(clock.now(), clock.now());
        clock.advance(Duration::MAX);
        clock.advance(Duration::MAX);
        assert!(clock.now() > start);
    }
}
