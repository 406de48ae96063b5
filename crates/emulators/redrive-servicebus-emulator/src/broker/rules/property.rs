//! Properties of a message in filters and actions.

use std::fmt;

use crate::amqp::{Message, Value};
use crate::broker::content;

/// A property by its scope and name.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Property {
    /// `name` or `user.name`
    User(String),
    /// `sys.Name`
    System(System),
}

/// The broker's own properties that an expression can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum System {
    ContentType,
    CorrelationId,
    MessageId,
    PartitionKey,
    ReplyTo,
    ReplyToSessionId,
    SessionId,
    Subject,
    To,
}

const NAMES: [(&str, System); 10] = [
    ("ContentType", System::ContentType),
    ("CorrelationId", System::CorrelationId),
    ("MessageId", System::MessageId),
    ("PartitionKey", System::PartitionKey),
    ("ReplyTo", System::ReplyTo),
    ("ReplyToSessionId", System::ReplyToSessionId),
    ("SessionId", System::SessionId),
    ("Subject", System::Subject),
    ("Label", System::Subject),
    ("To", System::To),
];

impl System {
    pub(super) fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, system)| *system)
    }

    pub(super) fn of(self, message: &Message) -> Value {
        let properties = &message.properties;
        let id = |value: &Value| match value {
            Value::Null => Value::Null,
            id => content::id_text(id).into(),
        };
        match self {
            Self::ContentType => properties.content_type.clone().into(),
            Self::CorrelationId => id(&properties.correlation_id),
            Self::MessageId => id(&properties.message_id),
            Self::PartitionKey => {
                message.message_annotations.get("x-opt-partition-key").cloned().unwrap_or_default()
            }
            Self::ReplyTo => properties.reply_to.clone().into(),
            Self::ReplyToSessionId => properties.reply_to_group_id.clone().into(),
            Self::SessionId => properties.group_id.clone().into(),
            Self::Subject => properties.subject.clone().into(),
            Self::To => properties.to.clone().into(),
        }
    }

    /// Sets it, or removes it.
    pub(super) fn set(self, message: &mut Message, text: Option<String>) {
        let properties = &mut message.properties;
        match self {
            Self::ContentType => properties.content_type = text,
            Self::CorrelationId => properties.correlation_id = text.into(),
            Self::MessageId => properties.message_id = text.into(),
            Self::PartitionKey => match text {
                Some(text) => message.message_annotations.insert_symbol("x-opt-partition-key", text),
                None => drop(message.message_annotations.remove("x-opt-partition-key")),
            },
            Self::ReplyTo => properties.reply_to = text,
            Self::ReplyToSessionId => properties.reply_to_group_id = text,
            Self::SessionId => properties.group_id = text,
            Self::Subject => properties.subject = text,
            Self::To => properties.to = text,
        }
    }
}

impl Property {
    /// Returns its value; null if the message has none.
    pub(super) fn of(&self, message: &Message) -> Value {
        match self {
            Self::System(system) => system.of(message),
            Self::User(name) => user_property(message, name).cloned().unwrap_or_default(),
        }
    }
}

/// Finds a property. Names are compared without case, but an exact match comes first.
fn user_property<'a>(message: &'a Message, name: &str) -> Option<&'a Value> {
    let properties = &message.application_properties;
    properties.get(name).or_else(|| {
        let same = |key: &Value| key.as_text().is_some_and(|key| key.eq_ignore_ascii_case(name));
        properties.iter().find(|(key, value)| same(key) && !value.is_null()).map(|(_, value)| value)
    })
}

/// The form of an expression.
impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => write!(f, "user.[{}]", name.replace(']', "]]")),
            Self::System(system) => {
                let name = NAMES.iter().find(|(_, known)| known == system).map_or("", |(name, _)| name);
                write!(f, "sys.{name}")
            }
        }
    }
}
