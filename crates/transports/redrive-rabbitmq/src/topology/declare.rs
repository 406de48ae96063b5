//! Declares queues, exchanges and bindings, or checks that they exist.

use std::time::Duration;

use futures::stream::{FuturesOrdered, StreamExt as _};
use lapin::ExchangeKind;
use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use redrive_core::TransportError;
use tokio::time::Instant;

use super::{Binding, Exchange, Lifetime, Part, Queue};
use crate::connection::{Channel, Connection, with_timeout};
use crate::convert::short;
use crate::error;

/// RabbitMQ waits for a quorum queue 250 ms, and says that one that did not answer has no messages and no consumers.
const ANSWERS_WITHIN: Duration = Duration::from_millis(200);
const MOST_ASKS: u32 = 3;

/// What to do about a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Declare,
    /// Check that it exists.
    Verify,
}

/// Returns the first part that does not exist or cannot be checked, and why. Sends one request for each at once. Nothing is known of
/// the parts after it, because the first refusal closes the channel.
pub(crate) async fn first_unfit(channel: &Channel, parts: &[&Part]) -> Option<(usize, TransportError)> {
    let mut answers = FuturesOrdered::new();
    for part in parts {
        answers.push_back(verify_part(channel, part));
    }
    let mut index = 0;
    while let Some(answer) = answers.next().await {
        if let Err(error) = answer {
            return Some((index, error));
        }
        index += 1;
    }
    None
}

/// Declares all parts with one request for each at once. Returns false if one was refused, which closes the channel: [`prepare`]
/// finds out which.
pub(crate) async fn declare_all(channel: &Channel, parts: &[&Part]) -> bool {
    let mut answers = FuturesOrdered::new();
    for part in parts {
        answers.push_back(declare_part(channel, part));
    }
    while let Some(answer) = answers.next().await {
        if answer.is_err() {
            return false;
        }
    }
    true
}

/// Declares or verifies one part, on its own channel: a refusal closes it.
pub(crate) async fn prepare(connection: &Connection, part: &Part, task: Task) -> Result<(), TransportError> {
    let channel = connection.channel_to_ask().await?;
    match task {
        Task::Declare => declare_part(&channel, part).await,
        Task::Verify => verify_part(&channel, part).await,
    }
}

async fn declare_part(channel: &Channel, part: &Part) -> Result<(), TransportError> {
    match part {
        Part::Queue(queue) => declare_queue(channel, queue).await,
        Part::Exchange(exchange) => declare_exchange(channel, exchange).await,
        Part::Binding(binding) => bind(channel, binding).await,
        Part::OtherExchange(_) | Part::OtherQueue(_) => verify_part(channel, part).await,
    }
}

async fn declare_queue(channel: &Channel, queue: &Queue) -> Result<(), TransportError> {
    let Lifetime { durable, exclusive, auto_delete } = queue.lifetime;
    let options = QueueDeclareOptions { durable, exclusive, auto_delete, ..QueueDeclareOptions::default() };
    let mut arguments = FieldTable::default();
    for (name, value) in &queue.arguments {
        arguments.insert(short(name, "the name of a queue argument")?, value.clone());
    }
    let name = short(&queue.name, "the name of a queue")?;
    let answer = with_timeout(channel, channel.queue_declare(name, options, arguments)).await;
    answer.map_err(|error| error::declaring(&queue.name, error))?;
    Ok(())
}

async fn declare_exchange(channel: &Channel, exchange: &Exchange) -> Result<(), TransportError> {
    let Lifetime { durable, auto_delete, .. } = exchange.lifetime;
    let options = ExchangeDeclareOptions { durable, auto_delete, ..ExchangeDeclareOptions::default() };
    let name = short(&exchange.name, "the name of an exchange")?;
    let declaring = channel.exchange_declare(name, exchange.kind.clone(), options, FieldTable::default());
    with_timeout(channel, declaring).await.map_err(|cause| error::declaring_exchange(&exchange.name, cause))
}

async fn verify_exchange(channel: &Channel, exchange: &str) -> Result<(), TransportError> {
    let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
    let name = short(exchange, "the name of an exchange")?;
    // The broker does not compare the type.
    let verifying = channel.exchange_declare(name, ExchangeKind::Direct, options, FieldTable::default());
    with_timeout(channel, verifying).await.map_err(|cause| error::verifying_exchange(exchange, cause))
}

async fn bind(channel: &Channel, binding: &Binding) -> Result<(), TransportError> {
    let queue = short(&binding.queue, "the name of a queue")?;
    let exchange = short(&binding.exchange, "the name of an exchange")?;
    let key = short(&binding.routing_key, "a routing key")?;
    let binding_it =
        channel.queue_bind(queue, exchange, key, QueueBindOptions::default(), FieldTable::default());
    with_timeout(channel, binding_it)
        .await
        .map_err(|cause| error::binding(&binding.queue, &binding.exchange, cause))
}

/// Checks that a queue or an exchange exists. Bindings cannot be checked.
async fn verify_part(channel: &Channel, part: &Part) -> Result<(), TransportError> {
    match part {
        Part::Queue(queue) => count_on(channel, &queue.name).await.map(|_| ()),
        Part::Exchange(exchange) => verify_exchange(channel, &exchange.name).await,
        Part::OtherExchange(name) => verify_exchange(channel, name).await,
        Part::OtherQueue(name) => count_on(channel, name).await.map(|_| ()),
        Part::Binding(_) => Ok(()),
    }
}

/// Returns how many messages are ready in a queue; an error if it does not exist.
pub(crate) async fn count(connection: &Connection, queue: &str) -> Result<u32, TransportError> {
    count_on(&connection.channel_to_ask().await?, queue).await
}

/// Does the same as [`count`] on this channel, which an error may close.
pub(crate) async fn count_on(channel: &Channel, queue: &str) -> Result<u32, TransportError> {
    Ok(queue_state_on(channel, queue).await?.messages)
}

/// What a passive declaration tells of a queue.
pub(crate) struct QueueState {
    /// Number of messages that are ready.
    pub(crate) messages: u32,
    pub(crate) consumers: u32,
}

impl QueueState {
    fn is_nothing(&self) -> bool {
        (self.messages, self.consumers) == (0, 0)
    }
}

/// Returns the state of an existing queue.
pub(crate) async fn queue_state(connection: &Connection, queue: &str) -> Result<QueueState, TransportError> {
    queue_state_on(&connection.channel_to_ask().await?, queue).await
}

/// Does the same as [`queue_state`] on this channel, which an error may close. Asks again if nothing may mean that the queue was
/// too busy to answer the broker.
pub(crate) async fn queue_state_on(channel: &Channel, queue: &str) -> Result<QueueState, TransportError> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let name = short(queue, "the name of a queue")?;
    let mut asked = 0;
    loop {
        let began = Instant::now();
        let asking = channel.queue_declare(name.clone(), options, FieldTable::default());
        let found = with_timeout(channel, asking).await.map_err(|error| error::verifying(queue, error))?;
        let state = QueueState { messages: found.message_count(), consumers: found.consumer_count() };
        asked += 1;
        if !state.is_nothing() || began.elapsed() < ANSWERS_WITHIN || asked == MOST_ASKS {
            return Ok(state);
        }
    }
}
