//! The queues of a run: made by redrive itself, filled, counted, emptied.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use lapin::options::{
    BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions, QueuePurgeOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use redrive::Health;
use redrive::prelude::*;
use tokio::time::{Instant, sleep};

use crate::contestant::redrive_queue_type;
use crate::task::{self, Fate, QueueType, RETRY_WAIT, Work};

/// A new quorum queue needs this long before redrive entrusts copies to it.
const GROWING_UP: Duration = Duration::from_millis(3500);
/// Counts of quorum queues lag behind.
const FILL_TIMEOUT: Duration = Duration::from_secs(20);
const WINDOW: usize = 2000;

/// The queues on one broker.
pub(crate) struct Queues {
    connection: Connection,
    channel: Channel,
    work: String,
}

impl Queues {
    /// Has redrive declare its queues, so that all contestants use the very same.
    pub(crate) async fn make(url: &str, queue_type: QueueType) -> Result<Self> {
        let connection = Connection::connect(url, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        let work = format!("redrive-bench-{}", queue_type.name());
        let queues = Self { connection, channel, work };
        queues.remove_all().await?;
        let transport =
            RabbitMq::options(&queues.work).queue_type(redrive_queue_type(queue_type)).connect(url).await?;
        let consumer =
            Consumer::new(transport).with_dead_letter_backoff([RETRY_WAIT]).handler(|_: Bytes| async {});
        let handle = consumer.handle();
        let declared = async {
            handle.wait_for_health(Health::is_ready).await;
        };
        consumer.run_until(declared).await?;
        sleep(GROWING_UP).await;
        Ok(queues)
    }

    pub(crate) fn work(&self) -> &str {
        &self.work
    }

    /// Puts this many persistent messages into the work queue, empties the others, and waits until they lie there.
    pub(crate) async fn fill(&self, work: Work, count: u64) -> Result<()> {
        for queue in self.all() {
            self.channel.queue_purge(queue.as_str().into(), QueuePurgeOptions::default()).await?;
        }
        self.add(work, count).await?;
        self.wait_for(&self.work, count).await
    }

    /// Puts more messages into the work queue.
    pub(crate) async fn add(&self, work: Work, count: u64) -> Result<()> {
        let channel = self.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let mut sent = FuturesUnordered::new();
        for number in 0..count {
            sent.push(self.publish(&channel, number, work.body_bytes()));
            if sent.len() >= WINDOW {
                sent.next().await.context("something is on its way")??;
            }
        }
        while let Some(stored) = sent.next().await {
            stored?;
        }
        drop(sent);
        Ok(channel.close(200, "filled".into()).await?)
    }

    async fn publish(&self, channel: &Channel, number: u64, bytes: usize) -> Result<()> {
        let properties = BasicProperties::default()
            .with_delivery_mode(2)
            .with_content_type("application/octet-stream".into())
            .with_message_id(format!("bench-{number:012}").into());
        let body = task::body(number, bytes);
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let sent = channel.basic_publish("".into(), self.work.as_str().into(), options, &body, properties);
        let confirmation = sent.await?.await?;
        ensure!(confirmation.is_ack(), "the broker refuses messages: {confirmation:?}");
        Ok(())
    }

    /// An error when a message is not where it belongs. The contestant must have left before.
    pub(crate) async fn check(&self, work: Work, count: u64) -> Result<()> {
        let mut expected = vec![(self.work.clone(), 0)];
        for fate in [Fate::Retried, Fate::DeadLettered, Fate::Parked] {
            expected.extend(fate.queue(&self.work).map(|queue| (queue, work.how_many(fate, count))));
        }
        for (queue, messages) in expected {
            self.wait_for(&queue, messages).await?;
        }
        Ok(())
    }

    /// Waits until this many messages lie in a queue, twice in a row: some may be on their way back.
    async fn wait_for(&self, queue: &str, messages: u64) -> Result<()> {
        let began = Instant::now();
        let mut right = 0;
        loop {
            let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            let found = self.channel.queue_declare(queue.into(), options, FieldTable::default()).await?;
            let found = u64::from(found.message_count());
            right = if found == messages { right + 1 } else { 0 };
            if right == 2 {
                return Ok(());
            }
            ensure!(
                began.elapsed() < FILL_TIMEOUT,
                "{found} messages lie in `{queue}` instead of {messages}"
            );
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn all(&self) -> Vec<String> {
        let copies = [Fate::Retried, Fate::DeadLettered, Fate::Parked];
        copies.iter().filter_map(|fate| fate.queue(&self.work)).chain([self.work.clone()]).collect()
    }

    /// Removes the queues, and with them what the contestants left.
    pub(crate) async fn remove_all(&self) -> Result<()> {
        for queue in self.all() {
            self.channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()).await?;
        }
        Ok(())
    }
}
