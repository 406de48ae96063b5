//! Computes the waits between tries to reconnect.

use std::time::Duration;

use redrive_core::{Exponential, RetryPolicy as _};

/// Computes the waits between tries to reconnect. The base wait doubles with each failure; the actual wait is a random duration between
/// half of it and all of it, so that processes that failed together do not retry together.
///
/// ```
/// use std::time::Duration;
/// use redrive_transport::ReconnectBackoff;
///
/// let mut backoff = ReconnectBackoff::up_to(Duration::from_secs(10));
/// assert!(backoff.next_wait() <= ReconnectBackoff::FIRST);
/// assert!(backoff.next_wait() <= ReconnectBackoff::FIRST * 2);
/// backoff.reset(); // after a success
/// assert!(backoff.next_wait() <= ReconnectBackoff::FIRST);
/// ```
#[derive(Clone, Debug)]
pub struct ReconnectBackoff {
    /// The base waits.
    waits: Vec<Duration>,
    failures: usize,
}

impl ReconnectBackoff {
    /// The maximum of the first wait.
    pub const FIRST: Duration = Duration::from_millis(100);

    /// Creates a backoff that begins with [`FIRST`](Self::FIRST) and doubles up to `longest`.
    #[must_use]
    pub fn up_to(longest: Duration) -> Self {
        // After this many doublings, every cap is reached.
        const ATTEMPTS: u32 = 100;
        let policy = Exponential::from(Self::FIRST).cap(longest).attempts(ATTEMPTS);
        Self { waits: policy.waits().into_iter().collect(), failures: 0 }
    }

    /// Returns the wait before the next attempt. Call it after each failure.
    #[must_use = "wait this long before the next attempt"]
    pub fn next_wait(&mut self) -> Duration {
        let wait = self.waits.get(self.failures).or(self.waits.last()).copied().unwrap_or_default();
        self.failures = self.failures.saturating_add(1);
        wait.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// Starts again with the first wait. Call it after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_are_random() {
        let longest = Duration::from_secs(20);
        let mut backoff = ReconnectBackoff::up_to(longest);
        for failures in 0..40 {
            let whole = ReconnectBackoff::FIRST.saturating_mul(1 << failures.min(20)).min(longest);
            let wait = backoff.next_wait();
            assert!(wait <= whole && wait >= whole / 2, "{wait:?} after {failures}");
        }
        backoff.reset();
        assert!(backoff.next_wait() <= ReconnectBackoff::FIRST);
    }
}
