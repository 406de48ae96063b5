//! Declares queues, exchanges and bindings, or looks whether they are there.

use futures::future::try_join_all;
use lapin::Channel;
use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use redrive_core::{TransportError, TransportErrorKind};

use super::{Binding, Exchange, Lifetime, Part, Queue};
use crate::connection::{Connection, with_timeout};
use crate::convert::short;
use crate::error;

/// What is to be done about a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Declare,
    /// It must be there.
    Verify,
}

/// What declaring came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Declared {
    NothingIsNew,
    SomeQuorumQueueIsNew,
}

/// True when all parts exist as they must be: one request for each at once, on one channel. False does not say what is wrong,
/// since the first refusal closes the channel: [`prepare`] finds that out.
pub(crate) async fn all_fit(connection: &Connection, parts: &[(Part, Task)]) -> Result<bool, TransportError> {
    let channel = connection.channel().await?;
    // First whether they exist: a declaration would create those that are missing.
    let there = try_join_all(parts.iter().map(|(part, _)| verify_part(&channel, part))).await;
    if there.is_err() {
        return Ok(false);
    }
    let declared = parts.iter().filter(|(_, task)| *task == Task::Declare);
    Ok(try_join_all(declared.map(|(part, _)| declare_part(&channel, part))).await.is_ok())
}

/// Declares or verifies one part, on a channel of its own: a refusal closes it.
pub(crate) async fn prepare(
    connection: &Connection,
    part: &Part,
    task: Task,
) -> Result<Declared, TransportError> {
    let mut declared = Declared::NothingIsNew;
    if task == Task::Verify {
        verify_part(&connection.channel().await?, part).await?;
        return Ok(declared);
    }
    // The answer to a declaration does not say whether the queue existed.
    if let Some(queue) = part.queue().filter(|queue| queue.is_quorum())
        && !is_there(connection, &queue.name).await?
    {
        declared = Declared::SomeQuorumQueueIsNew;
    }
    declare_part(&connection.channel().await?, part).await?;
    Ok(declared)
}

async fn declare_part(channel: &Channel, part: &Part) -> Result<(), TransportError> {
    match part {
        Part::Queue(queue) => declare_queue(channel, queue).await,
        Part::Exchange(exchange) => declare_exchange(channel, exchange, false).await,
        Part::Binding(binding) => bind(channel, binding).await,
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

async fn declare_exchange(
    channel: &Channel,
    exchange: &Exchange,
    passive: bool,
) -> Result<(), TransportError> {
    let Lifetime { durable, auto_delete, .. } = exchange.lifetime;
    let options =
        ExchangeDeclareOptions { passive, durable, auto_delete, ..ExchangeDeclareOptions::default() };
    let name = short(&exchange.name, "the name of an exchange")?;
    let declaring = channel.exchange_declare(name, exchange.kind.clone(), options, FieldTable::default());
    let wording = if passive { error::verifying_exchange } else { error::declaring_exchange };
    with_timeout(channel, declaring).await.map_err(|cause| wording(&exchange.name, cause))
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

async fn is_there(connection: &Connection, queue: &str) -> Result<bool, TransportError> {
    match count(connection, queue).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == TransportErrorKind::Unreachable => Err(error),
        // Whatever is wrong with it, its declaration says so.
        Err(_) => Ok(false),
    }
}

/// Looks whether a queue or an exchange is there. Bindings cannot be looked at.
async fn verify_part(channel: &Channel, part: &Part) -> Result<(), TransportError> {
    match part {
        Part::Queue(queue) => count_on(channel, &queue.name).await.map(|_| ()),
        Part::Exchange(exchange) => declare_exchange(channel, exchange, true).await,
        Part::Binding(_) => Ok(()),
    }
}

/// How many messages are ready in a queue; an error when it is not there.
pub(crate) async fn count(connection: &Connection, queue: &str) -> Result<u32, TransportError> {
    count_on(&connection.channel().await?, queue).await
}

/// As [`count`], on this channel, which an error may close.
pub(crate) async fn count_on(channel: &Channel, queue: &str) -> Result<u32, TransportError> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let name = short(queue, "the name of a queue")?;
    let found = with_timeout(channel, channel.queue_declare(name, options, FieldTable::default())).await;
    let found = found.map_err(|error| error::verifying(queue, error))?;
    Ok(found.message_count())
}
