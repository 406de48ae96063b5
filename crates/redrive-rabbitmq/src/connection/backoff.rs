//! Waits between attempts.

use std::time::Duration;

/// Twice as long each time, up to ten seconds, and never the same for two processes.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    attempts: u32,
}

impl Backoff {
    pub(crate) fn next(&mut self) -> Duration {
        const SHORTEST_MILLIS: u64 = 100;
        const LONGEST_MILLIS: u64 = 10_000;
        let full = (SHORTEST_MILLIS << self.attempts.min(10)).min(LONGEST_MILLIS);
        self.attempts = self.attempts.saturating_add(1);
        Duration::from_millis(fastrand::u64(full / 2..=full))
    }

    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
    }
}
