//! A counter whose value is the number of living guards.

use tokio::sync::watch;

/// Counts guards. Callers can subscribe to changes.
pub(crate) struct GuardedCount(watch::Sender<usize>);

impl GuardedCount {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    /// Adds one, until the guard is dropped.
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
