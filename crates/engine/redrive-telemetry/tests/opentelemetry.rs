//! The spans and metrics of a consumer in OpenTelemetry: one connected trace, and the metrics of the conventions.
#![cfg(feature = "opentelemetry")]

mod common;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use common::run;
use opentelemetry::Value;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry::trace::{SpanId, SpanKind, Status, TracerProvider as _};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ScopeMetrics};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use redrive_consumer::{Consumer, Tracer as _};
use redrive_core::shelves::Selection;
use redrive_core::transport::{DeliveryBuilder, Origin};
use redrive_core::{BoxError, Message, Shelf, Shelves as _, secs};
use redrive_memory::Memory;
use redrive_telemetry::{OpenTelemetryMetrics, OpenTelemetryTracer};
use tracing::Instrument;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt;

/// Keeps the spans that end on this thread, until the guard is dropped.
fn spans() -> (InMemorySpanExporter, SdkTracerProvider, DefaultGuard) {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    (exporter, provider, guard)
}

/// Publishes a message in a span; it fails three times, is redriven, and succeeds.
async fn story(tracer: OpenTelemetryTracer) -> Vec<SpanData> {
    let (exporter, _provider, guard) = spans();
    let orders = Memory::new("orders");
    let (broker, shelves) = (orders.broker().clone(), orders.shelves());
    let publishing = async {
        let message = Message::new("order 7").with_id("order-7");
        orders.publish(OpenTelemetryTracer::inject(message)).await.unwrap();
    };
    publishing.instrument(tracing::info_span!("publish orders")).await;

    let works = Arc::new(AtomicBool::new(false));
    let handler = {
        let works = Arc::clone(&works);
        move || {
            let works = works.load(Ordering::SeqCst);
            async move { if works { Ok(()) } else { Err(BoxError::from("no answer")) } }
        }
    };
    let ended = async {
        while shelves.count(Shelf::DeadLetter).await.unwrap() == 0 {
            tokio::time::sleep(secs(1)).await;
        }
        works.store(true, Ordering::SeqCst);
        let report = shelves.redrive(Shelf::DeadLetter, &Selection::All).await.unwrap();
        assert_eq!(report.entries.len(), 1);
        while broker.depth("orders") > 0 {
            tokio::time::sleep(secs(1)).await;
        }
    };
    Consumer::new(orders)
        .with_dead_letter_backoff([secs(1), secs(2)])
        .tracer(tracer)
        .handler(handler)
        .run_until(ended)
        .await
        .unwrap();
    drop(guard);
    exporter.get_finished_spans().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_story_of_attempts_and_a_redrive_is_one_connected_picture() {
    let spans = story(OpenTelemetryTracer::new()).await;
    let named = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let published = named("publish orders")[0].span_context.span_id();
    let attempts = named("process orders");
    assert_eq!(attempts.len(), 4, "three failures and a success");
    for (index, attempt) in attempts.iter().enumerate() {
        assert_eq!(attempt.span_kind, SpanKind::Consumer);
        let mut expected = HashSet::from([(published, None)]);
        if index > 0 {
            let previous = attempts[index - 1].span_context.span_id();
            expected.insert((previous, Some("previous-attempt".to_owned())));
        }
        assert_eq!(links(attempt), expected, "attempt {index}");
        let settled: Vec<_> =
            spans.iter().filter(|span| span.parent_span_id == attempt.span_context.span_id()).collect();
        assert_eq!(settled.len(), 1, "one settlement for each");
        assert_eq!(settled[0].span_kind, SpanKind::Client);
        let names = ["reschedule orders", "reschedule orders", "shelve orders", "complete orders"];
        assert_eq!(settled[0].name, names[index]);
    }
    let of = |index: usize| attributes(attempts[index]);
    let (first, third, fourth) = (of(0), of(2), of(3));
    assert_eq!(first["redrive.retry.reason"], "RetryableError");
    assert_eq!(first["redrive.retry.wait_ms"], "1000");
    assert!(!first.contains_key("dlq.reason"), "a retry is no dead letter");
    assert_eq!(third["dlq.reason"], "MaxDeliveryCountExceeded");
    assert_eq!(third["dlq.error_description"], "no answer");
    assert_eq!(third["error.type"], "MaxDeliveryCountExceeded");
    assert_eq!(third["redrive.attempt"], "3");
    assert_eq!(attempts[2].status, Status::error(""));
    assert!(!fourth.contains_key("error.type") && !fourth.contains_key("redrive.retry.reason"));
    assert_eq!((&*fourth["redrive.disposition"], &*fourth["message.id"]), ("ack", "order-7"));
    assert_eq!(named("start orders").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_may_continue_the_trace_of_its_publisher() {
    let spans = story(OpenTelemetryTracer::new().continue_trace()).await;
    let published = spans.iter().find(|span| span.name == "publish orders").unwrap();
    let attempts = spans.iter().filter(|span| span.name == "process orders");
    for attempt in attempts {
        assert_eq!(attempt.parent_span_id, published.span_context.span_id());
        assert_eq!(attempt.span_context.trace_id(), published.span_context.trace_id());
    }
}

/// The copy was written by the first attempt; the broker retried it in place since.
#[test]
fn an_attempt_in_place_is_not_taken_for_the_one_that_wrote_the_copy() {
    let (exporter, _provider, guard) = spans();
    let context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let copy = Message::new("").with_header(redrive_core::header_names::TRACE_PARENT, context);
    for times in [0, 1] {
        let delivery =
            DeliveryBuilder::new(copy.clone(), Origin::new("orders", "", ""), SystemTime::UNIX_EPOCH)
                .failures_in_place(times)
                .build();
        let span = tracing::info_span!("process");
        OpenTelemetryTracer::new().join(&span, &delivery);
    }
    drop(guard);
    let links: Vec<_> = exporter.get_finished_spans().unwrap().iter().map(|span| span.links.len()).collect();
    assert_eq!(links, [1, 0]);
}

fn links(span: &SpanData) -> HashSet<(SpanId, Option<String>)> {
    let kind = |link: &opentelemetry::trace::Link| link.attributes.first().map(|kind| kind.value.to_string());
    span.links.iter().map(|link| (link.span_context.span_id(), kind(link))).collect()
}

fn attributes(span: &SpanData) -> BTreeMap<&str, String> {
    span.attributes.iter().map(|pair| (pair.key.as_str(), pair.value.to_string())).collect()
}

#[tokio::test(start_paused = true)]
async fn the_metrics_are_those_of_the_facade_and_of_the_conventions() {
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
    run(OpenTelemetryMetrics::new(provider.meter("test"))).await;
    provider.force_flush().unwrap();
    let seen = seen(&exporter);
    let value = |series: &str| seen.get(series).copied().unwrap_or_else(|| panic!("{series} in {seen:#?}"));
    assert_eq!(value("messages_received_total{queue_name=orders}"), 8.0);
    assert_eq!(value("messages_deadlettered_total{queue_name=orders,reason=OutOfStock}"), 1.0);
    assert_eq!(value("messages_retried_total{class=custom,queue_name=orders}"), 0.0);
    assert_eq!(value("in_flight{queue_name=orders}"), 0.0);
    let conventional =
        "messaging.destination.name=orders,messaging.operation.name=process,messaging.system=memory";
    assert_eq!(value(&format!("messaging.client.consumed.messages{{{conventional}}}")), 8.0);
    // For a histogram: the number of values.
    assert_eq!(value(&format!("messaging.process.duration{{{conventional}}}")), 2.0);
    assert_eq!(value(&format!("messaging.process.duration{{error.type=OutOfStock,{conventional}}}")), 1.0);
    assert_eq!(value("handler_duration_seconds{queue_name=orders}"), 8.0);
}

/// Returns every series with its value; for a histogram, the number of values.
fn seen(exporter: &InMemoryMetricExporter) -> BTreeMap<String, f64> {
    let mut seen = BTreeMap::new();
    let exported = exporter.get_finished_metrics().unwrap();
    let last = exported.last().unwrap();
    for metric in last.scope_metrics().flat_map(ScopeMetrics::metrics) {
        let mut add = |attributes: Vec<(String, Value)>, value: f64| {
            let sorted: BTreeMap<_, _> = attributes.into_iter().collect();
            let labels: Vec<_> = sorted.iter().map(|(name, value)| format!("{name}={value}")).collect();
            seen.insert(format!("{}{{{}}}", metric.name(), labels.join(",")), value);
        };
        macro_rules! attributes {
            ($point:expr) => {
                $point.attributes().map(|pair| (pair.key.to_string(), pair.value.clone())).collect()
            };
        }
        match metric.data() {
            AggregatedMetrics::U64(MetricData::Sum(sum)) => {
                sum.data_points().for_each(|point| add(attributes!(point), point.value() as f64));
            }
            AggregatedMetrics::I64(MetricData::Sum(sum)) => {
                sum.data_points().for_each(|point| add(attributes!(point), point.value() as f64));
            }
            AggregatedMetrics::F64(MetricData::Histogram(histogram)) => {
                histogram.data_points().for_each(|point| add(attributes!(point), point.count() as f64));
            }
            other => panic!("{other:?}"),
        }
    }
    seen
}
