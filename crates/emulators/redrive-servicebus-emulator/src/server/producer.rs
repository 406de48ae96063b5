//! Messages from a client to a queue or a topic.

use super::context::Context;
use super::delivery::Delivery;
use super::errors::{amqp_error, undecodable};
use crate::amqp::state::{AmqpError, DeliveryState};
use crate::amqp::{DecodeError, Message};
use crate::broker::{BrokerError, EntityId, Incoming, Operation};
use crate::faults::{Effect, Step};

/// The message format of a batch: each data section is one message.
const BATCH: u32 = 0x8001_3700;

/// Stores the message, or keeps it for the end of its transaction. Returns the outcome.
pub(super) fn take(
    context: &mut Context,
    entity: EntityId,
    path: &str,
    max: u64,
    delivery: &Delivery,
) -> (DeliveryState, Option<Effect>) {
    let fault = context.fault(Step::Send, path);
    let refusal = fault.as_ref().and_then(|fault| fault.refusal().or_else(|| fault.detach()));
    if let Some(refusal) = refusal {
        return (DeliveryState::Rejected(Some(refusal)), fault);
    }
    let outcome = match send(context, entity, path, max, delivery) {
        Ok(()) => accepted(delivery.state.as_ref()),
        Err(error) => DeliveryState::Rejected(Some(error)),
    };
    (outcome, fault)
}

fn send(
    context: &Context,
    entity: EntityId,
    path: &str,
    limit: u64,
    delivery: &Delivery,
) -> Result<(), AmqpError> {
    if delivery.size > limit {
        let error = BrokerError::MessageSizeExceeded { path: path.to_owned(), size: delivery.size, limit };
        return Err(amqp_error(&error));
    }
    let messages = messages(delivery).map_err(|error| undecodable(&error))?;
    let sent = match &delivery.state {
        Some(DeliveryState::Transactional { transaction, .. }) => {
            let id = context.transaction(transaction)?;
            let operation = Operation::Send { to: entity, messages };
            context.shared.change(|broker, now| broker.enlist(id, operation, now).map(drop))
        }
        _ => context.shared.change(|broker, now| broker.send(entity, messages, now)),
    };
    sent.map_err(|error| amqp_error(&error))
}

fn messages(delivery: &Delivery) -> Result<Vec<Incoming>, DecodeError> {
    let message = Message::decode(&delivery.bytes)?;
    if delivery.format != BATCH {
        return Ok(vec![Incoming::new(message, delivery.bytes.len())]);
    }
    let sections = message.data()?;
    sections.iter().map(|bytes| Ok(Incoming::new(Message::decode(bytes)?, bytes.len()))).collect()
}

/// Returns the outcome of an operation that is done, or will be at the end of its transaction.
pub(super) fn accepted(state: Option<&DeliveryState>) -> DeliveryState {
    match state {
        Some(DeliveryState::Transactional { transaction, .. }) => DeliveryState::Transactional {
            transaction: transaction.clone(),
            outcome: Some(Box::new(DeliveryState::Accepted)),
        },
        _ => DeliveryState::Accepted,
    }
}
