//! lapin against the emulator, over sockets: what the value's own tests cannot see.

#[path = "../binary/mod.rs"]
mod binary;
mod faults;
mod library;
mod process;

use futures::StreamExt as _;
use lapin::options::{BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};

async fn connect(url: &str) -> Connection {
    Connection::connect(url, ConnectionProperties::default()).await.expect("a connection")
}

async fn channel(connection: &Connection) -> Channel {
    let channel = connection.create_channel().await.expect("a channel");
    channel.confirm_select(ConfirmSelectOptions::default()).await.expect("confirms");
    channel
}

fn arguments(entries: &[(&str, AMQPValue)]) -> FieldTable {
    let mut table = FieldTable::default();
    for (key, value) in entries {
        table.insert((*key).into(), value.clone());
    }
    table
}

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

async fn declare(channel: &Channel, name: &str, entries: &[(&str, AMQPValue)]) {
    let options = QueueDeclareOptions { durable: true, ..Default::default() };
    channel.queue_declare(name.into(), options, arguments(entries)).await.expect("a queue");
}

/// Publishes a persistent message, and returns the answer.
async fn publish(channel: &Channel, queue: &str, body: &str) -> lapin::Result<Confirmation> {
    let properties = BasicProperties::default().with_delivery_mode(2);
    let options = BasicPublishOptions { mandatory: true, ..Default::default() };
    let confirm =
        channel.basic_publish("".into(), queue.into(), options, body.as_bytes(), properties).await?;
    confirm.await
}

/// Takes this many messages, and acknowledges them.
async fn take(channel: &Channel, queue: &str, count: usize) -> Vec<String> {
    let consumer = channel
        .basic_consume(queue.into(), "taker".into(), BasicConsumeOptions::default(), FieldTable::default())
        .await
        .expect("a consumer");
    let mut consumer = consumer.take(count);
    let mut bodies = Vec::new();
    while let Some(delivery) = consumer.next().await {
        let delivery = delivery.expect("a delivery");
        bodies.push(String::from_utf8_lossy(&delivery.data).into_owned());
        delivery.ack(Default::default()).await.expect("an ack");
    }
    channel.basic_cancel("taker".into(), Default::default()).await.expect("cancelled");
    bodies
}
