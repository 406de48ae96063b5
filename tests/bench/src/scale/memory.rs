//! Many messages through one process: does its memory grow?

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use redrive::prelude::*;

use super::{broker, memory_now};
use crate::queues::Queues;
use crate::task::{QueueType, RETRY_WAIT, Work};

/// How many messages lie in the queue at most: more would be a measure of the queue.
const MAX_DEPTH: usize = 10_000;
const SAMPLES: u64 = 10;

#[derive(Args, Clone, Debug)]
pub(crate) struct Memory {
    /// 10000000 for the documentation.
    #[arg(long, default_value_t = 500_000)]
    count: u64,
    /// On RabbitMQ instead of the in-process broker.
    #[arg(long)]
    rabbitmq: bool,
}

pub(super) async fn run(plan: Memory) -> Result<()> {
    println!("{:.1} MiB before the start", memory_now());
    let began = Instant::now();
    let samples = if plan.rabbitmq { on_rabbitmq(plan.count).await? } else { in_process(plan.count).await? };
    let took = began.elapsed().as_secs_f64();
    let peak = samples.iter().copied().fold(f64::NAN, f64::max);
    let (first, last) = (samples.first().context("samples")?, samples.last().context("samples")?);
    println!(
        "{} messages in {took:.0} s: {first:.1} MiB after the first tenth, {last:.1} MiB at the end, {peak:.1} MiB at most",
        plan.count
    );
    Ok(())
}

/// One message of a hundred fails once: what is remembered of failures must not grow either.
fn answer(number: u64, attempt: u32) -> Result<(), &'static str> {
    if number.is_multiple_of(100) && attempt == 1 { Err("the carrier does not answer") } else { Ok(()) }
}

async fn in_process(count: u64) -> Result<Vec<f64>> {
    let transport = redrive::memory::Memory::new("orders");
    let broker = transport.broker().clone();
    let handled = Arc::new(AtomicU64::new(0));
    let counting = Arc::clone(&handled);
    let consumer = Consumer::new(transport).concurrency(64).with_dead_letter_backoff([millis(10)]).handler(
        move |Attempt(attempt): Attempt| {
            std::future::ready(answer(counting.fetch_add(1, Ordering::Relaxed), attempt))
        },
    );
    let handle = consumer.handle();
    let running = tokio::spawn(consumer.run());
    let mut samples = Vec::new();
    for number in 0..count {
        broker.publish("orders", Message::new(vec![b'x'; 256]).with_id(format!("message-{number}")))?;
        if number.is_multiple_of(1000) {
            while broker.depth("orders") > MAX_DEPTH {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        sample(&mut samples, number + 1, count);
    }
    while broker.depth("orders") + broker.waiting("orders") + broker.held("orders") > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    handle.stop();
    println!("{:?}", running.await??);
    Ok(samples)
}

async fn on_rabbitmq(count: u64) -> Result<Vec<f64>> {
    const BATCH: u64 = 50_000;
    let server = broker()?;
    let queues = Queues::make(&server.url, QueueType::Quorum).await?;
    let transport = RabbitMq::options(queues.work()).connect(&server.url).await?;
    let handled = Arc::new(AtomicU64::new(0));
    let counting = Arc::clone(&handled);
    let consumer = Consumer::new(transport)
        .concurrency(200)
        .prefetch(200)
        .with_dead_letter_backoff([RETRY_WAIT])
        .handler(move |_: Bytes| {
            counting.fetch_add(1, Ordering::Relaxed);
            std::future::ready(())
        });
    let handle = consumer.handle();
    let running = tokio::spawn(consumer.run());
    let mut samples = Vec::new();
    let mut sent = 0;
    while sent < count {
        let now = BATCH.min(count - sent);
        queues.add(Work::Consume, now).await?;
        sent += now;
        // At most two batches lie in the queue.
        while handled.load(Ordering::Relaxed) + BATCH < sent {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        samples.push(memory_now());
        println!("{sent:>10} messages: {:.1} MiB", memory_now());
    }
    while handled.load(Ordering::Relaxed) < count {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    samples.push(memory_now());
    handle.stop();
    println!("{:?}", running.await??);
    queues.remove_all().await?;
    Ok(samples)
}

fn sample(samples: &mut Vec<f64>, number: u64, count: u64) {
    if number.is_multiple_of((count / SAMPLES).max(1)) {
        samples.push(memory_now());
        println!("{number:>10} messages: {:.1} MiB", memory_now());
    }
}
