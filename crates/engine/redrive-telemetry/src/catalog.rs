//! The catalog of all metrics: name, kind, labels, meaning.

/// A metric of a consumer.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Metric {
    /// The name, without a prefix. It ends with the unit, if there is one.
    pub name: &'static str,
    /// What kind of metric it is.
    pub kind: Kind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it counts or measures.
    pub help: &'static str,
    /// The values of the last label that exist from the start, at 0. A counter without a label of its own has an empty one.
    pub(crate) known: &'static [&'static str],
    /// The recommended upper bounds of a histogram's buckets; empty for the other kinds.
    pub buckets: &'static [f64],
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A value that only grows, until the process ends.
    Counter,
    /// The current value.
    Gauge,
    /// The distribution of measured values.
    Histogram,
}

/// Returns every metric of a consumer.
///
/// An exporter of the `metrics` facade has no default buckets for them:
///
/// ```
/// for metric in redrive_telemetry::catalog().iter().filter(|metric| !metric.buckets.is_empty()) {
///     // PrometheusBuilder::set_buckets_for_metric(Matcher::Full(metric.name.into()), metric.buckets)
///     println!("{}: {:?}", metric.name, metric.buckets);
/// }
/// ```
#[must_use]
pub fn catalog() -> &'static [Metric] {
    &CATALOG
}

const QUEUE: &[&str] = &["queue_name"];
const NO_LABEL: &[&str] = &[""];
const OUTCOMES: &[&str] = &["ack", "retry", "snooze", "release", "dead-letter", "park", "discard"];
const CLASSES: &[&str] = &["transient", "throttled", "custom"];
/// The application's own reasons are added when they occur.
const REASONS: &[&str] = &[
    "PoisonMessage",
    "NonRetryableError",
    "MaxDeliveryCountExceeded",
    "Expired",
    "MalformedHeaders",
    "Undecided",
    "NoRoute",
];

static CATALOG: [Metric; 19] = [
    counter(
        "messages_received_total",
        QUEUE,
        NO_LABEL,
        "Deliveries that entered the layers and the handler.",
    ),
    counter(
        "messages_processed_total",
        &["queue_name", "outcome"],
        OUTCOMES,
        "Deliveries that were settled, by what was decided: ack, retry, snooze, release, dead-letter, park, discard.",
    ),
    counter(
        "messages_retried_total",
        &["queue_name", "class"],
        CLASSES,
        "Failures that are tried again, by the class of the error: transient, throttled, custom.",
    ),
    counter(
        "messages_deadlettered_total",
        &["queue_name", "reason"],
        REASONS,
        "Messages that went to the dead-letter shelf.",
    ),
    counter(
        "messages_parked_total",
        &["queue_name", "reason"],
        REASONS,
        "Messages that went to the parking shelf.",
    ),
    counter("messages_released_total", QUEUE, NO_LABEL, "Deliveries that were given back unhandled."),
    counter(
        "messages_deduplicated_total",
        QUEUE,
        NO_LABEL,
        "Deliveries that were redelivered after a lost acknowledgement, and were not handled again.",
    ),
    counter("settlement_failures_total", QUEUE, NO_LABEL, "Attempts to settle a delivery that failed."),
    counter(
        "deliveries_lost_total",
        QUEUE,
        NO_LABEL,
        "Deliveries whose lock or connection was lost before they were settled: they are redelivered.",
    ),
    histogram(
        "handler_duration_seconds",
        "Time that the layers and the handler took.",
        &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0],
    ),
    histogram(
        "message_age_seconds",
        "Age of a message when it was done: since it was published, where that is known, else since it failed first.",
        &[0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0],
    ),
    histogram(
        "attempts_per_message",
        "Attempts that a message had taken when it was done.",
        &[1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0],
    ),
    gauge("consumers_running", "Consumers that have started and have not ended."),
    gauge("in_flight", "Deliveries that are handled or settled now."),
    gauge("intake_paused", "Consumers that take no messages: paused, or unable to store copies."),
    gauge("intake_interrupted", "Consumers that cannot receive: the transport tries again until it can."),
    gauge(
        "intake_partly_interrupted",
        "Consumers that cannot receive from one of their queues, and receive from the others.",
    ),
    gauge(
        "intake_not_ready",
        "Consumers with a layer that has not been ready for a minute, while nothing was handled.",
    ),
    gauge(
        "isolation_active",
        "Consumers that handle one message at a time, as one of them may kill processes.",
    ),
];

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    known: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { name, kind: Kind::Counter, labels, known, help, buckets: &[] }
}

const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, labels: QUEUE, known: NO_LABEL, help, buckets: &[] }
}

const fn histogram(name: &'static str, help: &'static str, buckets: &'static [f64]) -> Metric {
    Metric { name, kind: Kind::Histogram, labels: QUEUE, known: NO_LABEL, help, buckets }
}

/// A metric of the catalog, by its position there.
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    Received,
    Processed,
    Retried,
    DeadLettered,
    Parked,
    Released,
    Deduplicated,
    SettlementFailures,
    Lost,
    HandlerDuration,
    Age,
    Attempts,
    Running,
    InFlight,
    IntakePaused,
    IntakeInterrupted,
    IntakePartlyInterrupted,
    IntakeNotReady,
    IsolationActive,
}

#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
impl Id {
    pub(crate) fn metric(self) -> &'static Metric {
        &CATALOG[self as usize]
    }

    /// Returns its position among the metrics of its kind.
    pub(crate) fn of_its_kind(self) -> usize {
        match self.metric().kind {
            Kind::Counter => self as usize - Self::Received as usize,
            Kind::Histogram => self as usize - Self::HandlerDuration as usize,
            Kind::Gauge => self as usize - Self::Running as usize,
        }
    }
}

#[cfg(all(test, any(feature = "metrics", feature = "opentelemetry")))]
mod tests {
    use super::*;

    #[test]
    fn an_id_stands_where_its_metric_stands() {
        for (id, name) in [
            (Id::Received, "messages_received_total"),
            (Id::Lost, "deliveries_lost_total"),
            (Id::HandlerDuration, "handler_duration_seconds"),
            (Id::Attempts, "attempts_per_message"),
            (Id::Running, "consumers_running"),
            (Id::InFlight, "in_flight"),
            (Id::IntakePartlyInterrupted, "intake_partly_interrupted"),
            (Id::IsolationActive, "isolation_active"),
        ] {
            assert_eq!(id.metric().name, name);
        }
    }
}
