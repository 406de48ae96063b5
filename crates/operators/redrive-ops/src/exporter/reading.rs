//! Reads each shelf on its own task.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redrive_core::{Shelf, Shelves, TransportError};
use tokio::time::Instant;
use tracing::{info, warn};

use super::values::{EntryValues, Values};
use crate::snapshot::{SnapshotOptions, snapshot};

/// Minimum pause after a read, as a multiple of the time that the read took.
const PAUSE_PER_READ: u32 = 4;

/// Options of reading.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) interval: Duration,
    pub(super) snapshots: SnapshotOptions,
    /// True if no entry is read.
    pub(super) count_only: bool,
    /// Number of groups and of reasons with their own series.
    pub(super) groups: usize,
}

/// A shelf, and the result of its last read.
pub(super) struct WatchedShelf {
    pub(super) queue_name: String,
    pub(super) shelf: Shelf,
    seen: Mutex<Seen>,
}

/// The state of a shelf.
#[derive(Clone, Default)]
pub(super) struct Seen {
    /// Whether the last read succeeded; `None`: none has ended yet.
    pub(super) succeeded: Option<bool>,
    /// The values of the last successful read, and when it began.
    pub(super) values: Option<(Instant, Arc<Values>)>,
}

/// Reads the shelf periodically.
pub(super) async fn keep_reading(watched: Arc<WatchedShelf>, shelves: Arc<dyn Shelves>, reading: Reading) {
    loop {
        let began = Instant::now();
        let values = read(&*shelves, watched.shelf, &reading).await;
        watched.note(began, values);
        tokio::time::sleep(reading.interval.max(began.elapsed().saturating_mul(PAUSE_PER_READ))).await;
    }
}

async fn read(shelves: &dyn Shelves, shelf: Shelf, reading: &Reading) -> Result<Values, TransportError> {
    if reading.count_only {
        let (messages, holder) = shelves.count_with_holder(shelf).await?;
        return Ok(Values { messages, partial: holder.is_some(), entries: None });
    }
    let snapshot = snapshot(shelves, shelf, &reading.snapshots).await?;
    let messages = match snapshot.truncated {
        // A quorum queue updates its count with a delay after entries were read.
        true => shelves.count(shelf).await?.max(snapshot.count + 1),
        // Counting a shelf can cost as much as reading it.
        false => snapshot.count,
    };
    let partial = snapshot.holder.is_some();
    Ok(Values { messages, partial, entries: Some(EntryValues::of(&snapshot, reading.groups)) })
}

impl WatchedShelf {
    pub(super) fn new(queue_name: String, shelf: Shelf) -> Self {
        Self { queue_name, shelf, seen: Mutex::default() }
    }

    /// Returns the current state. Does not wait for the broker.
    pub(super) fn seen(&self) -> Seen {
        self.seen.lock().clone()
    }

    fn note(&self, began: Instant, values: Result<Values, TransportError>) {
        let (queue, shelf) = (&self.queue_name, self.shelf);
        let mut seen = self.seen.lock();
        let before = seen.succeeded.replace(values.is_ok());
        match values {
            Ok(values) => {
                seen.values = Some((began, Arc::new(values)));
                if before == Some(false) {
                    info!(queue, %shelf, "the shelf can be read again: its metrics are current");
                }
            }
            Err(error) if before != Some(false) => {
                warn!(queue, %shelf, %error, "the shelf cannot be read: its metrics keep their last values");
            }
            Err(_) => {}
        }
    }
}

impl fmt::Debug for WatchedShelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedShelf")
            .field("queue_name", &self.queue_name)
            .field("shelf", &self.shelf)
            .field("succeeded", &self.seen().succeeded)
            .finish_non_exhaustive()
    }
}
