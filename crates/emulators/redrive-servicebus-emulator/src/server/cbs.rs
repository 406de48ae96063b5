//! Tokens, with which a client proves its rights on `$cbs`.

use super::context::Context;
use super::errors::status_of;
use super::requests::{Answer, Request};
use crate::amqp::state::AmqpError;
use crate::amqp::{Map, Value};
use crate::faults::{Effect, Step};

pub(super) fn answer(context: &mut Context, request: &Request) -> Answer {
    if request.operation != "put-token" {
        let text = format!("$cbs does not know the operation '{}', only put-token.", request.operation);
        return Answer::refused(400, AmqpError::new("amqp:not-implemented", text));
    }
    let fault = context.fault(Step::Cbs, "$cbs");
    if let Some(refusal) = fault.as_ref().and_then(Effect::refusal) {
        return Answer::refused(status_of(&refusal.condition), refusal);
    }
    let token = request.message.value();
    let token = token.as_ref().and_then(Value::as_text).unwrap_or_default();
    let answer = match context.shared.keys.check_token(token, context.shared.clock.now()) {
        Ok(grant) => {
            context.authorised.add(grant);
            Answer { status: 202, description: "Accepted".to_owned(), ..Answer::ok(Map::new()) }
        }
        Err(error) => Answer::refused(401, AmqpError::new("amqp:unauthorized-access", error.to_string())),
    };
    Answer { fault, ..answer }
}
