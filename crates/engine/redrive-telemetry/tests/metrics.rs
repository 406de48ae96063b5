//! The metrics of a consumer on the `metrics` facade.
#![cfg(feature = "metrics")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{Diary, run};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use redrive_consumer::Consumer;
use redrive_core::{DeadLetterBackoff, Message, secs};
use redrive_memory::Memory;
use redrive_telemetry::{Metrics, catalog};

#[tokio::test(start_paused = true)]
async fn every_metric_says_what_happened() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    run(Metrics::with_recorder(recorder)).await;

    let seen = seen(&snapshots);
    let value = |series: &str| seen.get(series).copied().unwrap_or_else(|| panic!("{series} in {seen:#?}"));
    assert_eq!(value("messages_received_total{queue_name=orders}"), 8.0);
    assert_eq!(value("messages_processed_total{queue_name=orders,outcome=ack}"), 2.0);
    assert_eq!(value("messages_processed_total{queue_name=orders,outcome=retry}"), 3.0);
    assert_eq!(value("messages_retried_total{queue_name=orders,class=transient}"), 2.0);
    assert_eq!(value("messages_retried_total{queue_name=orders,class=throttled}"), 1.0);
    assert_eq!(value("messages_retried_total{queue_name=orders,class=custom}"), 0.0);
    assert_eq!(value("messages_deadlettered_total{queue_name=orders,reason=NonRetryableError}"), 1.0);
    assert_eq!(value("messages_deadlettered_total{queue_name=orders,reason=OutOfStock}"), 1.0);
    assert_eq!(value("messages_deadlettered_total{queue_name=orders,reason=PoisonMessage}"), 0.0);
    assert_eq!(value("messages_parked_total{queue_name=orders,reason=MaxDeliveryCountExceeded}"), 1.0);
    assert_eq!(value("settlement_failures_total{queue_name=orders}"), 0.0);
    assert_eq!(value("in_flight{queue_name=orders}"), 0.0);
    assert_eq!(value("consumers_running{queue_name=orders}"), 0.0);
    // Histograms: the sum of the recorded values.
    assert_eq!(value("attempts_per_message{queue_name=orders}"), 1.0 + 2.0 + 1.0 + 1.0 + 3.0);
    assert!(value("message_age_seconds{queue_name=orders}") >= 1.0 + 5.0 + 2.0, "{seen:#?}");
    for metric in catalog() {
        assert!(seen.keys().any(|series| series.starts_with(metric.name)), "{} is missing", metric.name);
    }
    assert!(!format!("{seen:?}").contains("order-"), "no id in a label");
}

#[tokio::test(start_paused = true)]
async fn a_name_may_have_a_prefix() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    run(Metrics::with_recorder(recorder).prefix("shop_")).await;
    let seen = seen(&snapshots);
    assert!(seen.keys().all(|series| series.starts_with("shop_")), "{seen:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_gauge_tells_what_is_true_now_and_nothing_when_the_consumer_has_ended() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let orders = Memory::new("orders");
    orders.publish(Message::new("").with_id("order-1")).await.unwrap();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let handler = {
        let gate = Arc::clone(&gate);
        move || {
            let gate = Arc::clone(&gate);
            async move { drop(gate.acquire().await) }
        }
    };
    let diary = Diary::default();
    let runner = Consumer::new(orders)
        .grace(secs(1))
        .with_dead_letter_backoff(DeadLetterBackoff::new([secs(1)]))
        .observer(Metrics::with_recorder(recorder))
        .observer(diary.observer())
        .handler(handler);
    let handle = runner.handle();
    let running = tokio::spawn(runner.run());
    diary.until("received").await;
    handle.pause();
    diary.until("paused").await;
    let now = seen(&snapshots);
    assert_eq!(now["in_flight{queue_name=orders}"], 1.0, "{now:#?}");
    assert_eq!(now["intake_paused{queue_name=orders}"], 1.0);
    // The handler never ends: its delivery is given back.
    handle.stop();
    running.await.unwrap().unwrap();
    // A snapshot contains the changes since the previous one.
    let since = seen(&snapshots);
    assert_eq!(since["in_flight{queue_name=orders}"], -1.0, "{since:#?}");
    assert_eq!(since["intake_paused{queue_name=orders}"], -1.0);
    assert_eq!(since["messages_released_total{queue_name=orders}"], 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_is_dropped_leaves_nothing_in_the_gauges() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let orders = Memory::new("orders");
    orders.publish(Message::new("").with_id("order-1")).await.unwrap();
    let diary = Diary::default();
    let runner = Consumer::new(orders)
        .observer(Metrics::with_recorder(recorder))
        .observer(diary.observer())
        .handler(std::future::pending::<()>);
    let handle = runner.handle();
    let running = tokio::spawn(runner.run());
    diary.until("received").await;
    handle.pause();
    diary.until("paused").await;
    let gauges = ["consumers_running", "in_flight", "intake_paused"]
        .map(|name| format!("{name}{{queue_name=orders}}"));
    let now = seen(&snapshots);
    assert_eq!(gauges.each_ref().map(|gauge| now[gauge]), [1.0; 3], "{now:#?}");
    running.abort();
    tokio::time::timeout(secs(60), diary.until("stopped")).await.expect("its end is told");
    // A snapshot has what changed since the last one.
    let since = seen(&snapshots);
    assert_eq!(gauges.each_ref().map(|gauge| since[gauge]), [-1.0; 3], "{since:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_process_without_a_recorder_is_told_so() {
    let (lines, guard) = common::lines();
    run(Metrics::new()).await;
    drop(guard);
    let lines = lines.lock().unwrap();
    assert!(lines.iter().any(|line| line.contains("no metrics are recorded")), "{lines:#?}");
}

/// Returns every series with its value; for a histogram, the sum.
fn seen(snapshots: &Snapshotter) -> BTreeMap<String, f64> {
    let taken = snapshots.snapshot().into_vec();
    let series = taken.into_iter().map(|(key, _, _, value)| {
        let key = key.key();
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let value = match value {
            DebugValue::Counter(count) => count as f64,
            DebugValue::Gauge(value) => value.into_inner(),
            DebugValue::Histogram(values) => values.iter().map(|value| value.into_inner()).sum(),
        };
        (format!("{}{{{}}}", key.name(), labels.join(",")), value)
    });
    series.collect()
}
