//! An experiment: a retry in one frame. AMQP 1.0 settles a delivery as `modified`, with the time of its next delivery and annotations of
//! our own, and RabbitMQ 4.3 holds it back in its quorum queue: no copy, no confirm, no delay queue.

mod client;
mod cost;
mod kill;
mod observed;
mod target;
mod waiting;

use std::ops::Range;

use anyhow::{Result, ensure};
use clap::{Subcommand, ValueEnum};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};

const QUEUE: &str = "in-place";
/// Unconfirmed messages at most.
const WINDOW: usize = 500;

/// How a retried message waits.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    /// `modified` with a delivery time, by AMQP 1.0.
    InPlace,
    /// A copy in a delay queue, by redrive.
    Ladder,
    /// Returned to a queue that delays, by redrive.
    Native,
}

impl Mode {
    const ALL: [Self; 3] = [Self::InPlace, Self::Ladder, Self::Native];
}

#[derive(Debug, Subcommand)]
pub(crate) enum InPlace {
    /// What a retry costs broker and client.
    Cost(cost::Plan),
    /// Each message fails three times while the broker is killed.
    Kill(kill::Plan),
    /// A million messages that wait, and large annotations.
    Waiting(waiting::Plan),
    /// Dead letters whose target is there, forbidden, full or missing, with both strategies.
    Target,
}

pub(crate) async fn run(what: InPlace) -> Result<()> {
    match what {
        InPlace::Kill(plan) => {
            kill::check(&plan)?;
            kill::run(&plan).await
        }
        InPlace::Cost(plan) => cost::run(&plan).await,
        InPlace::Waiting(plan) => waiting::run(&plan).await,
        InPlace::Target => target::run().await,
    }
}

async fn channel(url: &str) -> Result<(Connection, Channel)> {
    let connection = Connection::connect(url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    Ok((connection, channel))
}

/// Declares a quorum queue without a delivery limit that the test could reach.
async fn declare(url: &str, queue: &str, arguments: &[(&str, AMQPValue)]) -> Result<()> {
    let (connection, channel) = channel(url).await?;
    let mut table = FieldTable::default();
    table.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    table.insert("x-delivery-limit".into(), AMQPValue::LongInt(100_000));
    for (name, value) in arguments {
        table.insert((*name).into(), value.clone());
    }
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(queue.into(), options, table).await?;
    connection.close(200, "OK".into()).await?;
    Ok(())
}

/// Publishes messages whose bodies are these numbers, and waits until all are confirmed.
async fn publish(url: &str, queue: &str, numbers: Range<usize>) -> Result<()> {
    let (connection, channel) = channel(url).await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let properties = BasicProperties::default().with_delivery_mode(2);
    let mut confirms = FuturesUnordered::new();
    for number in numbers {
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let properties = properties.clone().with_message_id(number.to_string().into());
        let body = number.to_string();
        confirms.push(
            channel.basic_publish("".into(), queue.into(), options, body.as_bytes(), properties).await?,
        );
        if confirms.len() == WINDOW {
            confirmed(confirms.next().await)?;
        }
    }
    while let Some(answer) = confirms.next().await {
        confirmed(Some(answer))?;
    }
    connection.close(200, "OK".into()).await?;
    Ok(())
}

fn confirmed(answer: Option<lapin::Result<lapin::Confirmation>>) -> Result<()> {
    let Some(answer) = answer else { return Ok(()) };
    ensure!(matches!(answer?, lapin::Confirmation::Ack(None)), "a message was refused");
    Ok(())
}
