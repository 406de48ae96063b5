//! Many messages that wait on a rung: does the retry of others stay on time?

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeleteOptions};
use lapin::{BasicProperties, Connection, ConnectionProperties};
use parking_lot::Mutex;
use redrive::prelude::*;
use tokio::time::timeout;

use super::broker;
use crate::course::figures::percentile;
use crate::process;

const QUEUE: &str = "redrive-bench-rungs";
const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(6 * 3600);
/// How many messages fail once, one after the other.
const PROBES: usize = 300;
const APART: Duration = Duration::from_millis(20);

#[derive(Args, Clone, Debug)]
pub(crate) struct Rungs {
    /// How many wait, step after step; 1000000 for the documentation.
    #[arg(long, value_delimiter = ',', default_value = "0,20000")]
    waiting: Vec<u64>,
}

pub(super) async fn run(plan: &Rungs) -> Result<()> {
    let server = broker()?;
    let connection = Connection::connect(&server.url, ConnectionProperties::default()).await?;
    remove(&connection).await?;
    let (mut waiting, mut steps) = (0, plan.waiting.clone());
    steps.sort_unstable();
    // Declares the rungs, which then take no copies for a while: not measured.
    probe(&server.url).await?;
    for step in steps {
        if waiting < step {
            fill(&connection, step - waiting).await?;
            waiting = step;
        }
        let late = probe(&server.url).await?;
        let shown = |share| percentile(&late, share).unwrap_or(f64::NAN);
        println!(
            "{waiting:>8} waiting: retries came {:.0} ms late (median), {:.0} ms (99 %), {:.0} ms (most); broker {:.0} MiB",
            shown(0.5),
            shown(0.99),
            shown(1.0),
            server.process.and_then(process::resident_mib).unwrap_or(f64::NAN),
        );
    }
    remove(&connection).await
}

/// How late, in ms, each of [`PROBES`] messages came that failed once.
async fn probe(url: &str) -> Result<Vec<f64>> {
    let transport = RabbitMq::options(QUEUE).connect(url).await?;
    let publisher = RabbitMq::options(QUEUE).connect(url).await?;
    let failed_at = Arc::new(Mutex::new(vec![None::<Instant>; PROBES]));
    let late = Arc::new(Mutex::new(Vec::new()));
    let done = Arc::new(tokio::sync::Notify::new());
    let (lateness, finished) = (Arc::clone(&late), Arc::clone(&done));
    let consumer = Consumer::new(transport).concurrency(64).with_dead_letter_backoff([SHORT, LONG]).handler(
        move |number: String, Attempt(attempt): Attempt| {
            let number: usize = number.parse().expect("a probe is a number");
            let now = Instant::now();
            let answer = if attempt == 1 {
                failed_at.lock()[number] = Some(now);
                Err("once")
            } else {
                let began = failed_at.lock()[number].expect("it failed before");
                let mut late = lateness.lock();
                late.push((now - began).saturating_sub(SHORT).as_secs_f64() * 1e3);
                if late.len() == PROBES {
                    finished.notify_one();
                }
                Ok(())
            };
            std::future::ready(answer)
        },
    );
    let handle = consumer.handle();
    let running = tokio::spawn(consumer.run());
    for number in 0..PROBES {
        publisher.publish(Message::new(number.to_string()).with_id(format!("probe-{number}"))).await?;
        tokio::time::sleep(APART).await;
    }
    timeout(Duration::from_secs(300), done.notified()).await.context("not all probes came back")?;
    handle.stop();
    running.await??;
    Ok(std::mem::take(&mut *late.lock()))
}

/// Puts messages onto the long rung, where they wait as if they had failed.
async fn fill(connection: &Connection, messages: u64) -> Result<()> {
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let rung = rung(LONG);
    let mut sent = FuturesUnordered::new();
    let publish = async || -> Result<()> {
        let properties = BasicProperties::default().with_delivery_mode(2);
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let body = [b'x'; 256];
        let answer = channel.basic_publish("".into(), rung.as_str().into(), options, &body, properties);
        anyhow::ensure!(answer.await?.await?.is_ack(), "the broker refuses messages");
        Ok(())
    };
    for _ in 0..messages {
        sent.push(publish());
        if sent.len() >= 2000 {
            sent.next().await.context("something is on its way")??;
        }
    }
    while let Some(stored) = sent.next().await {
        stored?;
    }
    drop(sent);
    Ok(channel.close(200, "filled".into()).await?)
}

async fn remove(connection: &Connection) -> Result<()> {
    let channel = connection.create_channel().await?;
    let shelves = [format!("{QUEUE}--dead-letters"), format!("{QUEUE}--parking-lot"), QUEUE.to_owned()];
    for queue in shelves.into_iter().chain([rung(SHORT), rung(LONG)]) {
        channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()).await?;
    }
    Ok(())
}

fn rung(wait: Duration) -> String {
    format!("{QUEUE}--retry-{}ms", wait.as_millis())
}
