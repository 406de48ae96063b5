//! Compares the permissions of a user with those that a consumer needs. Pure.

use std::collections::{BTreeMap, BTreeSet};

use lapin::types::AMQPValue;
use regex_lite::Regex;
use serde_json::Value;

use super::audit::Finding::{self, Doubtful, Unknown, Wrong};
use crate::topology::{Part, Task};

/// Name of the default exchange in permissions.
const DEFAULT_EXCHANGE: &str = "amq.default";

/// The permissions of one user in one virtual host: patterns of names.
#[derive(Clone, Debug)]
pub(super) struct Permissions {
    /// Patterns by permission. `None`: the pattern cannot be parsed.
    patterns: BTreeMap<&'static str, Option<Regex>>,
}

impl Permissions {
    pub(super) fn read(answer: &Value) -> Self {
        let pattern = |name: &'static str| {
            // RabbitMQ's empty pattern matches only the empty name.
            let text =
                answer.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).unwrap_or("^$");
            (name, Regex::new(text).ok())
        };
        Self { patterns: ["configure", "write", "read"].map(pattern).into() }
    }

    /// Returns the permissions that `user` lacks: for `parts`, of which the queues in `there` exist, for the consumed queue, and for the
    /// exchanges that copies are published to.
    pub(super) fn findings<'a>(
        &self,
        user: &str,
        parts: impl Iterator<Item = (&'a Part, Task)>,
        there: &BTreeSet<&str>,
        consumed: &str,
        published_to: &BTreeSet<String>,
    ) -> Vec<Finding> {
        let (mut declaring, mut running) = (BTreeSet::new(), BTreeSet::new());
        for part in parts.filter(|(_, task)| *task == Task::Declare).map(|(part, _)| part) {
            declaring.extend(needed_to_declare(part, there));
        }
        running.insert(("read", consumed.to_owned()));
        running.extend(published_to.iter().map(|exchange| ("write", named(exchange))));
        let running: BTreeSet<_> = running.difference(&declaring).cloned().collect();
        let unreadable: Vec<_> =
            self.patterns.iter().filter(|(_, pattern)| pattern.is_none()).map(|(name, _)| *name).collect();
        let unknown = (!unreadable.is_empty()).then(|| {
            Unknown(format!(
                "the permission {} of user `{user}` has a pattern that cannot be read here",
                unreadable.join(", ")
            ))
        });
        let refused = self.missing(&declaring).map(|missing| {
            Wrong(format!(
                "RabbitMQ does not let user `{user}` declare what the consumer needs: grant {missing}, or have it declared by somebody \
                 else and use Topology::Verify"
            ))
        });
        let stuck = self.missing(&running).map(|missing| {
            Doubtful(format!(
                "user `{user}` lacks permissions without which the consumer starts and cannot take or settle messages: grant {missing}"
            ))
        });
        [refused, stuck, unknown].into_iter().flatten().collect()
    }

    /// Formats the missing permissions as `configure on `a`, `b`; write on `c``; `None` if nothing is missing.
    fn missing(&self, needed: &BTreeSet<(&'static str, String)>) -> Option<String> {
        let may = |(permission, name): &&(&'static str, String)| {
            self.patterns
                .get(permission)
                .and_then(Option::as_ref)
                .is_none_or(|pattern| pattern.is_match(name))
        };
        let mut missing: BTreeMap<_, Vec<String>> = BTreeMap::new();
        for (permission, name) in needed.iter().filter(|needed| !may(needed)) {
            missing.entry(*permission).or_default().push(format!("`{name}`"));
        }
        let said = missing.iter().map(|(permission, names)| format!("{permission} on {}", names.join(", ")));
        (!missing.is_empty()).then(|| said.collect::<Vec<_>>().join("; "))
    }
}

/// Returns the permissions for a declaration. A queue that exists needs only `configure` (measured).
fn needed_to_declare(part: &Part, there: &BTreeSet<&str>) -> Vec<(&'static str, String)> {
    match part {
        Part::Queue(queue) => {
            let mut needed = vec![("configure", queue.name.clone())];
            if let Some(AMQPValue::LongString(exchange)) = queue.arguments.get("x-dead-letter-exchange")
                && !there.contains(&*queue.name)
            {
                let exchange = String::from_utf8_lossy(exchange.as_bytes()).into_owned();
                needed.extend([("read", queue.name.clone()), ("write", named(&exchange))]);
            }
            needed
        }
        Part::Exchange(exchange) => vec![("configure", exchange.name.clone())],
        Part::Binding(binding) => {
            vec![("write", binding.queue.clone()), ("read", binding.exchange.clone())]
        }
        Part::OtherExchange(_) | Part::OtherQueue(_) => Vec::new(),
    }
}

fn named(exchange: &str) -> String {
    if exchange.is_empty() { DEFAULT_EXCHANGE.to_owned() } else { exchange.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::options::Options;

    fn said(configure: &str, write: &str, read: &str, task: Task) -> Vec<Finding> {
        said_of(configure, write, read, task, &[])
    }

    fn said_of(configure: &str, write: &str, read: &str, task: Task, there: &[&str]) -> Vec<Finding> {
        let permissions = Permissions::read(&json!({"configure": configure, "write": write, "read": read}));
        let parts = Options::new("orders").plan().unwrap().parts();
        let default_exchange = BTreeSet::from([String::new()]);
        let (parts, there) = (parts.iter().map(|part| (part, task)), there.iter().copied().collect());
        permissions.findings("bob", parts, &there, "orders", &default_exchange)
    }

    #[test]
    fn a_queue_that_is_there_needs_less_to_be_declared() {
        assert!(matches!(said("^orders", ".*", "^none$", Task::Declare)[..], [Wrong(_)]));
        let [Doubtful(said)] = &said_of("^orders", ".*", "^none$", Task::Declare, &["orders"])[..] else {
            panic!("not one")
        };
        assert!(said.contains("read on `orders`"), "but it cannot be consumed: {said}");
    }

    #[test]
    fn what_a_declaration_needs_is_named_by_permission() {
        assert_eq!(said(".*", ".*", ".*", Task::Declare), []);
        assert_eq!(said("^orders", "^amq.default$", "^orders$", Task::Declare), []);
        let [Wrong(said)] = &said("^other", "", "^orders", Task::Declare)[..] else { panic!("not one") };
        let missing =
            "configure on `orders`, `orders--dead-letters`, `orders--parking-lot`; write on `amq.default`";
        assert!(said.contains(missing) && said.contains("`bob`"), "{said}");
    }

    #[test]
    fn what_is_only_needed_later_is_doubtful() {
        assert_eq!(said("", ".*", ".*", Task::Verify), []);
        let [Doubtful(said)] = &said("", "^other", "^other", Task::Verify)[..] else { panic!("not one") };
        assert!(said.contains("read on `orders`; write on `amq.default`"), "{said}");
    }

    #[test]
    fn a_pattern_that_cannot_be_read_is_said() {
        let [Unknown(said)] = &said("(?<!x)o", ".*", ".*", Task::Declare)[..] else { panic!("not one") };
        assert!(said.contains("configure"), "{said}");
    }
}
