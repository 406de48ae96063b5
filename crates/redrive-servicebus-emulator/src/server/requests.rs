//! Requests and their answers, as `$cbs` and `$management` have them.

use bytes::Bytes;

use super::address::Address;
use super::context::Context;
use super::inlet::Delivery;
use super::producer::{accepted, undecodable};
use super::session::Session;
use crate::amqp::state::{AmqpError, DeliveryState};
use crate::amqp::{Map, Message, Value};
use crate::faults::Effect;

/// What a client asks.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) operation: String,
    pub(super) message: Message,
    /// The transaction that it is part of.
    pub(super) transaction: Option<Bytes>,
}

/// What it is answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: i32,
    pub(super) description: String,
    /// The AMQP condition of a refusal.
    pub(super) condition: Option<String>,
    pub(super) body: Map,
    pub(super) fault: Option<Effect>,
}

impl Answer {
    pub(super) fn ok(body: Map) -> Self {
        Self { status: 200, description: "OK".to_owned(), condition: None, body, fault: None }
    }

    pub(super) fn nothing() -> Self {
        Self { status: 204, description: "There is nothing.".to_owned(), ..Self::ok(Map::new()) }
    }

    pub(super) fn refused(status: i32, error: AmqpError) -> Self {
        let description = error.description.unwrap_or_else(|| error.condition.clone());
        Self { status, description, condition: Some(error.condition), ..Self::ok(Map::new()) }
    }

    fn message(self, node: &Address, request: &Message) -> Message {
        let mut answer = Message::with_value(&Value::Map(self.body));
        // With its type: a client may compare it so.
        answer.properties.correlation_id = request.properties.message_id.clone();
        let properties = &mut answer.application_properties;
        // `$cbs` and `$management` name it differently.
        let (status, description) = match node {
            Address::Cbs => ("status-code", "status-description"),
            _ => ("statusCode", "statusDescription"),
        };
        properties.insert(status, self.status);
        properties.insert(description, self.description);
        if let Some(condition) = self.condition {
            properties.insert("errorCondition", Value::Symbol(condition));
        }
        answer
    }
}

impl Session {
    /// Answers a request on the link that is for the answer; gives the outcome of the request's delivery.
    ///
    /// # Errors
    /// The client does not take its answers, and asks on.
    pub(super) fn answer_request(
        &mut self,
        context: &mut Context,
        node: &Address,
        delivery: &Delivery,
        answer: impl FnOnce(&mut Context, &Request) -> Answer,
    ) -> Result<DeliveryState, AmqpError> {
        let message = match Message::decode(&delivery.bytes) {
            Ok(message) => message,
            Err(error) => return Ok(DeliveryState::Rejected(Some(undecodable(&error)))),
        };
        let transaction = match &delivery.state {
            Some(DeliveryState::Transactional { transaction, .. }) => Some(transaction.clone()),
            _ => None,
        };
        let operation = message.application_properties.get("operation").and_then(Value::as_text);
        let request = Request { operation: operation.unwrap_or_default().to_owned(), message, transaction };
        let mut answer = answer(context, &request);
        let delay = match answer.fault.take() {
            Some(Effect::LoseReply) => return Ok(accepted(delivery.state.as_ref())),
            Some(Effect::DropConnection) => {
                context.drop_connection = true;
                return Ok(accepted(delivery.state.as_ref()));
            }
            Some(Effect::DelayReply(by)) => by,
            Some(Effect::Refuse { .. }) | None => std::time::Duration::ZERO,
        };
        let due = context.now + delay;
        let answer = answer.message(node, &request.message).to_bytes();
        match self.reply_link(node, request.message.properties.reply_to.as_deref()) {
            Some((handle, replies)) => {
                let (held, dropped) = (answer.len(), replies.push(due, answer));
                context.let_go(dropped);
                context.hold(held)?;
                self.serve_replies(context, handle);
            }
            None => tracing::debug!(operation = request.operation, "no link for the answer"),
        }
        Ok(accepted(delivery.state.as_ref()))
    }
}
