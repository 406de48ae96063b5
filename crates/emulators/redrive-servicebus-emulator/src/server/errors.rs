//! Errors that clients receive.

use crate::amqp::DecodeError;
use crate::amqp::state::AmqpError;
use crate::broker::BrokerError;

pub(super) fn amqp_error(error: &BrokerError) -> AmqpError {
    AmqpError::new(error.condition(), error.to_string())
}

pub(super) fn undecodable(error: &DecodeError) -> AmqpError {
    AmqpError::new("amqp:decode-error", format!("This is no message: {error}."))
}

pub(super) fn session_lock_lost() -> AmqpError {
    let text = "The session lock has expired. Accept the session again.";
    AmqpError::new("com.microsoft:session-lock-lost", text)
}

/// Returns the status code for a condition that a fault asks for.
pub(super) fn status_of(condition: &str) -> i32 {
    match condition {
        "amqp:unauthorized-access" => 401,
        "amqp:not-found" | "com.microsoft:message-not-found" => 404,
        "com.microsoft:message-lock-lost" | "com.microsoft:session-lock-lost" => 410,
        "com.microsoft:timeout" => 408,
        "com.microsoft:server-busy" => 503,
        "amqp:resource-limit-exceeded" => 403,
        _ => 500,
    }
}
