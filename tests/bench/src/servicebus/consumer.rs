//! redrive as the consumer of a Service Bus queue, with the whole preset on.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::{Args, ValueEnum};
use redrive::Event;
use redrive::prelude::*;

use super::{BODY, QUEUE, frames, library};
use crate::contestant::{Tally, finish, ready};
use crate::task;

/// How long a message that failed waits: as short as it is a wait at all, so that the broker schedules it.
const WAIT: Duration = Duration::from_millis(100);

/// What to do with the messages that lie in the queue.
#[derive(Args, Clone, Debug)]
pub(crate) struct Consumption {
    #[arg(long)]
    connection_string: String,
    #[arg(long)]
    count: u64,
    #[arg(long)]
    prefetch: u32,
    /// How many of a hundred messages fail the first time.
    #[arg(long)]
    failures: u64,
    /// What reads and settles.
    #[arg(long, default_value = "redrive")]
    by: By,
}

/// What consumes the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum By {
    Redrive,
    /// The client library, by hand: it settles without hearing the outcome.
    Library,
    /// Frames of our own, by hand.
    Frames,
    /// redrive in process: what its engine takes without a wire.
    Memory,
}

impl By {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Redrive => "redrive",
            Self::Library => "library",
            Self::Frames => "frames",
            Self::Memory => "memory",
        }
    }
}

pub(crate) async fn consume(task: Consumption) -> Result<()> {
    match task.by {
        By::Redrive => with_redrive(ServiceBus::connect(&task.connection_string, QUEUE).await?, &task).await,
        By::Memory => {
            let memory = redrive::memory::Memory::new(QUEUE);
            for number in 0..task.count {
                memory.publish(Message::new(task::body(number, BODY)).with_id(number.to_string())).await?;
            }
            with_redrive(memory, &task).await
        }
        By::Library | By::Frames => by_hand(&task).await,
    }
}

async fn with_redrive(transport: impl Transport, task: &Consumption) -> Result<()> {
    let tally = Arc::new(Tally::new(task.count));
    let (handled, settled, done) = (Arc::clone(&tally), Arc::clone(&tally), Arc::clone(&tally));
    let failures = task.failures;
    ready().await?;
    let report = Consumer::new(transport)
        .concurrency(usize::try_from(task.prefetch)?)
        .prefetch(task.prefetch)
        .with_dead_letter_backoff([WAIT])
        .observer(move |event: &Event<'_>| {
            if let Event::Settled { disposition: Disposition::Ack, .. } = event {
                settled.settled(1);
            }
        })
        .handler(move |body: Bytes, Attempt(attempt): Attempt| {
            let fails = attempt == 1 && task::number(&body).is_some_and(|number| number % 100 < failures);
            if !fails {
                handled.handle(&body);
            }
            std::future::ready(if fails {
                Err(BoxError::from("the carrier does not answer"))
            } else {
                Ok(())
            })
        })
        .run_until(async move { done.until_settled().await })
        .await?;
    let expected = (0..task.count).filter(|number| number % 100 < failures).count() as u64;
    if report.acknowledged != task.count || report.retried != expected {
        return Err(anyhow!("{} acknowledged and {expected} retried were expected: {report:?}", task.count));
    }
    finish(&tally, async { Ok(()) }).await
}

async fn by_hand(task: &Consumption) -> Result<()> {
    ensure!(task.failures == 0, "what is written by hand retries nothing");
    let address =
        task.connection_string.strip_prefix("Endpoint=sb://").and_then(|rest| rest.split(';').next());
    let address = address.context("the connection string begins with its endpoint")?;
    let tally = Tally::new(task.count);
    ready().await?;
    if task.by == By::Frames {
        frames::consume(address, QUEUE, task.prefetch, &tally).await?;
    } else {
        library::consume(address, QUEUE, task.prefetch, &tally).await?;
    }
    finish(&tally, async { Ok(()) }).await
}
