//! A running service: a consumer with every ending, and the shelves of its queue.

use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Result, anyhow};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use redrive::Shelf;
use redrive::ops::{
    JournalFolder, JournalHeader, Operator, Plan, PlanAction, PlanOptions, RunOptions, ShelfExporter,
    StopReason,
};
use redrive::prelude::*;
use redrive::telemetry::{Metrics, catalog};
use tokio::runtime::Builder;

/// The queue of the service.
pub(crate) const QUEUE: &str = "live";

/// The broker, as the journals of its runs call it.
const BROKER: &str = "memory";

/// Starts the service on a thread of its own, which ends with the process. Answers what shows its metrics.
pub(crate) fn start() -> Result<impl Fn() -> String + Send + use<>> {
    let mut exporter = PrometheusBuilder::new();
    for metric in catalog().iter().filter(|metric| !metric.buckets.is_empty()) {
        exporter = exporter.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), metric.buckets)?;
    }
    let recorder = exporter.build_recorder();
    let consumers = recorder.handle();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let orders = Memory::new(QUEUE);
    let temporary = tempfile::tempdir()?;
    let journals = stopped_run(&JournalFolder::open(temporary.path().join("runs"))?)?;
    let shelves = {
        let _within = runtime.enter();
        let exporter =
            ShelfExporter::new().watch(QUEUE, Arc::new(orders.shelves())).journals(journals, BROKER);
        exporter.interval(secs(1)).start()
    };
    let publisher = orders.publisher();
    let consumer = Consumer::new(orders)
        .observer(Metrics::with_recorder(recorder))
        .with_dead_letter_backoff(DeadLetterBackoff::new([millis(10)]).park_exhausted())
        .handler(handle);
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::spawn(consumer.run());
            for number in 0_u64.. {
                let _ = publisher.publish(Message::new(number.to_string())).await;
                tokio::time::sleep(millis(20)).await;
            }
        });
    });
    Ok(move || {
        let _journals = &temporary;
        consumers.render() + &shelves.render()
    })
}

/// Writes the journal of a run that was aborted.
fn stopped_run(folder: &JournalFolder) -> Result<JournalFolder> {
    let now = SystemTime::now();
    let plan = Plan::new(PlanAction::Redrive, Shelf::DeadLetter, &[], &PlanOptions::new(QUEUE), now);
    let header = JournalHeader::new(BROKER, Operator::new("ada", "laptop", now), RunOptions::new(), plan);
    let (mut journal, _lock) = folder.begin(header)?;
    journal.end(Some(StopReason::Aborted), now)?;
    Ok(folder.clone())
}

async fn handle(number: String) -> Result<Disposition> {
    let failure = || Failure::custom("OutOfStock", "none left");
    match number.parse::<u64>()? % 8 {
        0 => Ok(Disposition::DeadLetter(failure())),
        1 => Ok(Disposition::Park(failure())),
        2 => Ok(Disposition::Discard(failure())),
        3 => Err(anyhow!("the carrier does not answer")),
        _ => Ok(Disposition::Ack),
    }
}
