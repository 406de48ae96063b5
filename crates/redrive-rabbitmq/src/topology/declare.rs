//! Declares queues, exchanges and bindings, or looks whether they are there.

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use redrive_core::{TransportError, TransportErrorKind};

use super::{Binding, Exchange, Lifetime, Part, Queue};
use crate::connection::{Live, answered};
use crate::convert::short;
use crate::error;

/// What declaring came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Declared {
    NothingIsNew,
    SomeQuorumQueueIsNew,
}

/// Declares the parts.
pub(crate) async fn declare(live: &Live, parts: &[Part]) -> Result<Declared, TransportError> {
    let mut declared = Declared::NothingIsNew;
    for part in parts {
        match part {
            Part::Queue(queue) => {
                // The answer to a declaration does not tell whether the queue was there.
                if queue.is_quorum() && !is_there(live, &queue.name).await? {
                    declared = Declared::SomeQuorumQueueIsNew;
                }
                declare_queue(live, queue).await?;
            }
            Part::Exchange(exchange) => declare_exchange(live, exchange, false).await?,
            Part::Binding(binding) => bind(live, binding).await?,
        }
    }
    Ok(declared)
}

async fn declare_queue(live: &Live, queue: &Queue) -> Result<(), TransportError> {
    let Lifetime { durable, exclusive, auto_delete } = queue.lifetime;
    let options = QueueDeclareOptions { durable, exclusive, auto_delete, ..QueueDeclareOptions::default() };
    let mut arguments = FieldTable::default();
    for (name, value) in &queue.arguments {
        arguments.insert(short(name, "the name of a queue argument")?, value.clone());
    }
    // A refusal closes the channel: each queue has one of its own.
    let channel = live.channel().await?;
    let name = short(&queue.name, "the name of a queue")?;
    let answer = answered(&channel, channel.queue_declare(name, options, arguments)).await;
    answer.map_err(|error| error::declaring(&queue.name, error))?;
    Ok(())
}

async fn declare_exchange(live: &Live, exchange: &Exchange, passive: bool) -> Result<(), TransportError> {
    let Lifetime { durable, auto_delete, .. } = exchange.lifetime;
    let options =
        ExchangeDeclareOptions { passive, durable, auto_delete, ..ExchangeDeclareOptions::default() };
    let channel = live.channel().await?;
    let name = short(&exchange.name, "the name of an exchange")?;
    let declaring = channel.exchange_declare(name, exchange.kind.clone(), options, FieldTable::default());
    let wording = if passive { error::verifying_exchange } else { error::declaring_exchange };
    answered(&channel, declaring).await.map_err(|cause| wording(&exchange.name, cause))
}

async fn bind(live: &Live, binding: &Binding) -> Result<(), TransportError> {
    let channel = live.channel().await?;
    let queue = short(&binding.queue, "the name of a queue")?;
    let exchange = short(&binding.exchange, "the name of an exchange")?;
    let key = short(&binding.routing_key, "a routing key")?;
    let binding_it =
        channel.queue_bind(queue, exchange, key, QueueBindOptions::default(), FieldTable::default());
    answered(&channel, binding_it)
        .await
        .map_err(|cause| error::binding(&binding.queue, &binding.exchange, cause))
}

async fn is_there(live: &Live, queue: &str) -> Result<bool, TransportError> {
    match count(live, queue).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == TransportErrorKind::Unreachable => Err(error),
        // Whatever is wrong with it, its declaration says so.
        Err(_) => Ok(false),
    }
}

/// Looks whether queues and exchanges are there. Bindings cannot be looked at.
pub(crate) async fn verify(live: &Live, parts: &[Part]) -> Result<(), TransportError> {
    for part in parts {
        match part {
            Part::Queue(queue) => drop(count(live, &queue.name).await?),
            Part::Exchange(exchange) => declare_exchange(live, exchange, true).await?,
            Part::Binding(_) => {}
        }
    }
    Ok(())
}

/// How many messages are ready in a queue; an error when it is not there.
pub(crate) async fn count(live: &Live, queue: &str) -> Result<u32, TransportError> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let channel = live.channel().await?;
    let name = short(queue, "the name of a queue")?;
    let found = answered(&channel, channel.queue_declare(name, options, FieldTable::default())).await;
    let found = found.map_err(|error| error::verifying(queue, error))?;
    Ok(found.message_count())
}
