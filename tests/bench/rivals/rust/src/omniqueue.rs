//! omniqueue, as its documentation shows it: receive, handle, acknowledge.

use anyhow::Result;
use omniqueue::backends::rabbitmq::{
    BasicConsumeOptions, BasicProperties, BasicPublishOptions, ConnectionProperties, FieldTable,
};
use omniqueue::backends::{RabbitMqBackend, RabbitMqConfig};

use crate::Task;
use crate::tally::{Tally, ready};

pub async fn run(task: Task) -> Result<()> {
    let tally = Tally::new(task.count);
    let config = RabbitMqConfig {
        uri: task.url.clone(),
        connection_properties: ConnectionProperties::default(),
        publish_exchange: String::new(),
        publish_routing_key: task.queue.clone(),
        publish_options: BasicPublishOptions::default(),
        publish_properties: BasicProperties::default(),
        consume_queue: task.queue.clone(),
        consumer_tag: "bench".to_owned(),
        consume_options: BasicConsumeOptions::default(),
        consume_arguments: FieldTable::default(),
        consume_prefetch_count: Some(task.prefetch),
        requeue_on_nack: true,
    };
    ready()?;
    // It subscribes when it is built.
    let mut consumer = RabbitMqBackend::builder(config).build_consumer().await?;
    while !tally.is_settled() {
        let delivery = consumer.receive().await?;
        tally.handle(delivery.borrow_payload().unwrap_or_default());
        delivery.ack().await.map_err(|(error, _)| error)?;
        tally.settled(1);
    }
    tally.finish().await
}
