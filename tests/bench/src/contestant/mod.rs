//! The programs that are measured. Each runs in a process of its own, so that its CPU time is its own.
//!
//! A contestant connects, prints `ready`, waits for a line on its standard input, works, prints its [`Finish`] as a line
//! of JSON, parts from the broker in good order, and ends. Programs in other languages do the same.

mod by_hand;
mod consume;
mod copies;
mod redrive;
mod tally;

use std::future::Future;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use self::copies::Written;
use self::redrive::Seen;
pub(crate) use self::redrive::queue_type as redrive_queue_type;
use crate::task::{Task, Work};
pub(crate) use tally::Tally;

/// What a contestant says of itself at the end.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Finish {
    /// From the first message handled to the last one settled.
    pub(crate) seconds: f64,
    /// How many different messages were handled.
    pub(crate) messages: u64,
    /// How many were handled more than once.
    pub(crate) duplicates: u64,
}

/// The contestants of this program that can do this work; the first is redrive.
pub(crate) fn variants(work: Work) -> &'static [&'static str] {
    match work {
        Work::Consume | Work::Large => &[
            "redrive",
            "redrive-metrics",
            "redrive-traces",
            "lapin-no-acks",
            "lapin-coalesced",
            "lapin-prefix",
            "lapin-concurrent-acks",
            "lapin-awaited-acks",
        ],
        Work::Retry | Work::DeadLetter | Work::Park => &[
            "redrive",
            "redrive-metrics",
            "redrive-traces",
            "lapin-pipelined",
            "lapin-batches",
            "lapin-batches-history",
            "lapin-channels",
            "lapin-one-at-a-time",
        ],
        Work::Mixed1 | Work::Mixed10 => &["redrive", "lapin-batches", "lapin-one-at-a-time"],
    }
}

/// Runs the contestant that the task names.
pub(crate) async fn run(task: Task) -> Result<()> {
    // Only on request: a figure with a log is another figure.
    if std::env::var_os("RUST_LOG").is_some() {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
    match task.variant.as_str() {
        "redrive" => redrive::run(task, Seen::Nothing).await,
        "redrive-metrics" => redrive::run(task, Seen::Metrics).await,
        "redrive-traces" => redrive::run(task, Seen::Traces).await,
        "lapin-no-acks" => consume::no_acks(task).await,
        "lapin-coalesced" => consume::coalesced(task).await,
        "lapin-prefix" => consume::prefix(task).await,
        "lapin-concurrent-acks" => consume::concurrent_acks(task).await,
        "lapin-awaited-acks" => consume::awaited_acks(task).await,
        "lapin-pipelined" => copies::pipelined(task).await,
        "lapin-batches" => copies::batches(task, Written::Attempt).await,
        "lapin-batches-history" => copies::batches(task, Written::FailureHistory).await,
        "lapin-channels" => copies::channels(task).await,
        "lapin-one-at-a-time" => copies::one_at_a_time(task).await,
        other => bail!("no contestant is called `{other}`"),
    }
}

/// Says that everything is prepared, and waits for the signal.
pub(crate) async fn ready() -> Result<()> {
    println!("ready");
    let mut line = String::new();
    let read = BufReader::new(tokio::io::stdin()).read_line(&mut line).await;
    if read.context("cannot read the signal")? == 0 {
        bail!("whoever started this is gone");
    }
    Ok(())
}

/// Reports, then parts: parting is not measured, and only afterwards can be counted what was left.
pub(crate) async fn finish(tally: &Tally, parting: impl Future<Output = Result<()>>) -> Result<()> {
    println!("{}", serde_json::to_string(&tally.finish()?)?);
    parting.await
}
