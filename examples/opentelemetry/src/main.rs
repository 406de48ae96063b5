//! Traces and metrics of a consumer, sent to an OpenTelemetry collector.
//!
//! ```console
//! $ OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 cargo run --package opentelemetry-example
//! ```
//!
//! The endpoint is the one above where none is named. The collector, or a backend that speaks OTLP over HTTP, shows one trace for
//! each attempt: linked to the publisher's span and to the attempt before.

use opentelemetry::metrics::MeterProvider as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{MetricExporter, SpanExporter};
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use redrive::prelude::*;
use redrive::telemetry::{OpenTelemetryMetrics, OpenTelemetryTracer};
use tracing::Instrument as _;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::prelude::*;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let traces = SdkTracerProvider::builder()
        .with_batch_exporter(SpanExporter::builder().with_http().build()?)
        .build();
    let metrics = SdkMeterProvider::builder()
        .with_periodic_exporter(MetricExporter::builder().with_http().build()?)
        .build();
    // The spans of redrive are of the level INFO.
    let spans =
        tracing_opentelemetry::layer().with_tracer(traces.tracer("shop")).with_filter(LevelFilter::INFO);
    tracing_subscriber::registry().with(spans).init();

    consume(&metrics).await?;

    // Whatever was not sent yet. This blocks, so it has a thread of its own.
    tokio::task::spawn_blocking(move || {
        traces.shutdown()?;
        metrics.shutdown()
    })
    .await??;
    Ok(())
}

/// Publishes an order, and handles it: the first attempt fails.
async fn consume(metrics: &SdkMeterProvider) -> Result<(), BoxError> {
    let orders = Memory::new("orders");
    let broker = orders.broker().clone();
    let publishing = async {
        let order = Message::new("a lamp").with_id("order-1");
        orders.publish(OpenTelemetryTracer::inject(order)).await
    };
    publishing.instrument(tracing::info_span!("publish orders")).await?;

    let report = Consumer::new(orders)
        .observer(OpenTelemetryMetrics::new(metrics.meter("shop")))
        .tracer(OpenTelemetryTracer::new())
        .with_dead_letter_backoff([millis(200)])
        .handler(ship)
        .run_until(async move {
            while broker.depth("orders") > 0 {
                tokio::time::sleep(millis(10)).await;
            }
        })
        .await?;
    println!("{} handled, {} retried", report.acknowledged, report.retried);
    Ok(())
}

async fn ship(order: String, redrive::Attempt(attempt): redrive::Attempt) -> Result<(), BoxError> {
    if attempt == 1 {
        return Err("the carrier does not answer".into());
    }
    println!("shipping {order}");
    Ok(())
}
