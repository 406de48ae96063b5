//! Metrics and traces of redrive's consumers. Each adapter is a feature, and costs nothing when it is off.
//!
//! | feature | adapter |
//! |---|---|
//! | `metrics` | [`Metrics`]: counters, gauges and histograms on the [`metrics`](https://docs.rs/metrics) facade |
//! | `opentelemetry` | [`OpenTelemetryMetrics`]: the same and those of the semantic conventions, on a `Meter`; [`OpenTelemetryTracer`]: links between the spans of one message |
//!
//! [`catalog`] lists every metric. What each one means, and what to do about it:
//! [observability](https://github.com/redrive-rs/redrive/blob/main/docs/observability.md).

mod catalog;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "opentelemetry")]
mod opentelemetry;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod reasons;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod watch;

pub use catalog::{Kind, Metric, catalog};

#[cfg(feature = "metrics")]
pub use self::metrics::Metrics;
#[cfg(feature = "opentelemetry")]
pub use self::opentelemetry::{OpenTelemetryMetrics, OpenTelemetryTracer};
