//! redrive, with the whole preset on.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use redrive::prelude::*;
use redrive::{Event, Reason};

use super::{Tally, finish, ready};
use crate::task::{self, Fate, RETRY_WAIT, Task};

pub(super) async fn run(task: Task) -> Result<()> {
    let transport =
        RabbitMq::options(&task.queue).queue_type(queue_type(task.queue_type)).connect(&task.url).await?;
    let tally = Arc::new(Tally::new(task.count));
    let concurrency = usize::from(task.prefetch);
    let (handled, settled, done) = (Arc::clone(&tally), Arc::clone(&tally), Arc::clone(&tally));
    let work = task.work;
    ready().await?;
    let consumer = Consumer::new(transport)
        .concurrency(concurrency)
        .prefetch(task.prefetch.into())
        .with_dead_letter_backoff([RETRY_WAIT])
        .observer(move |event: &Event<'_>| {
            if let Event::Settled { disposition, .. } = event
                && **disposition != Disposition::Release
            {
                settled.settled(1);
            }
        })
        .handler(move |body: Bytes| {
            let number = handled.handle(&body);
            std::future::ready(answer(work, number))
        });
    let reporting = async move {
        done.until_settled().await;
    };
    let running = consumer.run_until(reporting);
    let report = running.await?;
    let ended = report.acknowledged + report.retried + report.dead_lettered + report.parked;
    if ended != task.count {
        return Err(anyhow!("{ended} messages were settled of {}: {report:?}", task.count));
    }
    finish(&tally, async { Ok(()) }).await
}

fn answer(work: task::Work, number: u64) -> Result<Disposition, BoxError> {
    match work.fate(number) {
        Fate::Acknowledged => Ok(Disposition::Ack),
        Fate::Retried => Err("the carrier does not answer".into()),
        Fate::DeadLettered => Ok(Err("no such item").permanent()?),
        Fate::Parked => Ok(Disposition::Park(Failure::new(Reason::Undecided, "people must look at this"))),
    }
}

pub(crate) fn queue_type(queue_type: task::QueueType) -> redrive::rabbitmq::QueueType {
    match queue_type {
        task::QueueType::Classic => redrive::rabbitmq::QueueType::Classic,
        task::QueueType::Quorum => redrive::rabbitmq::QueueType::Quorum,
    }
}
