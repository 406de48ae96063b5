//! The names and values that a scenario has on the wire. Each run has names of its own, so that many share a broker.

use crate::scenario::{
    Argument, Exchange, ExchangeKind, Key, Kind, Matching, Overflow, Pattern, Policy, RetryType,
};
use crate::scenario::{Target, Tenths};
use crate::wire::{Table, Value, text};
use serde_json::{Map, json};
use std::time::Duration;

/// The routing keys of [`Key::Word`].
pub(crate) const WORDS: [&str; 3] = ["a", "a.b", "b"];
/// The patterns of [`Pattern::Topic`].
pub(crate) const PATTERNS: [&str; 4] = ["#", "a.*", "*", "a.#"];

/// The names of one run.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    pub(crate) prefix: String,
    pub(crate) tick: Duration,
}

impl Names {
    pub(crate) fn queue(&self, place: usize) -> String {
        format!("{}q{place}", self.prefix)
    }

    pub(crate) fn own_exchange(&self, place: usize) -> String {
        format!("{}x{place}", self.prefix)
    }

    pub(crate) fn exchange(&self, target: Target) -> String {
        match target {
            Target::Default => String::new(),
            Target::Own(place) => self.own_exchange(place),
            Target::Missing => format!("{}missing", self.prefix),
        }
    }

    pub(crate) fn key(&self, key: Key) -> String {
        match key {
            Key::Queue(place) => self.queue(place),
            Key::Word(place) => WORDS[place % WORDS.len()].to_owned(),
        }
    }

    pub(crate) fn pattern(&self, pattern: Pattern) -> String {
        match pattern {
            Pattern::Key(key) => self.key(key),
            Pattern::Topic(place) => PATTERNS[place % PATTERNS.len()].to_owned(),
        }
    }

    pub(crate) fn policy(&self, place: usize) -> String {
        format!("{}p{place}", self.prefix)
    }

    pub(crate) fn milliseconds(&self, time: Tenths) -> i64 {
        let tenth = self.tick.as_millis() / 10;
        i64::try_from(tenth).expect("a tick is seconds") * i64::from(time.0)
    }

    /// The same text in every run.
    pub(crate) fn normalize(&self, text: &str) -> String {
        text.replace(&self.prefix, "")
    }

    pub(crate) fn queue_arguments(&self, kind: Kind, arguments: &[Argument]) -> Table {
        let mut table = Table::new();
        // Classic queues are declared as most clients do it.
        if kind == Kind::Quorum {
            table.push(("x-queue-type".to_owned(), text("quorum")));
        }
        for argument in arguments {
            let (name, value) = self.argument(argument);
            table.retain(|(known, _)| known != &format!("x-{name}"));
            table.push((format!("x-{name}"), value));
        }
        table
    }

    /// Name, without `x-`, and value of an argument.
    fn argument(&self, argument: &Argument) -> (&'static str, Value) {
        let int = |value: i64| Value::Long(value);
        match argument {
            Argument::MessageTtl(time) => ("message-ttl", int(self.milliseconds(*time))),
            Argument::Expires(time) => ("expires", int(self.milliseconds(*time))),
            Argument::DeadLetterExchange(target) => ("dead-letter-exchange", text(self.exchange(*target))),
            Argument::DeadLetterKey(key) => ("dead-letter-routing-key", text(self.key(*key))),
            Argument::AtLeastOnce => ("dead-letter-strategy", text("at-least-once")),
            Argument::MaxLength(count) => ("max-length", int((*count).into())),
            Argument::MaxLengthBytes(count) => ("max-length-bytes", int((*count).into())),
            Argument::Overflow(overflow) => ("overflow", text(overflow_name(*overflow))),
            Argument::DeliveryLimit(limit) => ("delivery-limit", int(*limit)),
            Argument::MaxPriority(most) => ("max-priority", int((*most).into())),
            Argument::SingleActiveConsumer => ("single-active-consumer", Value::Bool(true)),
            Argument::RetryType(which) => ("delayed-retry-type", text(retry_name(*which))),
            Argument::RetryMin(time) => ("delayed-retry-min", int(self.milliseconds(*time))),
            Argument::RetryMax(time) => ("delayed-retry-max", int(self.milliseconds(*time))),
        }
    }

    /// The body of a policy for the management API. No two have the same priority: RabbitMQ does not say which would hold.
    pub(crate) fn policy_body(&self, place: usize, policy: &Policy) -> serde_json::Value {
        let mut definition = Map::new();
        for argument in &policy.definition {
            let (name, value) = self.argument(argument);
            let value = match value {
                Value::Text(value) => json!(value),
                Value::Long(value) => json!(value),
                Value::Bool(value) => json!(value),
                other => unreachable!("no policy has {other:?}"),
            };
            definition.insert(name.to_owned(), value);
        }
        let pattern = match policy.queue {
            Some(place) => format!("^{}$", self.queue(place)),
            None => format!("^{}q", self.prefix),
        };
        let priority = usize::from(policy.priority) * 10 + place;
        json!({ "pattern": pattern, "definition": definition, "priority": priority, "apply-to": "queues" })
    }

    pub(crate) fn exchange_arguments(&self, exchange: &Exchange) -> Table {
        let alternate = exchange.alternate.map(|target| text(self.exchange(target)));
        alternate.map(|name| ("alternate-exchange".to_owned(), name)).into_iter().collect()
    }
}

pub(crate) fn exchange_type(kind: ExchangeKind) -> &'static str {
    match kind {
        ExchangeKind::Direct => "direct",
        ExchangeKind::Fanout => "fanout",
        ExchangeKind::Topic => "topic",
        ExchangeKind::Headers => "headers",
    }
}

fn overflow_name(overflow: Overflow) -> &'static str {
    match overflow {
        Overflow::DropHead => "drop-head",
        Overflow::RejectPublish => "reject-publish",
        Overflow::RejectPublishDlx => "reject-publish-dlx",
    }
}

fn retry_name(which: RetryType) -> &'static str {
    match which {
        RetryType::All => "all",
        RetryType::Failed => "failed",
        RetryType::Returned => "returned",
    }
}

pub(crate) fn binding_arguments(matching: Matching) -> Table {
    let ours = ("color".to_owned(), text("red"));
    let missing = ("nobody".to_owned(), Value::Long(1));
    let (how, headers) = match matching {
        Matching::None => return Table::new(),
        Matching::All => ("all", vec![ours]),
        Matching::AllOfMore => ("all", vec![ours, missing]),
        Matching::Any => ("any", vec![ours, missing]),
    };
    std::iter::once(("x-match".to_owned(), text(how))).chain(headers).collect()
}
