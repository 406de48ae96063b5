//! Other Rust libraries on the courses of `redrive-bench`: they consume and acknowledge.
//!
//! Each takes the arguments of redrive's own contestants, prints `ready`, waits for a line, works, and prints what it did
//! as a line of JSON.

mod amqprs;
mod apalis;
mod omniqueue;
mod tally;

use anyhow::{Result, bail};
use clap::Parser;

/// What to do. Not all of it is needed here, but all of it is given.
#[derive(Clone, Debug, Parser)]
struct Task {
    #[arg(long)]
    variant: String,
    #[arg(long)]
    work: String,
    #[arg(long)]
    url: String,
    #[arg(long)]
    queue: String,
    #[arg(long)]
    queue_type: String,
    #[arg(long)]
    count: u64,
    #[arg(long)]
    prefetch: u16,
}

#[tokio::main]
async fn main() -> Result<()> {
    let task = Task::parse();
    match task.variant.as_str() {
        "amqprs" => amqprs::run(task, 1).await,
        "amqprs-coalesced" => {
            let batch = u64::from(task.prefetch / 2).clamp(1, 64);
            amqprs::run(task, batch).await
        }
        "apalis-amqp" => apalis::run(task).await,
        "omniqueue" => omniqueue::run(task).await,
        other => bail!("no contestant is called `{other}`"),
    }
}
