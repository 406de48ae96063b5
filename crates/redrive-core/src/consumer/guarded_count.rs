//! A count of what goes on, kept by guards.

use tokio::sync::watch;

/// How many guards there are. Whoever waits for a change can subscribe.
pub(crate) struct GuardedCount(watch::Sender<usize>);

impl GuardedCount {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    /// One more, until the guard is dropped.
    pub(crate) fn begin(&self) -> Guard {
        self.0.send_modify(|count| *count += 1);
        Guard(self.0.clone())
    }

    pub(crate) fn now(&self) -> usize {
        *self.0.borrow()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<usize> {
        self.0.subscribe()
    }
}

pub(crate) struct Guard(watch::Sender<usize>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
