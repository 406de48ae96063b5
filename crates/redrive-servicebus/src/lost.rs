//! The word that a delivery is no longer in hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Whether a delivery is no longer ours to settle: said once, and heard by whoever asks and whoever waits.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    said: AtomicBool,
    told: Notify,
}

impl Lost {
    /// From now on it is.
    pub(crate) fn say(&self) {
        self.said.store(true, Ordering::Release);
        self.told.notify_waiters();
    }

    pub(crate) fn is_said(&self) -> bool {
        self.said.load(Ordering::Acquire)
    }

    /// Resolves once it is said.
    pub(crate) async fn heard(self: Arc<Self>) {
        let told = self.told.notified();
        tokio::pin!(told);
        // Listening begins before asking, so that the word does not fall in between.
        told.as_mut().enable();
        if !self.is_said() {
            told.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn it_is_heard_by_who_waits_and_by_who_comes_later() {
        let lost = Arc::new(Lost::default());
        let mut waiting = Box::pin(Arc::clone(&lost).heard());
        assert!(waiting.as_mut().now_or_never().is_none());
        lost.say();
        assert!(waiting.as_mut().now_or_never().is_some());
        assert!(Arc::clone(&lost).heard().now_or_never().is_some());
    }
}
