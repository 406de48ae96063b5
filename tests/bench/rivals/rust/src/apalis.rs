//! apalis with apalis-amqp.

use std::sync::Arc;

use ::apalis::prelude::*;
use anyhow::{Result, anyhow};
use apalis_amqp::{AmqpBackend, Config};
use futures::future::poll_fn;

use crate::Task as Course;
use crate::tally::{Tally, ready};

pub async fn run(task: Course) -> Result<()> {
    let tally = Arc::new(Tally::new(task.count));
    let mut config = Config::default().queue(task.queue.as_str()).prefetch_count(task.prefetch);
    // The queue is there, with arguments that apalis need not know.
    config.declare_options.passive = true;
    let mut backend = AmqpBackend::<String>::new_from_addr(&task.url)?.with_config(config);
    ready()?;
    // A worker that only consumes panics otherwise: it asks for a message before there is a subscription; and what
    // acknowledges is a clone that has no channel as long as the backend has none.
    let worker = WorkerContext::new("bench");
    for _ in 0..3 {
        poll_fn(|cx| backend.poll_ready(cx, &worker)).await.map_err(|error| anyhow!("{error}"))?;
    }
    let handled = Arc::clone(&tally);
    let worker = WorkerBuilder::new("bench").backend(backend).build(move |body: String| {
        // Its acknowledgement comes after this, and nothing tells when.
        handled.handle(format!("\"{body}").as_bytes());
        handled.settled(1);
        std::future::ready(())
    });
    let running = tokio::spawn(worker.run());
    tally.until_settled().await;
    tally.finish().await?;
    running.abort();
    Ok(())
}
