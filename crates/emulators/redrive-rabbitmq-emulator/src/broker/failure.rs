//! Refusals, with RabbitMQ's codes and texts.

use redrive_amqp091::{ShortStr, reply};

/// Why a method was refused: closes the channel, or the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: u16,
    pub(crate) text: String,
    pub(crate) scope: Scope,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Channel,
    Connection,
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    fn channel(code: u16, name: &str, text: &str) -> Self {
        Self { code, text: format!("{name} - {text}"), scope: Scope::Channel }
    }

    pub(crate) fn connection(code: u16, name: &str, text: &str) -> Self {
        Self { code, text: format!("{name} - {text}"), scope: Scope::Connection }
    }

    pub(crate) fn not_found(what: &str, name: &ShortStr, vhost: &ShortStr) -> Self {
        Self::channel(reply::NOT_FOUND, "NOT_FOUND", &format!("no {what} '{name}' in vhost '{vhost}'"))
    }

    pub(crate) fn precondition(text: &str) -> Self {
        Self::channel(reply::PRECONDITION_FAILED, "PRECONDITION_FAILED", text)
    }

    pub(crate) fn refused(text: &str) -> Self {
        Self::channel(reply::ACCESS_REFUSED, "ACCESS_REFUSED", text)
    }

    pub(crate) fn locked(text: &str) -> Self {
        Self::channel(reply::RESOURCE_LOCKED, "RESOURCE_LOCKED", text)
    }

    pub(crate) fn not_allowed(text: &str) -> Self {
        Self::connection(reply::NOT_ALLOWED, "NOT_ALLOWED", text)
    }

    pub(crate) fn not_implemented(text: &str) -> Self {
        Self::connection(reply::NOT_IMPLEMENTED, "NOT_IMPLEMENTED", text)
    }

    pub(crate) fn command_invalid(text: &str) -> Self {
        Self::connection(reply::COMMAND_INVALID, "COMMAND_INVALID", text)
    }

    pub(crate) fn channel_error(text: &str) -> Self {
        Self::connection(reply::CHANNEL_ERROR, "CHANNEL_ERROR", text)
    }

    pub(crate) fn unexpected(text: &str) -> Self {
        Self::connection(reply::UNEXPECTED_FRAME, "UNEXPECTED_FRAME", text)
    }

    pub(crate) fn syntax(text: &str) -> Self {
        Self::connection(reply::SYNTAX_ERROR, "SYNTAX_ERROR", text)
    }

    pub(crate) fn internal(text: &str) -> Self {
        Self::connection(reply::INTERNAL_ERROR, "INTERNAL_ERROR", text)
    }
}
