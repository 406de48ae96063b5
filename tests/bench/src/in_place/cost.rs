//! What a retry costs the broker and the client: processor time beyond that of a message that succeeds at once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use redrive::prelude::*;
use redrive::rabbitmq::{Delay, Native, QueueType};
use redrive_brokers::{Node, Version};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::client::Client;
use super::{Mode, declare, publish};
use crate::process;

const WAIT: Duration = Duration::from_secs(1);
const ERROR: &str = "the bank is closed";

/// Settings of the measurement.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    #[arg(long, default_value_t = 20_000)]
    messages: usize,
    #[arg(long, default_values_t = [50, 200, 1000])]
    prefetch: Vec<u32>,
    /// How often everything is measured.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only these; may be repeated.
    #[arg(long)]
    mode: Vec<Mode>,
}

/// One run: all messages of a queue.
#[derive(Clone, Copy)]
struct Work {
    mode: Mode,
    prefetch: u32,
    messages: usize,
    /// Whether each message fails once.
    fails: bool,
}

/// Processor time, and the time until each message was handled once.
struct Used {
    broker: Duration,
    client: Duration,
    first: Duration,
}

pub(super) async fn run(plan: &Plan) -> Result<()> {
    let modes = if plan.mode.is_empty() { Mode::ALL.to_vec() } else { plan.mode.clone() };
    let config = ["vm_memory_high_watermark.absolute = 6GB", "raft.wal_max_size_bytes = 512000000"];
    let node = tokio::task::spawn_blocking(move || Node::with_config(Version::V4_3, &config)).await??;
    println!(
        "µs of broker and client for each retry, and messages settled a second while all fail; {} messages",
        plan.messages
    );
    for round in 1..=plan.rounds {
        for &prefetch in &plan.prefetch {
            for &mode in &modes {
                let work = |fails| Work { mode, prefetch, messages: plan.messages, fails };
                let plain = measure(&node, work(false)).await?;
                let retried = measure(&node, work(true)).await?;
                let each = |more: Duration, less: Duration| {
                    (more.as_secs_f64() - less.as_secs_f64()) * 1e6 / plan.messages as f64
                };
                println!(
                    "round {round}, prefetch {prefetch}, {mode:?}: broker {:.1}, client {:.1}, {:.0}/s",
                    each(retried.broker, plain.broker),
                    each(retried.client, plain.client),
                    plan.messages as f64 / retried.first.as_secs_f64()
                );
            }
        }
    }
    Ok(())
}

async fn measure(node: &Node, work: Work) -> Result<Used> {
    let broker = process::listener(node.address().port()).context("the broker's process is not found")?;
    let queue = format!("cost-{:?}-{}-{}", work.mode, work.prefetch, work.fails);
    let url = node.url();
    let consumer = match work.mode {
        Mode::InPlace => {
            declare(&url, &queue, &[]).await?;
            None
        }
        Mode::Ladder | Mode::Native => Some(RedriveWork::begin(&url, &queue, work).await?),
    };
    // A new quorum queue is not used at once.
    sleep(Duration::from_secs(4)).await;
    publish(&url, &queue, 0..work.messages).await?;
    process::until_quiet(broker).await;
    let used = || {
        let of = |process| process::used(process).unwrap_or_default();
        (of(broker), of(std::process::id()))
    };
    let (before, began) = (used(), Instant::now());
    let first = match consumer {
        None => in_place(node.address(), &queue, work, began).await?,
        Some(consumer) => consumer.work(began).await?,
    };
    process::until_quiet(broker).await;
    let after = used();
    Ok(Used { broker: after.0.saturating_sub(before.0), client: after.1.saturating_sub(before.1), first })
}

async fn in_place(address: SocketAddr, queue: &str, work: Work, began: Instant) -> Result<Duration> {
    let mut client = Client::attach(address, queue, work.prefetch).await?;
    let (mut handled, mut done, mut first) = (0, 0, Duration::ZERO);
    while done < work.messages {
        let arrival = client.next().await?;
        if work.fails && arrival.attempt == 1 {
            client.retry(arrival, WAIT, ERROR).await?;
        } else {
            client.accept(arrival).await?;
            done += 1;
        }
        handled += 1;
        if handled == work.messages {
            first = began.elapsed();
        }
        if handled % (work.prefetch as usize / 4).max(1) == 0 {
            client.allow(work.prefetch).await?;
        }
    }
    Ok(first)
}

/// A consumer of redrive that is paused until the work begins.
struct RedriveWork {
    consumer: redrive::Runner<RabbitMq>,
    seen: Arc<Seen>,
    messages: usize,
}

#[derive(Default)]
struct Seen {
    handled: AtomicUsize,
    done: AtomicUsize,
    all_handled: Notify,
    all_done: Notify,
}

impl RedriveWork {
    async fn begin(url: &str, queue: &str, work: Work) -> Result<Self> {
        let delay: Delay = match work.mode {
            Mode::Native => Native::between(WAIT, WAIT).into(),
            _ => Delay::Ladder,
        };
        let options = RabbitMq::options(queue).queue_type(QueueType::Quorum).delay(delay);
        // It declares the queues.
        let declaring = Consumer::new(options.clone().connect(url).await?)
            .with_dead_letter_backoff([WAIT])
            .handler(|_: Bytes| async {});
        let handle = declaring.handle();
        declaring
            .run_until(async move { drop(handle.wait_for_health(redrive::Health::is_ready).await) })
            .await?;
        let seen = Arc::<Seen>::default();
        let consumer = Consumer::new(options.connect(url).await?)
            .prefetch(work.prefetch)
            .concurrency(work.prefetch as usize)
            .with_dead_letter_backoff([WAIT])
            .handler({
                let seen = Arc::clone(&seen);
                move |delivery: Delivery| {
                    let seen = Arc::clone(&seen);
                    async move {
                        let reached =
                            |count: &AtomicUsize| count.fetch_add(1, Ordering::Relaxed) + 1 == work.messages;
                        if reached(&seen.handled) {
                            seen.all_handled.notify_one();
                        }
                        if work.fails && delivery.attempt() == 1 {
                            return Err(BoxError::from(ERROR));
                        }
                        if reached(&seen.done) {
                            seen.all_done.notify_one();
                        }
                        Ok(())
                    }
                }
            });
        Ok(Self { consumer, seen, messages: work.messages })
    }

    /// Returns the time until each message was handled once.
    async fn work(self, began: Instant) -> Result<Duration> {
        let seen = self.seen;
        let mut first = Duration::ZERO;
        let done = async {
            seen.all_handled.notified().await;
            first = began.elapsed();
            seen.all_done.notified().await;
        };
        self.consumer.run_until(done).await?;
        debug_assert!(seen.done.load(Ordering::Relaxed) >= self.messages);
        Ok(first)
    }
}
