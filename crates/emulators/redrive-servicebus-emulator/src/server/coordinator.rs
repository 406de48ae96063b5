//! Begins and ends transactions.

use bytes::Bytes;

use super::context::Context;
use super::delivery::Delivery;
use super::errors::{amqp_error, undecodable};
use crate::amqp::state::{AmqpError, DeliveryState, parts};
use crate::amqp::{Message, Value};
use crate::broker::ConnectionId;
use crate::faults::{Effect, Step};

const DECLARE: u64 = 0x31;
const DISCHARGE: u64 = 0x32;

/// Begins or ends a transaction. Returns the outcome.
pub(super) fn take(context: &mut Context, delivery: &Delivery) -> (DeliveryState, Option<Effect>) {
    let mut fault = None;
    let outcome = command(context, delivery, &mut fault);
    (outcome.unwrap_or_else(|error| DeliveryState::Rejected(Some(error))), fault)
}

fn command(
    context: &mut Context,
    delivery: &Delivery,
    fault: &mut Option<Effect>,
) -> Result<DeliveryState, AmqpError> {
    let message = Message::decode(&delivery.bytes).map_err(|error| undecodable(&error))?;
    let command = message.value().unwrap_or_default();
    match parts(&command) {
        Ok((Some(DECLARE), _)) => {
            *fault = context.fault(Step::Declare, "");
            fault.as_ref().and_then(Effect::refusal).map_or_else(|| declare(context), Err)
        }
        Ok((Some(DISCHARGE), fields)) => {
            let id = fields.first().and_then(Value::as_binary).cloned().unwrap_or_default();
            let fail = fields.get(1).and_then(Value::as_bool).unwrap_or(false);
            *fault = if fail { None } else { context.fault(Step::Commit, "") };
            discharge(context, &id, fail, fault.as_ref())
        }
        _ => Err(AmqpError::new("amqp:not-implemented", "A coordinator takes declare and discharge.")),
    }
}

fn declare(context: &mut Context) -> Result<DeliveryState, AmqpError> {
    let of = ConnectionId(context.mailbox.id);
    let id =
        context.shared.change(|broker, now| broker.declare(of, now)).map_err(|error| amqp_error(&error))?;
    context.transactions.insert(id);
    Ok(DeliveryState::Declared { transaction: Bytes::copy_from_slice(&id.0.to_be_bytes()) })
}

fn discharge(
    context: &mut Context,
    id: &Bytes,
    fail: bool,
    fault: Option<&Effect>,
) -> Result<DeliveryState, AmqpError> {
    let id = context.transaction(id)?;
    context.transactions.remove(&id);
    if let Some(refusal) = fault.and_then(Effect::refusal) {
        // A refused commit rolls back: the client must not find it half done.
        let _ = context.shared.with(|broker, now| broker.roll_back(id, now));
        return Err(refusal);
    }
    let ended = match fail {
        true => context.shared.with(|broker, now| broker.roll_back(id, now)),
        false => context.shared.change(|broker, now| broker.commit(id, now)),
    };
    ended.map(|()| DeliveryState::Accepted).map_err(|error| amqp_error(&error))
}
