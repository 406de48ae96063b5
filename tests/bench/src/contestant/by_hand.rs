//! What the contestants that are written by hand with lapin share.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::{FutureExt as _, StreamExt as _};
use lapin::message::Delivery;
use lapin::options::{BasicConsumeOptions, BasicQosOptions, ConfirmSelectOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties, Consumer};

use super::ready;
use crate::task::Task;

/// A connection, and a channel on it that limits what is handed out.
pub(super) struct Link {
    connection: Connection,
    pub(super) channel: Channel,
}

impl Link {
    /// Connects, waits for the signal, and does not yet consume.
    pub(super) async fn open(task: &Task) -> Result<Self> {
        let connection = connect(&task.url).await?;
        let channel = connection.create_channel().await?;
        channel.basic_qos(task.prefetch, BasicQosOptions { global: false }).await?;
        Ok(Self { connection, channel })
    }

    pub(super) async fn consume(&self, task: &Task, no_ack: bool) -> Result<Consumer> {
        ready().await?;
        let options = BasicConsumeOptions { no_ack, ..BasicConsumeOptions::default() };
        let queue = task.queue.as_str().into();
        Ok(self.channel.basic_consume(queue, "by-hand".into(), options, FieldTable::default()).await?)
    }

    /// RabbitMQ hands about 32 settlements of a channel on to a quorum queue at once, and forgets those still waiting when
    /// the channel closes: it needs a moment first. What comes back to the queue would be counted as not done.
    pub(super) async fn part(&self) -> Result<()> {
        tokio::time::sleep(Duration::from_millis(500)).await;
        self.channel.close(200, "done".into()).await?;
        Ok(self.connection.close(200, "done".into()).await?)
    }
}

pub(super) async fn connect(url: &str) -> Result<Connection> {
    Connection::connect(url, ConnectionProperties::default()).await.context("cannot connect")
}

/// A channel of `connection` that publishes with confirms.
pub(super) async fn confirming(connection: &Connection) -> Result<Channel> {
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok(channel)
}

pub(super) async fn next(consumer: &mut Consumer) -> Result<Delivery> {
    Ok(consumer.next().await.context("RabbitMQ ended the subscription")??)
}

/// What has arrived already, without waiting.
pub(super) fn arrived(consumer: &mut Consumer) -> Result<Option<Delivery>> {
    match consumer.next().now_or_never() {
        None => Ok(None),
        Some(next) => Ok(Some(next.context("RabbitMQ ended the subscription")??)),
    }
}

/// How many deliveries one acknowledgement takes in: more than half of the prefetch would leave the broker waiting.
pub(super) fn batch_of(prefetch: u16) -> u64 {
    u64::from(prefetch / 2).clamp(1, 64)
}

/// Which delivery tags are done, when they do not become so in order.
#[derive(Debug)]
pub(super) struct Prefix {
    /// The lowest tag that is not acknowledged.
    first: u64,
    done: VecDeque<bool>,
    contiguous: usize,
}

impl Default for Prefix {
    fn default() -> Self {
        Self { first: 1, done: VecDeque::new(), contiguous: 0 }
    }
}

impl Prefix {
    pub(super) fn complete(&mut self, tag: u64) {
        let place = usize::try_from(tag - self.first).expect("it fits into memory");
        if place >= self.done.len() {
            self.done.resize(place + 1, false);
        }
        self.done[place] = true;
        while self.done.get(self.contiguous) == Some(&true) {
            self.contiguous += 1;
        }
    }

    /// How many could be acknowledged at once.
    pub(super) fn len(&self) -> u64 {
        self.contiguous as u64
    }

    /// The tag up to which all are done, and how many these are; they count as acknowledged from now on.
    pub(super) fn take(&mut self) -> Option<(u64, u64)> {
        if self.contiguous == 0 {
            return None;
        }
        let taken = self.contiguous as u64;
        self.done.drain(..self.contiguous);
        self.contiguous = 0;
        self.first += taken;
        Some((self.first - 1, taken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_done_without_a_gap_is_taken() {
        let mut prefix = Prefix::default();
        prefix.complete(2);
        assert_eq!(prefix.take(), None);
        prefix.complete(1);
        prefix.complete(4);
        assert_eq!(prefix.len(), 2);
        assert_eq!(prefix.take(), Some((2, 2)));
        assert_eq!(prefix.take(), None);
        prefix.complete(3);
        assert_eq!(prefix.take(), Some((4, 2)));
    }

    #[test]
    fn a_batch_is_never_above_half_the_prefetch() {
        assert_eq!([1, 2, 50, 200, 1000].map(batch_of), [1, 1, 25, 64, 64]);
    }
}
