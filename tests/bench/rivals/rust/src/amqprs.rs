//! amqprs, with its asynchronous consumer: each message acknowledged for itself, or in batches.

use std::sync::Arc;

use ::amqprs::channel::{BasicAckArguments, BasicConsumeArguments, BasicQosArguments, Channel};
use ::amqprs::connection::{Connection, OpenConnectionArguments};
use ::amqprs::consumer::AsyncConsumer;
use ::amqprs::{BasicProperties, Deliver};
use anyhow::{Context as _, Result};

use crate::Task;
use crate::tally::{Tally, ready};

pub async fn run(task: Task, batch: u64) -> Result<()> {
    let tally = Arc::new(Tally::new(task.count));
    let connection = Connection::open(&arguments(&task.url)?).await?;
    let channel = connection.open_channel(None).await?;
    channel.basic_qos(BasicQosArguments::new(0, task.prefetch, false)).await?;
    ready()?;
    let consuming = BasicConsumeArguments::new(&task.queue, "bench").manual_ack(true).finish();
    let consumer = Consumer { tally: Arc::clone(&tally), batch, pending: 0 };
    channel.basic_consume(consumer, consuming).await?;
    tally.until_settled().await;
    tally.finish().await?;
    channel.close().await?;
    Ok(connection.close().await?)
}

struct Consumer {
    tally: Arc<Tally>,
    batch: u64,
    pending: u64,
}

#[async_trait::async_trait]
impl AsyncConsumer for Consumer {
    async fn consume(&mut self, channel: &Channel, deliver: Deliver, _: BasicProperties, content: Vec<u8>) {
        let last = self.tally.handle(&content);
        self.pending += 1;
        // There is no timer: the queue is never empty before the end.
        if self.pending >= self.batch || last {
            let acknowledging = BasicAckArguments::new(deliver.delivery_tag(), self.batch > 1);
            channel.basic_ack(acknowledging).await.expect("the acknowledgement is sent");
            self.tally.settled(std::mem::take(&mut self.pending));
        }
    }
}

/// From `amqp://user:password@host:port/vhost`.
fn arguments(url: &str) -> Result<OpenConnectionArguments> {
    let rest = url.strip_prefix("amqp://").context("the URL begins with amqp://")?;
    // The frame size is redrive's and lapin's to ask for.
    let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
    let (user, rest) = rest.split_once('@').context("the URL has a user")?;
    let (name, password) = user.split_once(':').context("the user has a password")?;
    let (address, vhost) = rest.split_once('/').context("the URL has a virtual host")?;
    let (host, port) = address.split_once(':').context("the URL has a port")?;
    let mut arguments = OpenConnectionArguments::new(host, port.parse()?, name, password);
    arguments.virtual_host(&vhost.replace("%2f", "/"));
    Ok(arguments)
}
