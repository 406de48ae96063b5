//! A virtual host: its exchanges, the names of its queues, and its policies.

use std::collections::{BTreeMap, HashMap};

use redrive_amqp091::ShortStr;
use regex_lite::Regex;

use super::QueueId;
use super::exchange::{Exchange, ExchangeKind};
use super::queue::settings::QueueKind;

const FOREIGN_TO_CLASSIC: &[&str] = &[
    "delivery-limit",
    "dead-letter-strategy",
    "max-age",
    "stream-max-segment-size-bytes",
    "initial-cluster-size",
];
const FOREIGN_TO_QUORUM: &[&str] =
    &["max-priority", "queue-mode", "max-age", "stream-max-segment-size-bytes", "initial-cluster-size"];

#[derive(Debug)]
pub(crate) struct VHost {
    pub(crate) name: ShortStr,
    pub(crate) exchanges: HashMap<ShortStr, Exchange>,
    pub(crate) queues: HashMap<ShortStr, QueueId>,
    /// By name.
    pub(crate) policies: BTreeMap<String, Policy>,
}

/// A policy: settings for everything whose name matches.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    pub(crate) name: String,
    pub(crate) pattern: String,
    pub(crate) regex: Regex,
    pub(crate) apply_to: String,
    pub(crate) priority: i64,
    pub(crate) definition: serde_json::Map<String, serde_json::Value>,
}

impl Policy {
    pub(crate) fn new(
        name: String,
        pattern: String,
        apply_to: String,
        priority: i64,
        definition: serde_json::Map<String, serde_json::Value>,
    ) -> Result<Self, String> {
        let regex = Regex::new(&pattern).map_err(|error| format!("the pattern '{pattern}': {error}"))?;
        let kinds = ["all", "queues", "classic_queues", "quorum_queues", "exchanges", "streams"];
        if !kinds.contains(&&*apply_to) {
            return Err(format!("apply-to '{apply_to}' is none of {}", kinds.join(", ")));
        }
        Ok(Self { name, pattern, regex, apply_to, priority, definition })
    }

    /// Returns whether it is for queues of this type. With one key that they do not know, the whole policy is not.
    fn is_for_queues(&self, kind: QueueKind) -> bool {
        let applies = match &*self.apply_to {
            "all" | "queues" => true,
            "classic_queues" => kind == QueueKind::Classic,
            "quorum_queues" => kind == QueueKind::Quorum,
            _ => false,
        };
        let foreign = match kind {
            QueueKind::Classic => FOREIGN_TO_CLASSIC,
            QueueKind::Quorum => FOREIGN_TO_QUORUM,
        };
        applies && !foreign.iter().any(|key| self.definition.contains_key(*key))
    }
}

impl VHost {
    pub(crate) fn new(name: ShortStr) -> Self {
        let mut exchanges = HashMap::new();
        for (exchange, kind) in [
            ("", ExchangeKind::Direct),
            ("amq.direct", ExchangeKind::Direct),
            ("amq.fanout", ExchangeKind::Fanout),
            ("amq.topic", ExchangeKind::Topic),
            ("amq.headers", ExchangeKind::Headers),
            ("amq.match", ExchangeKind::Headers),
        ] {
            let exchange = ShortStr::from_static(exchange);
            exchanges.insert(exchange.clone(), Exchange::new(exchange, kind));
        }
        Self { name, exchanges, queues: HashMap::new(), policies: BTreeMap::new() }
    }

    /// Returns the policy of a queue: of those that match, the one with the highest priority.
    pub(crate) fn queue_policy(&self, name: &ShortStr, kind: QueueKind) -> Option<&Policy> {
        self.best(name, |policy| policy.is_for_queues(kind))
    }

    /// Returns the policy of an exchange.
    pub(crate) fn exchange_policy(&self, name: &ShortStr) -> Option<&Policy> {
        self.best(name, |policy| matches!(&*policy.apply_to, "all" | "exchanges"))
    }

    fn best(&self, name: &ShortStr, applies: impl Fn(&Policy) -> bool) -> Option<&Policy> {
        let name = name.to_str();
        // Of equal priorities the first name counts.
        let matching =
            self.policies.values().rev().filter(|policy| applies(policy) && policy.regex.is_match(&name));
        matching.max_by_key(|policy| policy.priority)
    }
}
