//! The retry path and its like, written by hand with lapin: a confirmed copy into another queue, then the
//! acknowledgement of the original. What is not to be copied is acknowledged.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicPublishOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, Consumer};
use tokio::time::{Instant, sleep_until};

use super::by_hand::{Link, Prefix, arrived, batch_of, confirming, connect, next};
use super::consume::{FLUSH_AFTER, ack};
use super::{Tally, finish};
use crate::task::{Fate, Task};

/// Connections, and what is common to all ways of copying.
struct Copying {
    link: Link,
    /// A connection of its own: when the broker is short of memory it stops reading connections that publish.
    publishing: Connection,
    tally: Arc<Tally>,
    task: Task,
}

impl Copying {
    async fn open(task: Task) -> Result<Self> {
        let (link, publishing) = (Link::open(&task).await?, connect(&task.url).await?);
        Ok(Self { link, publishing, tally: Arc::new(Tally::new(task.count)), task })
    }

    async fn consume(&self) -> Result<Consumer> {
        self.link.consume(&self.task, false).await
    }

    /// Handles a message; where its copy goes, if it fails.
    fn handle(&self, delivery: &Delivery) -> Option<ShortString> {
        let fate = self.task.work.fate(self.tally.handle(&delivery.data));
        match fate {
            Fate::Acknowledged => None,
            failed => failed.queue(&self.task.queue).map(|name| name.as_str().into()),
        }
    }

    async fn finish(&self) -> Result<()> {
        finish(&self.tally, async {
            self.link.part().await?;
            Ok(self.publishing.close(200, "done".into()).await?)
        })
        .await
    }
}

/// One message after the other, everything awaited.
pub(super) async fn one_at_a_time(task: Task) -> Result<()> {
    let copying = Copying::open(task).await?;
    let channel = confirming(&copying.publishing).await?;
    let mut consumer = copying.consume().await?;
    while !copying.tally.is_settled() {
        let delivery = next(&mut consumer).await?;
        if let Some(queue) = copying.handle(&delivery) {
            stored(&publish(&channel, queue, &delivery, Written::Attempt).await?)?;
        }
        delivery.ack(BasicAckOptions::default()).await?;
        copying.tally.settled(1);
    }
    copying.finish().await
}

/// As many at the same time as the prefetch allows, on one channel; acknowledgements coalesced. Fast and **wrong**: with
/// several copies on their way, lapin may tell of a returned one on the confirm of another. It is here as a limit.
pub(super) async fn pipelined(task: Task) -> Result<()> {
    let copying = Copying::open(task).await?;
    let channel = confirming(&copying.publishing).await?;
    settle_in_prefixes(&copying, async |delivery, queue| {
        stored(&publish(&channel, queue, &delivery, Written::Attempt).await?)?;
        Ok(delivery.delivery_tag)
    })
    .await
}

/// Right by having one copy on its way on each channel; acknowledgements coalesced.
pub(super) async fn channels(task: Task) -> Result<()> {
    const CHANNELS: usize = 64;
    let copying = Copying::open(task).await?;
    let mut idle = Vec::new();
    for _ in 0..CHANNELS {
        idle.push(confirming(&copying.publishing).await?);
    }
    let idle = parking_lot::Mutex::new(idle);
    let room = tokio::sync::Semaphore::new(CHANNELS);
    settle_in_prefixes(&copying, async |delivery, queue| {
        let _room = room.acquire().await?;
        let channel = idle.lock().pop().expect("there is one for each permit");
        stored(&publish(&channel, queue, &delivery, Written::Attempt).await?)?;
        idle.lock().push(channel);
        Ok(delivery.delivery_tag)
    })
    .await
}

/// Handles and copies at the same time; acknowledges together what is done without a gap.
async fn settle_in_prefixes(
    copying: &Copying,
    copy: impl AsyncFn(Delivery, ShortString) -> Result<u64>,
) -> Result<()> {
    let (tally, channel) = (&copying.tally, &copying.link.channel);
    let mut consumer = copying.consume().await?;
    let batch = batch_of(copying.task.prefetch);
    let mut done = Prefix::default();
    let (mut running, mut acks) = (FuturesUnordered::new(), FuturesUnordered::new());
    let mut flush = pin!(sleep_until(Instant::now()));
    let work = async |delivery: Delivery| match copying.handle(&delivery) {
        Some(queue) => copy(delivery, queue).await,
        None => Ok(delivery.delivery_tag),
    };
    while !tally.is_settled() {
        tokio::select! {
            biased;
            Some(acked) = acks.next() => tally.settled(acked?),
            Some(tag) = running.next() => {
                if done.len() == 0 {
                    flush.as_mut().reset(Instant::now() + FLUSH_AFTER);
                }
                done.complete(tag?);
                if done.len() >= batch {
                    acks.extend(done.take().map(|(tag, many)| ack(channel, tag, many)));
                }
            }
            delivery = next(&mut consumer) => running.push(work(delivery?)),
            () = &mut flush, if done.len() > 0 => {
                acks.extend(done.take().map(|(tag, many)| ack(channel, tag, many)));
            }
        }
    }
    drop((running, acks));
    copying.finish().await
}

/// Barrier batches: what has arrived is published together; once every confirm of the batch is in, the returned ones are
/// told apart by their message id, whichever confirm they were reported on. Several batches are on their way, each on a
/// channel of its own. The best that was found among those that are right.
pub(super) async fn batches(task: Task, written: Written) -> Result<()> {
    let copying = Copying::open(task).await?;
    let (tally, channel) = (&copying.tally, &copying.link.channel);
    let prefetch = usize::from(copying.task.prefetch);
    let lanes = 4.min(prefetch);
    let most = (prefetch / lanes).clamp(1, 256);
    let mut idle = Vec::new();
    for _ in 0..lanes {
        idle.push(confirming(&copying.publishing).await?);
    }
    let mut consumer = copying.consume().await?;
    let mut done = Prefix::default();
    let (mut running, mut acks) = (FuturesUnordered::new(), FuturesUnordered::new());
    let mut waiting: Vec<(Delivery, ShortString)> = Vec::new();
    let ack_batch = batch_of(copying.task.prefetch);
    let mut flush = pin!(sleep_until(Instant::now()));
    while !tally.is_settled() {
        let mut next_delivery = arrived(&mut consumer)?;
        if next_delivery.is_none() {
            if !waiting.is_empty()
                && let Some(lane) = idle.pop()
            {
                let rest = waiting.split_off(most.min(waiting.len()));
                running.push(barrier(lane, std::mem::replace(&mut waiting, rest), written));
            }
            tokio::select! {
                biased;
                Some(batch) = running.next() => {
                    let (lane, tags) = batch?;
                    idle.push(lane);
                    if done.len() == 0 {
                        flush.as_mut().reset(Instant::now() + FLUSH_AFTER);
                    }
                    tags.into_iter().for_each(|tag| done.complete(tag));
                }
                Some(acked) = acks.next() => tally.settled(acked?),
                delivery = next(&mut consumer) => next_delivery = Some(delivery?),
                () = &mut flush, if done.len() > 0 => {
                    acks.extend(done.take().map(|(tag, many)| ack(channel, tag, many)));
                }
            }
        }
        if let Some(delivery) = next_delivery {
            match copying.handle(&delivery) {
                Some(queue) => waiting.push((delivery, queue)),
                None => {
                    if done.len() == 0 {
                        flush.as_mut().reset(Instant::now() + FLUSH_AFTER);
                    }
                    done.complete(delivery.delivery_tag);
                }
            }
            if waiting.len() >= most
                && let Some(lane) = idle.pop()
            {
                let rest = waiting.split_off(most.min(waiting.len()));
                running.push(barrier(lane, std::mem::replace(&mut waiting, rest), written));
            }
        }
        if done.len() >= ack_batch {
            acks.extend(done.take().map(|(tag, many)| ack(channel, tag, many)));
            // It is on its way only once it was polled; so are the batches.
            while let Some(Some(acked)) = acks.next().now_or_never() {
                tally.settled(acked?);
            }
        }
    }
    drop((running, acks));
    copying.finish().await
}

/// Publishes a batch, waits for all its confirms, and tells which deliveries are stored; here that must be all.
async fn barrier(
    lane: Channel,
    batch: Vec<(Delivery, ShortString)>,
    written: Written,
) -> Result<(Channel, Vec<u64>)> {
    let publishing = batch.iter().map(|(delivery, queue)| publish(&lane, queue.clone(), delivery, written));
    let mut returned = HashSet::new();
    for confirmation in try_join_all(publishing).await? {
        if let Some(message) = confirmation.take_message() {
            returned.extend(message.delivery.properties.message_id().clone());
        }
    }
    let is_stored = |delivery: &Delivery| {
        returned.is_empty()
            || !delivery.properties.message_id().as_ref().is_some_and(|id| returned.contains(id))
    };
    ensure!(batch.iter().all(|(delivery, _)| is_stored(delivery)), "copies came back: no queue takes them");
    Ok((lane, batch.iter().map(|(delivery, _)| delivery.delivery_tag).collect()))
}

/// What a copy carries besides what it had.
#[derive(Clone, Copy)]
pub(super) enum Written {
    /// The least that a retry needs: how often the message has failed.
    Attempt,
    /// As many headers as redrive writes, of the same names, kinds and sizes.
    FailureHistory,
}

impl Written {
    fn onto(self, headers: &mut FieldTable, delivery: &Delivery) {
        if let Self::Attempt = self {
            headers.insert("x-attempt".into(), AMQPValue::LongInt(1));
            return;
        }
        let text = |text: &str| AMQPValue::LongString(text.into());
        let (error, reason) = ("the carrier does not answer", "RetryableError");
        let (now, due) = ("2026-01-01T00:00:00.000Z", "2026-01-01T01:00:00.000Z");
        let mut failure = FieldTable::default();
        failure.insert("attempt".into(), AMQPValue::LongLongInt(1));
        failure.insert("at".into(), text(now));
        failure.insert("reason".into(), text(reason));
        failure.insert("error".into(), text(error));
        failure.insert("wait-ms".into(), AMQPValue::LongLongInt(3_600_000));
        let history = AMQPValue::FieldArray(vec![AMQPValue::FieldTable(failure)].into());
        let id = delivery.properties.message_id().as_ref().map_or("", ShortString::as_str);
        for (name, value) in [
            ("redrive-attempt", AMQPValue::LongLongInt(1)),
            ("redrive-due-at", text(due)),
            ("redrive-error", text(error)),
            ("redrive-fingerprint", text("0123456789abcdef")),
            ("redrive-first-failed-at", text(now)),
            ("redrive-history", history),
            ("redrive-hop", AMQPValue::LongLongInt(1)),
            ("redrive-last-failed-at", text(now)),
            ("redrive-message-id", text(id)),
            ("redrive-reason", text(reason)),
            ("redrive-source-exchange", text(delivery.exchange.as_str())),
            ("redrive-source-queue", text(delivery.routing_key.as_str())),
            ("redrive-source-routing-key", text(delivery.routing_key.as_str())),
        ] {
            headers.insert(name.into(), value);
        }
    }
}

async fn publish(
    channel: &Channel,
    queue: ShortString,
    delivery: &Delivery,
    written: Written,
) -> Result<Confirmation> {
    let mut headers = delivery.properties.headers().clone().unwrap_or_default();
    written.onto(&mut headers, delivery);
    let properties: BasicProperties = delivery.properties.clone().with_headers(headers).with_delivery_mode(2);
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let sent = channel.basic_publish("".into(), queue, options, &delivery.data, properties);
    Ok(sent.await?.await?)
}

fn stored(confirmation: &Confirmation) -> Result<()> {
    ensure!(*confirmation == Confirmation::Ack(None), "a copy was not stored: {confirmation:?}");
    Ok(())
}
