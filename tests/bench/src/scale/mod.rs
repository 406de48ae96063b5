//! redrive alone, in large numbers. The defaults are small; the flags say how to reach the numbers of the documentation.

mod consumers;
mod memory;
mod queues;
mod rungs;

use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Subcommand;

use crate::process;
use crate::server::{self, Server};

/// What is to be scaled.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Scale {
    /// Several consumers of one queue in one process.
    Consumers(consumers::Consumers),
    /// Many queues with one consumer each in one process: memory of each, and CPU time while nothing happens.
    Queues(queues::Queues),
    /// Many messages that wait on a rung: does the retry of others stay on time?
    Rungs(rungs::Rungs),
    /// Many messages through one process: does its memory grow?
    Memory(memory::Memory),
}

pub(crate) async fn run(scale: Scale) -> Result<()> {
    match scale {
        Scale::Consumers(consumers) => consumers::run(&consumers).await,
        Scale::Queues(queues) => queues::run(&queues).await,
        Scale::Rungs(rungs) => rungs::run(&rungs).await,
        Scale::Memory(memory) => memory::run(memory).await,
    }
}

/// The newest of the brokers that are running.
fn broker() -> Result<Server> {
    let server = server::running(&[])?.pop().context("a broker is running")?;
    println!("RabbitMQ {}", server.release);
    Ok(server)
}

/// The memory of this process, in MiB.
fn memory_now() -> f64 {
    process::resident_mib(std::process::id()).unwrap_or(f64::NAN)
}

fn cpu_now() -> Duration {
    process::used(std::process::id()).unwrap_or_default()
}
