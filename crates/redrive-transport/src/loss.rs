//! The signal that a delivery is no longer in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Whether a delivery is no longer ours to settle, for example because its lock ran out. It is sent once; who asks later and who
/// waits both learn it. What [`Receiver::lost`](redrive_core::Receiver::lost) answers with.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use std::sync::Arc;
/// use redrive_transport::LossSignal;
///
/// let loss: Arc<LossSignal> = Arc::default(); // one for each delivery, in its receipt
/// let lost = Arc::clone(&loss).received(); // for `Receiver::lost`
/// loss.send(); // its lock has run out
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
    /// The delivery is lost from now on.
    pub fn send(&self) {
        self.sent.store(true, Ordering::Release);
        self.waiting.notify_waiters();
    }

    /// Whether it is lost.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.sent.load(Ordering::Acquire)
    }

    /// Resolves once it is lost. Cancel safe.
    pub async fn received(self: Arc<Self>) {
        let waiting = self.waiting.notified();
        tokio::pin!(waiting);
        // Register before looking: a signal in between would be missed.
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
    fn who_waits_and_who_comes_later_both_learn_it() {
        let lost = Arc::new(LossSignal::default());
        let mut waiting = Box::pin(Arc::clone(&lost).received());
        assert!(waiting.as_mut().now_or_never().is_none());
        lost.send();
        assert!(waiting.as_mut().now_or_never().is_some());
        assert!(Arc::clone(&lost).received().now_or_never().is_some());
    }
}
