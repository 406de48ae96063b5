//! Queues, exchanges and bindings as they must be.

use std::collections::BTreeMap;
use std::fmt;

use lapin::ExchangeKind;
use lapin::types::AMQPValue;
use serde_json::{Value, json};

use crate::broker::QueueType;

/// A part of the topology that is declared or verified.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    Queue(Queue),
    Exchange(Exchange),
    /// From an exchange to a queue.
    Binding(Binding),
    /// An exchange that must exist: redrive never declares it.
    OtherExchange(String),
    /// A queue that must exist: redrive never declares it.
    OtherQueue(String),
}

impl Part {
    pub(crate) fn queue(&self) -> Option<&Queue> {
        match self {
            Self::Queue(queue) => Some(queue),
            _ => None,
        }
    }

    /// Returns the name of the queue or exchange; for a binding, of the queue.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Queue(queue) => &queue.name,
            Self::Exchange(exchange) => &exchange.name,
            Self::Binding(binding) => &binding.queue,
            Self::OtherExchange(name) | Self::OtherQueue(name) => name,
        }
    }

    /// Returns true if redrive never declares it.
    pub(crate) fn is_other(&self) -> bool {
        matches!(self, Self::OtherExchange(_) | Self::OtherQueue(_))
    }

    /// Returns true if it is the queue of this name, or leads there.
    pub(crate) fn is_of(&self, queue: &str) -> bool {
        self.is_queue(queue) || matches!(self, Self::Binding(binding) if binding.queue == queue)
    }

    pub(crate) fn is_binding_to(&self, exchange: &str) -> bool {
        matches!(self, Self::Binding(binding) if binding.exchange == exchange)
    }

    /// Returns true if it is a quorum queue.
    pub(crate) fn is_quorum(&self) -> bool {
        self.queue().is_some_and(Queue::is_quorum)
    }

    /// Returns true if it is the queue of this name.
    pub(crate) fn is_queue(&self, name: &str) -> bool {
        self.queue().is_some_and(|queue| queue.name == name)
    }
}

/// Prints everything that is needed to declare it.
impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(Queue { name, lifetime, arguments }) => {
                let arguments = arguments.iter().map(|(name, value)| format!("{name}={}", value_of(value)));
                let said = lifetime.said().map(str::to_owned).chain(arguments).collect::<Vec<_>>();
                write!(f, "queue `{name}` ({})", said.join(", "))
            }
            Self::Exchange(exchange @ Exchange { name, lifetime, .. }) => {
                let lifetime = lifetime.said().map(|said| format!(", {said}")).collect::<String>();
                write!(f, "exchange `{name}` ({}{lifetime})", exchange.kind_name())
            }
            Self::Binding(Binding { queue, exchange, routing_key }) => {
                write!(f, "binding of queue `{queue}` to exchange `{exchange}` with key `{routing_key}`")
            }
            Self::OtherExchange(name) => write!(f, "exchange `{name}`"),
            Self::OtherQueue(name) => write!(f, "queue `{name}`"),
        }
    }
}

/// A queue with its required properties.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Queue {
    pub(crate) name: String,
    pub(crate) lifetime: Lifetime,
    pub(crate) arguments: BTreeMap<String, AMQPValue>,
}

/// An exchange with its required properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    pub(crate) name: String,
    pub(crate) kind: ExchangeKind,
    pub(crate) lifetime: Lifetime,
}

impl Exchange {
    pub(super) fn kind_name(&self) -> &str {
        match &self.kind {
            ExchangeKind::Custom(name) => name,
            ExchangeKind::Direct => "direct",
            ExchangeKind::Fanout => "fanout",
            ExchangeKind::Headers => "headers",
            ExchangeKind::Topic => "topic",
        }
    }
}

/// A binding with its required properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) queue: String,
    pub(crate) exchange: String,
    pub(crate) routing_key: String,
}

/// How long a queue or exchange exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub(crate) durable: bool,
    pub(crate) exclusive: bool,
    pub(crate) auto_delete: bool,
}

impl Lifetime {
    /// Exists until it is deleted.
    pub(crate) const DURABLE: Self = Self { durable: true, exclusive: false, auto_delete: false };

    /// Returns the words of the protocol.
    fn said(self) -> impl Iterator<Item = &'static str> {
        let flags =
            [(self.durable, "durable"), (self.exclusive, "exclusive"), (self.auto_delete, "auto-delete")];
        flags.into_iter().filter_map(|(set, name)| set.then_some(name))
    }
}

pub(crate) fn plain(name: &str, queue_type: QueueType) -> Queue {
    let mut queue = Queue { name: name.to_owned(), lifetime: Lifetime::DURABLE, arguments: BTreeMap::new() };
    // Always explicit: a virtual host may have another default.
    queue.set(
        "x-queue-type",
        match queue_type {
            QueueType::Classic => "classic",
            QueueType::Quorum => "quorum",
        },
    );
    queue
}

impl Queue {
    fn is_quorum(&self) -> bool {
        self.arguments.get("x-queue-type") == Some(&AMQPValue::LongString("quorum".into()))
    }

    /// Lets a quorum queue dead-letter without loss; a classic queue cannot.
    pub(crate) fn dead_letter_at_least_once(&mut self) {
        if self.is_quorum() {
            self.set("x-dead-letter-strategy", "at-least-once");
            self.set("x-overflow", "reject-publish");
        }
    }

    pub(crate) fn set(&mut self, name: &str, value: impl IntoArgument) {
        self.arguments.insert(name.to_owned(), value.into_argument());
    }
}

pub(crate) trait IntoArgument {
    fn into_argument(self) -> AMQPValue;
}

impl IntoArgument for &str {
    fn into_argument(self) -> AMQPValue {
        AMQPValue::LongString(self.into())
    }
}

impl IntoArgument for i64 {
    fn into_argument(self) -> AMQPValue {
        AMQPValue::LongLongInt(self)
    }
}

/// Converts the value of an argument. Types that JSON does not have become text.
pub(crate) fn value_of(value: &AMQPValue) -> Value {
    match value {
        AMQPValue::Boolean(value) => json!(value),
        AMQPValue::ShortShortInt(value) => json!(value),
        AMQPValue::ShortShortUInt(value) => json!(value),
        AMQPValue::ShortInt(value) => json!(value),
        AMQPValue::ShortUInt(value) => json!(value),
        AMQPValue::LongInt(value) => json!(value),
        AMQPValue::LongUInt(value) => json!(value),
        AMQPValue::LongLongInt(value) => json!(value),
        AMQPValue::Timestamp(value) => json!(value),
        AMQPValue::Float(value) => json!(value),
        AMQPValue::Double(value) => json!(value),
        AMQPValue::ShortString(value) => json!(value.as_str()),
        AMQPValue::LongString(value) => json!(String::from_utf8_lossy(value.as_bytes())),
        AMQPValue::FieldArray(values) => values.as_slice().iter().map(value_of).collect(),
        AMQPValue::FieldTable(table) => {
            table.inner().iter().map(|(name, value)| (name.as_str(), value_of(value))).collect()
        }
        AMQPValue::Void => Value::Null,
        other => json!(format!("{other:?}")),
    }
}
