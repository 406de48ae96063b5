//! Many queues with one consumer each in one process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use lapin::options::{BasicPublishOptions, QueueDeleteOptions};
use lapin::{BasicProperties, Connection, ConnectionProperties};
use redrive::prelude::*;
use redrive::rabbitmq::QueueType;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{broker, cpu_now, memory_now};
use crate::process;

/// So many connect at the same time.
const AT_ONCE: usize = 16;
const IDLE: Duration = Duration::from_secs(10);
const WAIT: Duration = Duration::from_secs(3600);

#[derive(Args, Clone, Debug)]
pub(crate) struct Queues {
    /// 1000 for the documentation.
    #[arg(long, default_value_t = 50)]
    queues: usize,
}

pub(super) async fn run(plan: &Queues) -> Result<()> {
    let server = broker()?;
    let before = memory_now();
    let connect = |number: usize| {
        let url = server.url.clone();
        async move {
            // Classic ones: a quorum queue for each delay would be a measure of the broker.
            let options = RabbitMq::options(&name(number))
                .queue_type(QueueType::Classic)
                .retry_queue_type(QueueType::Classic);
            options.connect(&url).await.with_context(|| format!("consumer {number}"))
        }
    };
    let transports: Vec<_> =
        stream::iter(0..plan.queues).map(connect).buffer_unordered(AT_ONCE).try_collect().await?;
    let handled = Arc::new(AtomicU64::new(0));
    let (mut running, mut handles) = (JoinSet::new(), Vec::new());
    for transport in transports {
        let handled = Arc::clone(&handled);
        let consumer = Consumer::new(transport).with_dead_letter_backoff([WAIT]).handler(move |_: Bytes| {
            handled.fetch_add(1, Ordering::Relaxed);
            std::future::ready(())
        });
        handles.push(consumer.handle());
        running.spawn(consumer.run());
    }
    let connection = Connection::connect(&server.url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    // A message in each: when all are handled, all consumers run.
    let all_run = async {
        for round in 1_u64.. {
            for number in 0..plan.queues {
                let options = BasicPublishOptions::default();
                let properties = BasicProperties::default();
                channel
                    .basic_publish("".into(), name(number).as_str().into(), options, b"x", properties)
                    .await?;
            }
            if round == 1 {
                // Queues that are not there yet drop it.
                sleep(Duration::from_secs(5)).await;
            }
            if handled.load(Ordering::Relaxed) >= plan.queues as u64 {
                return anyhow::Ok(());
            }
            sleep(Duration::from_secs(1)).await;
        }
        Ok(())
    };
    timeout(Duration::from_secs(300), all_run).await.context("not all consumers run")??;
    ensure!(running.try_join_next().is_none(), "a consumer ended by itself");
    let each = (memory_now() - before) / plan.queues as f64 * 1024.0;
    println!("{} queues, one consumer each: {:.0} MiB in all, {each:.0} KiB each", plan.queues, memory_now());
    let used = || (cpu_now(), server.process.and_then(process::used).unwrap_or_default());
    let (client, broker) = used();
    sleep(IDLE).await;
    let (client, broker) = (used().0 - client, used().1 - broker);
    let share = |used: Duration| used.as_secs_f64() / IDLE.as_secs_f64() * 100.0;
    println!("idle: {:.1} % of a core, and {:.1} % of the broker's", share(client), share(broker));
    handles.iter().for_each(redrive::ConsumerHandle::stop);
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    for number in 0..plan.queues {
        let work = name(number);
        let shelves = [format!("{work}--dead-letters"), format!("{work}--parking-lot")];
        let rung = format!("{work}--retry-{}ms", WAIT.as_millis());
        for queue in shelves.into_iter().chain([rung, work]) {
            channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()).await?;
        }
    }
    Ok(())
}

fn name(number: usize) -> String {
    format!("redrive-bench-many-{number}")
}
