//! When a failed delivery is tried again.
//! (Replaced as a whole by the policies' own work.)

use std::time::Duration;

use crate::delivery::Delivery;

/// When a failed delivery is tried again. A pure function: the attempts of one message run in different
/// processes, so there is no state to remember between them.
pub trait RetryPolicy: Send + Sync + 'static {
    /// The wait before the next attempt; `None`: no more attempts. `failed.attempt()` is the attempt that just
    /// failed: 1 the first time.
    fn next_retry(&self, failed: &Delivery) -> Option<Duration>;
}
