//! An existing exchange, and the queues that it routes to. Pure.

use serde_json::Value;

/// An exchange, as the management API describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundExchange {
    kind: String,
    bindings: Vec<FoundBinding>,
    /// True when an alternate exchange may take what this one cannot route.
    has_alternate: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FoundBinding {
    destination: String,
    to_queue: bool,
    key: String,
}

impl FoundExchange {
    pub(super) fn read(exchange: &Value, bindings: &Value) -> Self {
        let text =
            |of: &Value, name: &str| of.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let binding = |binding: &Value| FoundBinding {
            destination: text(binding, "destination"),
            to_queue: text(binding, "destination_type") == "queue",
            key: text(binding, "routing_key"),
        };
        Self {
            kind: text(exchange, "type"),
            bindings: bindings.as_array().into_iter().flatten().map(binding).collect(),
            has_alternate: exchange.pointer("/arguments/alternate-exchange").is_some()
                || exchange.get("policy").and_then(Value::as_str).is_some_and(|policy| !policy.is_empty()),
        }
    }

    /// Returns false when it is certain that a message with this key, or with any key for `None`, reaches no queue.
    pub(super) fn may_lead_somewhere(&self, key: Option<&str>) -> bool {
        let matches = |binding: &FoundBinding| match (self.kind.as_str(), key) {
            ("direct", Some(key)) => binding.key == key,
            ("topic", Some(key)) => topic_matches(
                &binding.key.split('.').collect::<Vec<_>>(),
                &key.split('.').collect::<Vec<_>>(),
            ),
            _ => true,
        };
        self.has_alternate || self.bindings.iter().any(matches)
    }

    /// Returns the binding keys of the queue.
    pub(super) fn keys_of(&self, queue: &str) -> Vec<&str> {
        let bindings =
            self.bindings.iter().filter(|binding| binding.to_queue && binding.destination == queue);
        bindings.map(|binding| binding.key.as_str()).collect()
    }

    /// Returns true if the exchange ignores routing keys.
    pub(super) fn ignores_keys(&self) -> bool {
        !["direct", "topic"].contains(&self.kind.as_str())
    }
}

/// Matches as a topic exchange does: `*` is one word, `#` is any number of words.
fn topic_matches(pattern: &[&str], key: &[&str]) -> bool {
    match (pattern, key) {
        ([], []) => true,
        (["#", rest @ ..], _) => {
            topic_matches(rest, key) || !key.is_empty() && topic_matches(pattern, &key[1..])
        }
        ([word, rest @ ..], [first, others @ ..]) => {
            (*word == "*" || word == first) && topic_matches(rest, others)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn exchange(kind: &str, keys: &[&str]) -> FoundExchange {
        let binding =
            |key: &&str| json!({"destination": "q", "destination_type": "queue", "routing_key": key});
        FoundExchange::read(&json!({"type": kind}), &keys.iter().map(binding).collect())
    }

    #[test]
    fn where_a_key_leads_depends_on_the_exchange() {
        for (kind, bound, key, leads) in [
            ("direct", &["orders"][..], Some("orders"), true),
            ("direct", &["orders"], Some("bills"), false),
            ("direct", &["orders"], None, true),
            ("fanout", &["any"], Some("orders"), true),
            ("topic", &["orders.*"], Some("orders.eu"), true),
            ("topic", &["orders.*"], Some("orders"), false),
            ("topic", &["*.failed"], Some("orders.eu.failed"), false),
            ("topic", &["orders.#.failed"], Some("orders.failed"), true),
            ("topic", &["orders.#.failed"], Some("orders.eu.de.failed"), true),
            ("topic", &["bills", "#"], Some("orders"), true),
            ("headers", &[""], Some("orders"), true),
            ("direct", &[], None, false),
            ("fanout", &[], Some("orders"), false),
        ] {
            assert_eq!(exchange(kind, bound).may_lead_somewhere(key), leads, "{kind} {bound:?} {key:?}");
        }
    }

    #[test]
    fn what_goes_on_elsewhere_may_lead_somewhere() {
        let alternate = json!({"type": "direct", "arguments": {"alternate-exchange": "rest"}});
        assert!(FoundExchange::read(&alternate, &json!([])).may_lead_somewhere(Some("orders")));
    }
}
