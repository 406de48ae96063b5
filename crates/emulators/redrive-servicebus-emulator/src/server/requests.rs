//! Requests and responses on `$cbs` and `$management`.

use bytes::Bytes;

use super::address::Address;
use crate::amqp::state::AmqpError;
use crate::amqp::{Map, Message, Value};
use crate::faults::Effect;

/// A request of a client.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) operation: String,
    pub(super) message: Message,
    /// The transaction that it is part of.
    pub(super) transaction: Option<Bytes>,
}

/// The response.
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

    pub(super) fn message(self, node: &Address, request: &Message) -> Message {
        let mut answer = Message::with_value(&Value::Map(self.body));
        // Keeps its type: a client may compare it with the type.
        answer.properties.correlation_id = request.properties.message_id.clone();
        let properties = &mut answer.application_properties;
        // `$cbs` and `$management` use different names.
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
