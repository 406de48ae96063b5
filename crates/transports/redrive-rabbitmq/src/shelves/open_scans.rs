//! The scans that hold messages of a shelf, also those that nobody waits for any more.

use std::sync::Arc;

use tokio::sync::watch;

/// Counts open scans.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenScans(Arc<watch::Sender<usize>>);

/// Open as long as it is not dropped.
#[derive(Debug)]
pub(super) struct OpenScan(Arc<watch::Sender<usize>>);

impl OpenScans {
    pub(super) fn open(&self) -> OpenScan {
        self.0.send_modify(|open| *open += 1);
        OpenScan(Arc::clone(&self.0))
    }

    /// Waits until no scan is open.
    pub(super) async fn all_ended(&self) {
        let mut open = self.0.subscribe();
        // The sender is ours, so that this ends for no other reason.
        let _ = open.wait_for(|open| *open == 0).await;
    }
}

impl Drop for OpenScan {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}
