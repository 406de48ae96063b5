//! The waits between attempts.

use std::time::Duration;

use redrive_core::{Exponential, RetryPolicy as _};

/// The waits between attempts at one thing: each up to twice as long as the one before, between half and all of that by chance,
/// so that processes that failed together do not come back together.
///
/// ```
/// use std::time::Duration;
/// use redrive_transport::Backoff;
///
/// let mut backoff = Backoff::up_to(Duration::from_secs(10));
/// assert!(backoff.next_wait() <= Backoff::FIRST);
/// assert!(backoff.next_wait() <= Backoff::FIRST * 2);
/// backoff.reset(); // after a success
/// assert!(backoff.next_wait() <= Backoff::FIRST);
/// ```
#[derive(Clone, Debug)]
pub struct Backoff {
    /// The waits of the policy, without the spread.
    waits: Vec<Duration>,
    failures: usize,
}

impl Backoff {
    /// The first wait, at its longest.
    pub const FIRST: Duration = Duration::from_millis(100);

    /// Waits that begin with [`FIRST`](Self::FIRST) and double up to this long.
    #[must_use]
    pub fn up_to(longest: Duration) -> Self {
        // Doubled this often, no wait is below any cap.
        const ATTEMPTS: u32 = 100;
        let policy = Exponential::from(Self::FIRST).cap(longest).attempts(ATTEMPTS);
        Self { waits: policy.waits().into_iter().collect(), failures: 0 }
    }

    /// After a failure: how long to wait before the next attempt.
    #[must_use = "the next attempt waits for so long"]
    pub fn next_wait(&mut self) -> Duration {
        let wait = self.waits.get(self.failures).or(self.waits.last()).copied().unwrap_or_default();
        self.failures = self.failures.saturating_add(1);
        wait.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// After a success: the next wait is the first again.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_are_spread() {
        let longest = Duration::from_secs(20);
        let mut backoff = Backoff::up_to(longest);
        for failures in 0..40 {
            let whole = Backoff::FIRST.saturating_mul(1 << failures.min(20)).min(longest);
            let wait = backoff.next_wait();
            assert!(wait <= whole && wait >= whole / 2, "{wait:?} after {failures}");
        }
        backoff.reset();
        assert!(backoff.next_wait() <= Backoff::FIRST);
    }
}
