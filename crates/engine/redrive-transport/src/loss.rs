//! Signals that a delivery is no longer in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Signals that a delivery can no longer be settled here, for example because its lock has expired. It implements
/// [`Receiver::lost`](redrive_core::transport::Receiver::lost). It is sent once, and seen by tasks that wait and by later calls.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use std::sync::Arc;
/// use redrive_transport::LossSignal;
///
/// let loss: Arc<LossSignal> = Arc::default(); // one for each delivery, in its receipt
/// let lost = Arc::clone(&loss).received(); // for `Receiver::lost`
/// loss.send(); // its lock has expired
/// lost.await;
/// assert!(loss.is_sent()); // for `Arrival::is_lost`, and for `settle`
/// # }
/// ```
#[derive(Debug, Default)]
pub struct LossSignal {
    sent: AtomicBool,
    waiting: Notify,
}

impl LossSignal {
    /// Marks the delivery as lost, and wakes all waiting tasks.
    pub fn send(&self) {
        self.sent.store(true, Ordering::Release);
        self.waiting.notify_waiters();
    }

    /// Returns true if the delivery is lost.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.sent.load(Ordering::Acquire)
    }

    /// Waits until the delivery is lost. Cancel safe.
    pub async fn received(self: Arc<Self>) {
        let waiting = self.waiting.notified();
        tokio::pin!(waiting);
        // Register before the check: otherwise a signal in between would be missed.
        waiting.as_mut().enable();
        if !self.is_sent() {
            waiting.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn waiting_tasks_and_later_calls_see_the_loss() {
        let lost = Arc::new(LossSignal::default());
        let mut waiting = Box::pin(Arc::clone(&lost).received());
        assert!(waiting.as_mut().now_or_never().is_none());
        lost.send();
        assert!(waiting.as_mut().now_or_never().is_some());
        assert!(Arc::clone(&lost).received().now_or_never().is_some());
    }
}
