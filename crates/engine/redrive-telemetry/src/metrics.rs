//! The adapter for the `metrics` facade.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder, Unit};
use parking_lot::RwLock;
use redrive_consumer::{Event, Observer};

use crate::catalog::{Id, Kind, Metric, catalog};
use crate::watch::{Instruments, Watch};

/// Counts and measures what one consumer does, on the [`metrics`] facade: the service chooses the exporter.
///
/// ```
/// use redrive_consumer::Consumer;
/// use redrive_telemetry::Metrics;
/// # use redrive_core::{BoxError, Message, Publisher};
///
/// # fn build(transport: redrive_memory::Memory) {
/// # async fn ship(order: String) -> Result<(), BoxError> { Ok(()) }
/// let consumer = Consumer::new(transport).observer(Metrics::new()).handler(ship);
/// # }
/// ```
///
/// The recorder is looked up when the consumer starts: install it before. The facade has a separate recorder for each of its
/// versions: if the exporter uses another version than this crate (0.24), nothing is recorded. The consumer then logs a warning,
/// and the service can pass the exporter's recorder to [`with_recorder`](Self::with_recorder).
///
/// Use one for each consumer: a clone observes another consumer.
#[derive(Default)]
pub struct Metrics {
    target: Target,
    watch: Watch<Handles>,
}

/// The recorder and the names of the metrics.
#[derive(Clone, Default)]
struct Target {
    /// `None`: the recorder of the process.
    recorder: Option<Arc<dyn Recorder + Send + Sync>>,
    prefix: Arc<str>,
}

impl Metrics {
    /// Records with the recorder of the process.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records with this recorder, whatever the recorder of the process is.
    #[must_use]
    pub fn with_recorder(recorder: impl Recorder + Send + Sync + 'static) -> Self {
        let target = Target { recorder: Some(Arc::new(recorder)), ..Target::default() };
        Self { target, watch: Watch::default() }
    }

    /// Sets a prefix for the name of each metric: for example `redrive_`. Default: none.
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.target.prefix = prefix.into();
        self
    }
}

/// The clone observes another consumer, with the same recorder and prefix.
impl Clone for Metrics {
    fn clone(&self) -> Self {
        Self { target: self.target.clone(), watch: Watch::default() }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("prefix", &self.target.prefix).finish_non_exhaustive()
    }
}

impl Observer for Metrics {
    fn observe(&self, event: &Event<'_>) {
        self.watch.observe(event, |queue, _| Handles::new(self.target.clone(), queue));
    }
}

impl Target {
    fn with<R>(&self, run: impl FnOnce(&dyn Recorder) -> R) -> R {
        match &self.recorder {
            Some(recorder) => run(&**recorder),
            None => metrics::with_recorder(run),
        }
    }

    fn key(&self, metric: &Metric, queue: &str, label: &str) -> Key {
        let values = [queue, label].map(str::to_owned);
        let labels = metric.labels.iter().zip(values).map(|(&name, value)| Label::new(name, value));
        Key::from_parts(self.name(metric), labels.collect::<Vec<_>>())
    }

    fn name(&self, metric: &Metric) -> String {
        format!("{}{}", self.prefix, metric.name)
    }

    fn counter(&self, metric: &Metric, queue: &str, label: &str) -> Counter {
        self.with(|recorder| recorder.register_counter(&self.key(metric, queue, label), &METADATA))
    }

    fn describe(&self, metric: &Metric) {
        let unit = metric.name.ends_with("_seconds").then_some(Unit::Seconds);
        let (name, help) = (self.name(metric).into(), metric.help.into());
        self.with(|recorder| match metric.kind {
            Kind::Counter => recorder.describe_counter(name, unit, help),
            Kind::Gauge => recorder.describe_gauge(name, unit, help),
            Kind::Histogram => recorder.describe_histogram(name, unit, help),
        });
    }

    /// Returns true if the process has no recorder: the facade then returns its no-op recorder.
    fn is_nowhere(&self) -> bool {
        self.recorder.is_none() && self.with(|recorder| size_of_val(recorder) == 0)
    }
}

static METADATA: Metadata<'static> = Metadata::new("redrive", Level::INFO, Some("redrive"));

/// The instruments, looked up once: an event costs a few atomic operations.
struct Handles {
    target: Target,
    queue: String,
    /// In the order of the catalog, like the other lists.
    counters: Vec<Family>,
    histograms: Vec<Histogram>,
    gauges: Vec<Gauge>,
}

/// A counter for each value of its label.
struct Family {
    /// The counters that exist from the start, at 0: an alert on a rate must see the first failure.
    known: Vec<(&'static str, Counter)>,
    custom: RwLock<HashMap<String, Counter>>,
}

impl Handles {
    fn new(target: Target, queue: &str) -> Self {
        if target.is_nowhere() {
            tracing::warn!(
                queue,
                "no metrics are recorded: this process has no recorder of the `metrics` facade, version 0.24. Install one before \
                 the consumer starts, or hand it over with `Metrics::with_recorder`"
            );
        }
        catalog().iter().for_each(|metric| target.describe(metric));
        let of = |kind| catalog().iter().filter(move |metric| metric.kind == kind);
        let key = |metric| target.key(metric, queue, "");
        let family = |metric: &Metric| Family {
            known: metric.known.iter().map(|&label| (label, target.counter(metric, queue, label))).collect(),
            custom: RwLock::default(),
        };
        Self {
            counters: of(Kind::Counter).map(family).collect(),
            histograms: of(Kind::Histogram)
                .map(|metric| target.with(|recorder| recorder.register_histogram(&key(metric), &METADATA)))
                .collect(),
            gauges: of(Kind::Gauge)
                .map(|metric| target.with(|recorder| recorder.register_gauge(&key(metric), &METADATA)))
                .collect(),
            queue: queue.to_owned(),
            target,
        }
    }
}

impl Instruments for Handles {
    fn count(&self, id: Id, label: &str) {
        let family = &self.counters[id.of_its_kind()];
        if let Some((_, counter)) = family.known.iter().find(|(known, _)| *known == label) {
            return counter.increment(1);
        }
        let seen = family.custom.read();
        if let Some(counter) = seen.get(label) {
            return counter.increment(1);
        }
        drop(seen);
        let mut custom = family.custom.write();
        let counter = || self.target.counter(id.metric(), &self.queue, label);
        custom.entry(label.to_owned()).or_insert_with(counter).increment(1);
    }

    fn record(&self, id: Id, value: f64) {
        self.histograms[id.of_its_kind()].record(value);
    }

    fn shift(&self, id: Id, by: i64) {
        // A gauge counts deliveries or consumers of one process: small enough for a float to be exact.
        self.gauges[id.of_its_kind()].increment(by as f64);
    }
}
