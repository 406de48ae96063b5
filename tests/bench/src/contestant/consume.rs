//! Consume and acknowledge, written by hand with lapin.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use lapin::Channel;
use lapin::message::Delivery;
use lapin::options::BasicAckOptions;
use tokio::time::{Instant, sleep_until};

use super::by_hand::{Link, Prefix, arrived, batch_of, next};
use super::{Tally, finish};
use crate::task::Task;

/// How long a finished message may wait for others to be acknowledged with.
pub(super) const FLUSH_AFTER: Duration = Duration::from_millis(5);
pub(super) const UP_TO_HERE: BasicAckOptions = BasicAckOptions { multiple: true };

/// The limit: nothing is acknowledged, and a crash loses what was in flight.
pub(super) async fn no_acks(task: Task) -> Result<()> {
    let (link, tally) = (Link::open(&task).await?, Tally::new(task.count));
    let mut consumer = link.consume(&task, true).await?;
    while !tally.is_settled() {
        handle(&tally, &next(&mut consumer).await?).await;
        tally.settled(1);
    }
    finish(&tally, link.part()).await
}

/// What the documentation of lapin shows: each acknowledgement is awaited before the next message is looked at.
pub(super) async fn awaited_acks(task: Task) -> Result<()> {
    let (link, tally) = (Link::open(&task).await?, Tally::new(task.count));
    let mut consumer = link.consume(&task, false).await?;
    while !tally.is_settled() {
        let delivery = next(&mut consumer).await?;
        handle(&tally, &delivery).await;
        delivery.ack(BasicAckOptions::default()).await?;
        tally.settled(1);
    }
    finish(&tally, link.part()).await
}

/// Messages are handled at the same time, and each is acknowledged for itself.
pub(super) async fn concurrent_acks(task: Task) -> Result<()> {
    let (link, tally) = (Link::open(&task).await?, Tally::new(task.count));
    let mut consumer = link.consume(&task, false).await?;
    let tally = &tally;
    let mut running = FuturesUnordered::new();
    let work = async |delivery: Delivery| -> Result<()> {
        handle(tally, &delivery).await;
        delivery.ack(BasicAckOptions::default()).await?;
        tally.settled(1);
        Ok(())
    };
    while !tally.is_settled() {
        tokio::select! {
            Some(done) = running.next() => done?,
            delivery = next(&mut consumer) => running.push(work(delivery?)),
        }
    }
    finish(tally, link.part()).await
}

/// One message after the other, acknowledged together: `multiple` after [`batch_of`] messages or [`FLUSH_AFTER`]. The
/// acknowledgement is not waited for: the next ones are handled meanwhile. This is the best that was found.
pub(super) async fn coalesced(task: Task) -> Result<()> {
    let (link, tally) = (Link::open(&task).await?, Tally::new(task.count));
    let mut consumer = link.consume(&task, false).await?;
    let batch = batch_of(task.prefetch);
    let (mut last, mut pending) = (0, 0);
    let mut acks = FuturesUnordered::new();
    let mut flush = pin!(sleep_until(Instant::now()));
    while !tally.is_settled() {
        // The timer costs nothing as long as there is something to do.
        let delivery = match arrived(&mut consumer)? {
            Some(delivery) => Some(delivery),
            None => tokio::select! {
                biased;
                Some(acked) = acks.next() => { tally.settled(acked?); None }
                delivery = next(&mut consumer) => Some(delivery?),
                () = &mut flush, if pending > 0 => {
                    acks.push(ack(&link.channel, last, std::mem::take(&mut pending)));
                    None
                }
            },
        };
        let Some(delivery) = delivery else { continue };
        handle(&tally, &delivery).await;
        last = delivery.delivery_tag;
        if pending == 0 {
            flush.as_mut().reset(Instant::now() + FLUSH_AFTER);
        }
        pending += 1;
        if pending >= batch || tally.all_handled() {
            acks.push(ack(&link.channel, last, std::mem::take(&mut pending)));
            // It is on its way only once it was polled.
            while let Some(Some(acked)) = acks.next().now_or_never() {
                tally.settled(acked?);
            }
        }
    }
    drop(acks);
    finish(&tally, link.part()).await
}

/// The same for handlers that run at the same time and end in any order: what is done without a gap is acknowledged
/// together.
pub(super) async fn prefix(task: Task) -> Result<()> {
    let (link, tally) = (Link::open(&task).await?, Arc::new(Tally::new(task.count)));
    let mut consumer = link.consume(&task, false).await?;
    let batch = batch_of(task.prefetch);
    let mut done = Prefix::default();
    let (mut running, mut acks) = (FuturesUnordered::new(), FuturesUnordered::new());
    let mut flush = pin!(sleep_until(Instant::now()));
    let work = async |delivery: Delivery| {
        handle(&tally, &delivery).await;
        delivery.delivery_tag
    };
    while !tally.is_settled() {
        tokio::select! {
            biased;
            // First: an acknowledgement is on its way only once it was polled.
            Some(acked) = acks.next() => tally.settled(acked?),
            Some(tag) = running.next() => {
                if done.len() == 0 {
                    flush.as_mut().reset(Instant::now() + FLUSH_AFTER);
                }
                done.complete(tag);
                if done.len() >= batch || tally.all_handled() {
                    acks.extend(done.take().map(|(tag, many)| ack(&link.channel, tag, many)));
                }
            }
            delivery = next(&mut consumer) => running.push(work(delivery?)),
            () = &mut flush, if done.len() > 0 => {
                acks.extend(done.take().map(|(tag, many)| ack(&link.channel, tag, many)));
            }
        }
    }
    drop(acks);
    finish(&tally, link.part()).await
}

async fn handle(tally: &Tally, delivery: &Delivery) {
    tally.handle(&delivery.data);
}

/// Acknowledges everything up to `tag`, which are so `many`.
pub(super) async fn ack(channel: &Channel, tag: u64, many: u64) -> Result<u64> {
    channel.basic_ack(tag, UP_TO_HERE).await?;
    Ok(many)
}
