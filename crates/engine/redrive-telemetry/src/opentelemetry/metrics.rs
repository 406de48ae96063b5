//! The metrics of a consumer, and those of the semantic conventions, on a meter.

use std::fmt;
use std::sync::Arc;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter, UpDownCounter};
use redrive_consumer::{Event, Observer};

use crate::catalog::{Id, Kind, Metric, catalog};
use crate::watch::{Instruments, Watch};

/// Bounds that the semantic conventions recommend for `messaging.process.duration`.
const PROCESS_DURATION_BUCKETS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// Counts and measures what one consumer does, on this meter: the metrics of the [catalog](crate::catalog()), and of the [semantic
/// conventions for messaging](https://opentelemetry.io/docs/specs/semconv/messaging/messaging-metrics/)
/// `messaging.client.consumed.messages` and `messaging.process.duration`, whose `error.type` is the reason of a failure.
///
/// ```
/// use redrive_consumer::Consumer;
/// use redrive_telemetry::OpenTelemetryMetrics;
/// # use redrive_core::BoxError;
///
/// # fn build(transport: redrive_memory::Memory) {
/// # async fn ship(order: String) -> Result<(), BoxError> { Ok(()) }
/// let meter = opentelemetry::global::meter("shipping");
/// let consumer = Consumer::new(transport).observer(OpenTelemetryMetrics::new(meter)).handler(ship);
/// # }
/// ```
///
/// A meter of another version of `opentelemetry` than this crate's (0.33) does not compile. Without a meter provider in the process,
/// nothing is recorded, and OpenTelemetry does not report that.
///
/// Use one for each consumer: a clone observes another consumer.
pub struct OpenTelemetryMetrics {
    meter: Meter,
    prefix: Arc<str>,
    watch: Watch<MeterInstruments>,
}

impl OpenTelemetryMetrics {
    /// Records on this meter.
    #[must_use]
    pub fn new(meter: Meter) -> Self {
        Self { meter, prefix: Arc::default(), watch: Watch::default() }
    }

    /// Sets a prefix for the name of each metric of the catalog: for example `redrive_`. Default: none.
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = prefix.into();
        self
    }
}

/// The clone observes another consumer, with the same meter and prefix.
impl Clone for OpenTelemetryMetrics {
    fn clone(&self) -> Self {
        Self { meter: self.meter.clone(), prefix: self.prefix.clone(), watch: Watch::default() }
    }
}

impl fmt::Debug for OpenTelemetryMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenTelemetryMetrics").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Observer for OpenTelemetryMetrics {
    fn observe(&self, event: &Event<'_>) {
        self.watch
            .observe(event, |queue, system| MeterInstruments::new(&self.meter, &self.prefix, queue, system));
    }
}

struct MeterInstruments {
    queue: KeyValue,
    /// In the order of the catalog, like the other lists.
    counters: Vec<Counter<u64>>,
    histograms: Vec<Histogram<f64>>,
    gauges: Vec<UpDownCounter<i64>>,
    conventional: Conventional,
}

/// The metrics of the semantic conventions.
struct Conventional {
    attributes: [KeyValue; 3],
    consumed: Counter<u64>,
    process_duration: Histogram<f64>,
}

impl MeterInstruments {
    fn new(meter: &Meter, prefix: &str, queue: &str, system: &'static str) -> Self {
        let of = |kind| catalog().iter().filter(move |metric| metric.kind == kind);
        let name = |metric: &Metric| format!("{prefix}{}", metric.name);
        let unit = |metric: &Metric| if metric.name.ends_with("_seconds") { "s" } else { "1" };
        let counter = |metric: &Metric| {
            meter.u64_counter(name(metric)).with_description(metric.help).with_unit(unit(metric)).build()
        };
        let histogram = |metric: &Metric| {
            let named =
                meter.f64_histogram(name(metric)).with_description(metric.help).with_unit(unit(metric));
            named.with_boundaries(metric.buckets.to_vec()).build()
        };
        let gauge = |metric: &Metric| {
            let named = meter.i64_up_down_counter(name(metric)).with_description(metric.help);
            named.with_unit(unit(metric)).build()
        };
        let all = Self {
            queue: KeyValue::new("queue_name", queue.to_owned()),
            counters: of(Kind::Counter).map(counter).collect(),
            histograms: of(Kind::Histogram).map(histogram).collect(),
            gauges: of(Kind::Gauge).map(gauge).collect(),
            conventional: Conventional::new(meter, queue, system),
        };
        // Every series exists from the start: an alert on a rate must see the first failure.
        for (index, metric) in of(Kind::Counter).enumerate() {
            metric.known.iter().for_each(|label| all.add(index, metric, label, 0));
        }
        all.gauges.iter().for_each(|gauge| gauge.add(0, std::slice::from_ref(&all.queue)));
        all
    }

    fn add(&self, index: usize, metric: &Metric, label: &str, by: u64) {
        let counter = &self.counters[index];
        match metric.labels {
            [_, name] => counter.add(by, &[self.queue.clone(), KeyValue::new(*name, label.to_owned())]),
            _ => counter.add(by, std::slice::from_ref(&self.queue)),
        }
    }
}

impl Conventional {
    fn new(meter: &Meter, queue: &str, system: &'static str) -> Self {
        let consumed = meter.u64_counter("messaging.client.consumed.messages").with_unit("{message}");
        let duration = meter.f64_histogram("messaging.process.duration").with_unit("s");
        Self {
            attributes: [
                KeyValue::new("messaging.system", system),
                KeyValue::new("messaging.destination.name", queue.to_owned()),
                KeyValue::new("messaging.operation.name", "process"),
            ],
            consumed: consumed
                .with_description("Number of messages that were delivered to the application.")
                .build(),
            process_duration: duration
                .with_description("Duration of processing operation.")
                .with_boundaries(PROCESS_DURATION_BUCKETS.to_vec())
                .build(),
        }
    }
}

impl Instruments for MeterInstruments {
    fn count(&self, id: Id, label: &str) {
        self.add(id.of_its_kind(), id.metric(), label, 1);
        if id == Id::Received {
            self.conventional.consumed.add(1, &self.conventional.attributes);
        }
    }

    fn record(&self, id: Id, value: f64) {
        self.histograms[id.of_its_kind()].record(value, std::slice::from_ref(&self.queue));
    }

    fn shift(&self, id: Id, by: i64) {
        self.gauges[id.of_its_kind()].add(by, std::slice::from_ref(&self.queue));
    }

    fn handled(&self, seconds: f64, reason: Option<&str>) {
        self.record(Id::HandlerDuration, seconds);
        let Conventional { attributes, process_duration, .. } = &self.conventional;
        match reason {
            None => process_duration.record(seconds, attributes),
            Some(reason) => {
                let [system, queue, operation] = attributes.clone();
                let error = KeyValue::new("error.type", reason.to_owned());
                process_duration.record(seconds, &[system, queue, operation, error]);
            }
        }
    }
}
