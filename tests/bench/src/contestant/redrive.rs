//! redrive, with the whole preset on; and the same with metrics, and with traces.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::testing::trace::NoopSpanExporter;
use opentelemetry_sdk::trace::SdkTracerProvider;
use redrive::prelude::*;
use redrive::telemetry::{Metrics, OpenTelemetryTracer};
use redrive::{Event, Reason};

use tracing_subscriber::prelude::*;

use super::{Tally, finish, ready};
use crate::task::{self, Fate, RETRY_WAIT, Task};

/// What is seen of the consumer, besides the observer that counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Seen {
    Nothing,
    Metrics,
    Traces,
}

pub(super) async fn run(task: Task, seen: Seen) -> Result<()> {
    let tracing = (seen == Seen::Traces).then(trace).transpose()?;
    // The queues were declared and filled some seconds ago, and no broker is killed.
    let options = RabbitMq::options(&task.queue).new_queue_wait(secs(0));
    let transport = options.queue_type(queue_type(task.queue_type)).connect(&task.url).await?;
    let tally = Arc::new(Tally::new(task.count));
    let concurrency = usize::from(task.prefetch);
    let (handled, settled, done) = (Arc::clone(&tally), Arc::clone(&tally), Arc::clone(&tally));
    let work = task.work;
    ready().await?;
    let consumer = match seen {
        Seen::Nothing => Consumer::new(transport),
        Seen::Metrics => {
            let exporter = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
            Consumer::new(transport).observer(Metrics::with_recorder(exporter))
        }
        Seen::Traces => Consumer::new(transport).tracer(OpenTelemetryTracer::new()),
    };
    let consumer = consumer
        .concurrency(concurrency)
        .prefetch(task.prefetch.into())
        .with_dead_letter_backoff([RETRY_WAIT])
        .observer(move |event: &Event<'_>| {
            if let Event::Settled { disposition, .. } = event
                && **disposition != Disposition::Release
            {
                settled.settled(1);
            }
        })
        .handler(move |body: Bytes| {
            let number = handled.handle(&body);
            std::future::ready(answer(work, number))
        });
    let reporting = async move {
        done.until_settled().await;
    };
    let running = consumer.run_until(reporting);
    let report = running.await?;
    let ended = report.acknowledged + report.retried + report.dead_lettered + report.parked;
    if ended != task.count {
        return Err(anyhow!("{ended} messages were settled of {}: {report:?}", task.count));
    }
    finish(&tally, async { Ok(()) }).await?;
    if let Some(tracing) = tracing {
        tracing.shutdown()?;
    }
    Ok(())
}

/// Records every span, and exports them in batches to nowhere.
fn trace() -> Result<SdkTracerProvider> {
    let provider = SdkTracerProvider::builder().with_batch_exporter(NoopSpanExporter::new()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("bench"));
    let spans = tracing_subscriber::filter::LevelFilter::INFO;
    tracing_subscriber::registry().with(layer.with_filter(spans)).try_init()?;
    Ok(provider)
}

fn answer(work: task::Work, number: u64) -> Result<Disposition, BoxError> {
    match work.fate(number) {
        Fate::Acknowledged => Ok(Disposition::Ack),
        Fate::Retried => Err("the carrier does not answer".into()),
        Fate::DeadLettered => Ok(Err("no such item").permanent()?),
        Fate::Parked => Ok(Disposition::Park(Failure::new(Reason::Undecided, "people must look at this"))),
    }
}

pub(crate) fn queue_type(queue_type: task::QueueType) -> redrive::rabbitmq::QueueType {
    match queue_type {
        task::QueueType::Classic => redrive::rabbitmq::QueueType::Classic,
        task::QueueType::Quorum => redrive::rabbitmq::QueueType::Quorum,
    }
}
