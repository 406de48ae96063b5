//! Metrics of shelves, as text for Prometheus.
//!
//! | module | does |
//! |---|---|
//! | [`reading`] | reads each shelf on its own task |
//! | [`values`] | converts a snapshot into values with bounded labels; pure |
//! | [`rendering`] | writes values as text; pure |

mod reading;
mod rendering;
mod values;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redrive_core::{Shelf, Shelves};
use tokio::task::JoinSet;
use tracing::warn;

use self::reading::{Reading, Seen, WatchedShelf};
use self::rendering::Shown;
use crate::journal::JournalFolder;
use crate::snapshot::SnapshotOptions;

/// Value of the header `content-type` for the text that [`ShelfMetrics::render`] returns, on a page of its own. Behind other metrics
/// in the text format of Prometheus, the page has theirs: `text/plain; version=0.0.4`.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// For how long a run that ended early is shown.
const STOPPED_WITHIN: Duration = Duration::from_secs(24 * 60 * 60);

/// Reads the shelves of queues periodically, and exposes them as metrics. Any number of queues, on any transports.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), redrive_core::BoxError> {
/// use std::sync::Arc;
///
/// use redrive_memory::MemoryBroker;
/// use redrive_ops::ShelfExporter;
///
/// let broker = MemoryBroker::new();
/// let metrics = ShelfExporter::new()
///     .watch("orders", Arc::new(broker.shelves("orders")))
///     .watch("invoices", Arc::new(broker.shelves("invoices")))
///     .start();
/// # tokio::time::sleep(std::time::Duration::from_secs(1)).await;
///
/// // In the handler of `/metrics`, with `redrive_ops::CONTENT_TYPE`:
/// let text = metrics.render();
/// assert!(text.contains(r#"shelf_messages{queue_name="orders",shelf="dead-letter"} 0"#), "{text}");
/// # Ok(()) }
/// ```
///
/// # Metrics
///
/// All are gauges with the labels `queue_name` and `shelf` (`dead-letter` or `parking`).
///
/// | metric | value |
/// |---|---|
/// | `shelf_messages` | messages on the shelf, by the broker's count |
/// | `shelf_partial` | 1 if others may hold messages of the shelf, which the other values do not count: a run, or another consumer of it (RabbitMQ) |
/// | `shelf_oldest_age_seconds` | time since the oldest entry was shelved; absent if no entry has a time, or the shelf is empty |
/// | `shelf_messages_by_reason` | entries of each `reason` |
/// | `shelf_messages_by_group` | entries of each `group` of failures, with its `reason` and `error_type` |
/// | `shelf_truncated` | 1 if the shelf has more entries than are read: ages, reasons and groups cover only those that were read |
/// | `shelf_readable` | 1 if the last read succeeded, 0 if it failed or none has ended yet |
/// | `shelf_read_age_seconds` | age of the other values of the shelf; absent before the first successful read |
///
/// With [journals](Self::journals) there is one more, with the label `why` as in [`StoppedRun`](crate::StoppedRun):
///
/// | metric | value |
/// |---|---|
/// | `run_stopped_age_seconds` | time since the newest run of the shelf ended early; absent after a day, or if it was resumed |
///
/// # Stale values
///
/// A shelf that cannot be read keeps its last values, so that an alert on them does not end with the broker's connection.
/// `shelf_readable` is then 0; if a read does not end, `shelf_read_age_seconds` grows. Alert on both. Before the first successful
/// read, a shelf has no values. The first failed read is logged, and so is the first successful one after it.
///
/// # Labels
///
/// A label never contains an id or a text of a message. A `reason` or an `error_type` that is no plain word becomes `other`; an unknown
/// one becomes `unknown`. The largest [groups](Self::groups) and reasons have their own series; the sum of the others is `other`.
#[derive(Clone)]
#[must_use = "an exporter reads nothing until it is started"]
pub struct ShelfExporter {
    queues: BTreeMap<String, Watch>,
    reading: Reading,
    prefix: Option<String>,
    journals: Option<(JournalFolder, String)>,
    clock: Clock,
}

#[derive(Clone)]
struct Watch {
    shelves: Arc<dyn Shelves>,
    count_only: bool,
}

type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

impl ShelfExporter {
    /// Creates an exporter without shelves.
    pub fn new() -> Self {
        let reading = Reading {
            interval: Duration::from_secs(30),
            snapshots: SnapshotOptions::new(),
            count_only: false,
            groups: 20,
        };
        Self {
            queues: BTreeMap::new(),
            reading,
            prefix: None,
            journals: None,
            clock: Arc::new(SystemTime::now),
        }
    }

    /// Adds both shelves of a queue. `queue_name` is the label and must be unique: a later queue of the same name replaces the
    /// earlier one.
    pub fn watch(mut self, queue_name: impl Into<String>, shelves: Arc<dyn Shelves>) -> Self {
        self.queues.insert(queue_name.into(), Watch { shelves, count_only: false });
        self
    }

    /// Adds both shelves of a queue, but only counts their messages: they have `shelf_messages`, `shelf_partial`, `shelf_readable` and
    /// `shelf_read_age_seconds`. For shelves where reading counts as a delivery against a limit (RabbitMQ), and for very large
    /// ones.
    pub fn count_only(mut self, queue_name: impl Into<String>, shelves: Arc<dyn Shelves>) -> Self {
        self.queues.insert(queue_name.into(), Watch { shelves, count_only: true });
        self
    }

    /// Sets the pause between two reads of a shelf. Default: 30 s. The pause is at least four times as long as the read before it,
    /// so that a large shelf does not keep its broker busy.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.reading.interval = interval;
        self
    }

    /// Sets how much of a shelf is read. Default: [`SnapshotOptions::new`].
    pub fn snapshots(mut self, options: SnapshotOptions) -> Self {
        self.reading.snapshots = options;
        self
    }

    /// Sets how many groups, and how many reasons, of each shelf have their own series. Default: 20.
    pub fn groups(mut self, groups: usize) -> Self {
        self.reading.groups = groups;
        self
    }

    /// Sets a prefix for the names of the metrics: `shop` makes `shop_shelf_messages`. Default: none.
    ///
    /// # Errors
    ///
    /// If the prefix cannot begin the name of a metric.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Result<Self, InvalidPrefix> {
        let prefix = prefix.into();
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
        if !prefix.starts_with(|c: char| is_part(c) && !c.is_ascii_digit()) || !prefix.chars().all(is_part) {
            return Err(InvalidPrefix(prefix));
        }
        self.prefix = Some(prefix);
        Ok(self)
    }

    /// Exposes runs that ended early, of the folder of their journals. `broker` is the one of their [headers](crate::JournalHeader).
    /// Default: none.
    pub fn journals(mut self, folder: JournalFolder, broker: impl Into<String>) -> Self {
        self.journals = Some((folder, broker.into()));
        self
    }

    /// Sets the clock by which the age of the oldest entry is computed. Default: the system's. For tests on virtual time.
    pub fn clock(mut self, now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(now);
        self
    }

    /// Starts reading: each shelf on its own task, so that none waits for another.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    #[must_use = "reading ends when the metrics are dropped"]
    pub fn start(self) -> ShelfMetrics {
        let mut tasks = JoinSet::new();
        let mut shelves = Vec::new();
        let Self { queues, reading: every, prefix, journals, clock } = self;
        for (queue_name, Watch { shelves: of_queue, count_only }) in queues {
            for shelf in [Shelf::DeadLetter, Shelf::Parking] {
                let watched = Arc::new(WatchedShelf::new(queue_name.clone(), shelf));
                let reading = Reading { count_only, ..every.clone() };
                tasks.spawn(reading::keep_reading(Arc::clone(&watched), Arc::clone(&of_queue), reading));
                shelves.push(watched);
            }
        }
        let shared = Shared { shelves, prefix, journals, clock, _tasks: tasks };
        ShelfMetrics { shared: Arc::new(shared) }
    }
}

impl Default for ShelfExporter {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ShelfExporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShelfExporter")
            .field("queues", &self.queues.keys())
            .field("reading", &self.reading)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// The prefix cannot begin the name of a metric.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` cannot be the prefix of a metric: ASCII letters, digits, `_` and `:` are allowed, and it must not begin with a digit"
)]
pub struct InvalidPrefix(String);

/// The values that a [`ShelfExporter`] has read. Cheap to clone. Reading ends when the last clone is dropped; what it
/// holds of a shelf of RabbitMQ is given back a moment later. If the process ends before that, RabbitMQ takes it back, perhaps in
/// another order, and 4.3 counts a delivery for each entry.
#[derive(Clone)]
pub struct ShelfMetrics {
    shared: Arc<Shared>,
}

struct Shared {
    shelves: Vec<Arc<WatchedShelf>>,
    prefix: Option<String>,
    journals: Option<(JournalFolder, String)>,
    clock: Clock,
    /// Ends the tasks when dropped.
    _tasks: JoinSet<()>,
}

impl ShelfMetrics {
    /// Returns the metrics in the text format of OpenMetrics, which is also valid in the text format of Prometheus: it
    /// may follow other metrics in that format. Does not wait for the broker; reads the journals of the last day.
    #[must_use]
    pub fn render(&self) -> String {
        let Shared { shelves, prefix, journals, clock, .. } = &*self.shared;
        let shown = shelves.iter().map(|shelf| {
            let Seen { succeeded, values } = shelf.seen();
            let values = values.map(|(began, values)| (began.elapsed(), values));
            let (queue_name, label) = (shelf.queue_name.clone(), shelf.shelf.to_string());
            Shown { queue_name, shelf: label, readable: succeeded == Some(true), values }
        });
        let now = clock();
        let stopped = journals.as_ref().map(|(folder, broker)| folder.stopped(broker, STOPPED_WITHIN, now));
        let stopped = stopped.unwrap_or_else(|| Ok(Vec::new())).unwrap_or_else(|error| {
            warn!(%error, "cannot read which runs have stopped: the metric `run_stopped_age_seconds` is missing");
            Vec::new()
        });
        let stopped = stopped.into_iter().map(|stopped| (stopped.shelf.to_string(), stopped)).collect();
        rendering::render(prefix.as_deref(), now, shown.collect(), stopped)
    }
}

impl fmt::Debug for ShelfMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { shelves, prefix, .. } = &*self.shared;
        f.debug_struct("ShelfMetrics")
            .field("shelves", shelves)
            .field("prefix", prefix)
            .finish_non_exhaustive()
    }
}
