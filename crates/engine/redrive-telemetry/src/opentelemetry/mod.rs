//! The adapters for OpenTelemetry.

mod metrics;
mod tracer;

pub use metrics::OpenTelemetryMetrics;
pub use tracer::OpenTelemetryTracer;
