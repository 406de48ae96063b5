//! Several consumers of one queue in one process.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use redrive::prelude::*;
use tokio::task::JoinSet;

use super::{broker, cpu_now, memory_now};
use crate::contestant::{Tally, redrive_queue_type};
use crate::queues::Queues;
use crate::task::{QueueType, RETRY_WAIT, Work};

#[derive(Args, Clone, Debug)]
pub(crate) struct Consumers {
    /// How many consumers there are, run after run.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16")]
    consumers: Vec<usize>,
    #[arg(long, default_value_t = 50_000)]
    count: u64,
    /// Of each consumer.
    #[arg(long, default_value_t = 200)]
    prefetch: u16,
    #[arg(long, value_enum, default_value = "quorum")]
    queue_type: QueueType,
}

pub(super) async fn run(plan: &Consumers) -> Result<()> {
    let server = broker()?;
    let queues = Queues::make(&server.url, plan.queue_type).await?;
    for &consumers in &plan.consumers {
        queues.fill(Work::Consume, plan.count).await?;
        let tally = Arc::new(Tally::new(plan.count));
        let (mut running, mut handles) = (JoinSet::new(), Vec::new());
        let (began, used) = (Instant::now(), cpu_now());
        for _ in 0..consumers {
            let (handled, settled) = (Arc::clone(&tally), Arc::clone(&tally));
            let transport = RabbitMq::options(queues.work())
                .queue_type(redrive_queue_type(plan.queue_type))
                .connect(&server.url)
                .await?;
            let consumer = Consumer::new(transport)
                .concurrency(plan.prefetch.into())
                .prefetch(plan.prefetch.into())
                .with_dead_letter_backoff([RETRY_WAIT])
                .observer(move |event: &redrive::Event<'_>| {
                    if let redrive::Event::Settled { disposition, .. } = event
                        && **disposition != Disposition::Release
                    {
                        settled.settled(1);
                    }
                })
                .handler(move |body: Bytes| {
                    handled.handle(&body);
                    std::future::ready(())
                });
            handles.push(consumer.handle());
            running.spawn(consumer.run());
        }
        tally.until_settled().await;
        let took = began.elapsed().as_secs_f64();
        let cpu = (cpu_now() - used).as_secs_f64() * 1e6 / plan.count as f64;
        println!(
            "{consumers:>3} consumers: {:>7.0} messages/s, {cpu:.1} µs of CPU each, {:.0} MiB (connecting included)",
            plan.count as f64 / took,
            memory_now(),
        );
        handles.iter().for_each(redrive::ConsumerHandle::stop);
        while let Some(ended) = running.join_next().await {
            ended??;
        }
        queues.check(Work::Consume, plan.count).await?;
    }
    queues.remove_all().await
}
