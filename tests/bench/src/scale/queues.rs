//! Many queues with one consumer each in one process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use lapin::options::{BasicPublishOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Connection, ConnectionProperties};
use redrive::prelude::*;
use redrive::rabbitmq::{Connections, QueueType};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{broker, cpu_now, memory_now};
use crate::process;

/// This many connect at the same time.
const CONNECTS_AT_ONCE: usize = 16;
const IDLE: Duration = Duration::from_secs(10);
const WAIT: Duration = Duration::from_secs(3600);

#[derive(Args, Clone, Debug)]
pub(crate) struct Queues {
    /// 1000 for the documentation.
    #[arg(long, default_value_t = 50)]
    queues: usize,
    /// On how many pairs of connections the consumers are, evenly spread; 0: each has its own.
    #[arg(long, default_value_t = 0)]
    connections: usize,
    /// How many messages each queue gets before anything is measured: what went through a connection stays in memory.
    #[arg(long, default_value_t = 1)]
    messages: u64,
}

pub(super) async fn run(plan: &Queues) -> Result<()> {
    let server = broker()?;
    let before = memory_now();
    let mut shared = Vec::new();
    for _ in 0..plan.connections {
        shared.push(Connections::connect(&server.url).await?);
    }
    let connect = |number: usize| {
        let (url, shared) = (server.url.clone(), shared.get(number % plan.connections.max(1)).cloned());
        async move {
            // Classic ones: a quorum queue for each delay would be a measure of the broker.
            let options = RabbitMq::options(&name(number))
                .queue_type(QueueType::Classic)
                .retry_queue_type(QueueType::Classic);
            let transport = match shared {
                Some(connections) => options.connect_over(&connections).await,
                None => options.connect(&url).await,
            };
            transport.with_context(|| format!("consumer {number}"))
        }
    };
    let transports: Vec<_> =
        stream::iter(0..plan.queues).map(connect).buffer_unordered(CONNECTS_AT_ONCE).try_collect().await?;
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
    // Messages in each: when all are handled, all consumers run.
    let all_run = async {
        for number in 0..plan.queues {
            until_there(&connection, &name(number)).await?;
        }
        for _ in 0..plan.messages {
            for number in 0..plan.queues {
                let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
                channel
                    .basic_publish(
                        "".into(),
                        name(number).as_str().into(),
                        options,
                        &[b'x'; 1024],
                        properties,
                    )
                    .await?;
            }
        }
        while handled.load(Ordering::Relaxed) < plan.queues as u64 * plan.messages {
            sleep(Duration::from_millis(100)).await;
        }
        anyhow::Ok(())
    };
    timeout(Duration::from_secs(600), all_run).await.context("not all consumers run")??;
    ensure!(running.try_join_next().is_none(), "a consumer ended by itself");
    let each = (memory_now() - before) / plan.queues as f64 * 1024.0;
    println!(
        "{} queues, one consumer each: {:.0} MiB in all, {each:.0} KiB each; {} threads",
        plan.queues,
        memory_now(),
        process::threads(std::process::id()).unwrap_or_default(),
    );
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

/// Each consumer declares its own queue.
async fn until_there(connection: &Connection, queue: &str) -> Result<()> {
    loop {
        // A missing queue closes the channel.
        let channel = connection.create_channel().await?;
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        if channel.queue_declare(queue.into(), passive, FieldTable::default()).await.is_ok() {
            return Ok(channel.close(200, "seen".into()).await?);
        }
        sleep(Duration::from_millis(100)).await;
    }
}

fn name(number: usize) -> String {
    format!("redrive-bench-many-{number}")
}
