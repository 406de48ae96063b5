//! An existing queue: the settings that result from its arguments and policies. Pure.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value};

use super::policies::{InForce, Policies};
use crate::topology::{Queue, value_of};

/// A queue, as the management API describes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Found {
    pub(super) queue_type: String,
    arguments: Map<String, Value>,
    /// Settings that result from its policy and operator policy, by names without `x-`.
    policy: Map<String, Value>,
    policy_name: String,
}

impl Found {
    pub(crate) fn read(queue: &Value) -> Self {
        let object = |name: &str| queue.get(name).and_then(Value::as_object).cloned().unwrap_or_default();
        let text = |name: &str| queue.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let names = [text("policy"), text("operator_policy")];
        Self {
            queue_type: text("type"),
            arguments: object("arguments"),
            policy: object("effective_policy_definition"),
            policy_name: names
                .iter()
                .filter(|name| !name.is_empty())
                .cloned()
                .collect::<Vec<_>>()
                .join("` and `"),
        }
    }

    /// Replaces the policy settings with those of the policies in force.
    pub(crate) fn with_policies(mut self, policies: &Policies, name: &str) -> Self {
        let InForce { definition, names } = policies.of(name, &self.queue_type);
        self.policy = definition;
        self.policy_name = names.join("` and `");
        self
    }

    /// Returns the number of returns after which the broker removes a message, if an argument or a policy sets one.
    pub(crate) fn delivery_limit(&self) -> Option<u32> {
        self.lower("delivery-limit").and_then(|limit| u32::try_from(limit.value).ok())
    }

    /// Returns the time after which the broker takes back an unsettled delivery, if an argument or a policy sets one.
    pub(crate) fn consumer_timeout(&self) -> Option<Duration> {
        self.lower("consumer-timeout").map(|timeout| Duration::from_millis(timeout.value))
    }

    /// Returns the arguments that differ from those of the needed queue, as far as RabbitMQ compares them (measured on 3.10 and
    /// 4.3), each with both values. The queue type is checked elsewhere.
    pub(super) fn differing(&self, needed: &Queue) -> Vec<String> {
        const COMPARED: [&str; 13] = [
            "x-dead-letter-exchange",
            "x-dead-letter-routing-key",
            "x-dead-letter-strategy",
            "x-delayed-retry-max",
            "x-delayed-retry-min",
            "x-delayed-retry-type",
            "x-delivery-limit",
            "x-expires",
            "x-max-length",
            "x-max-length-bytes",
            "x-message-ttl",
            "x-overflow",
            "x-single-active-consumer",
        ];
        let said =
            |value: Option<&Value>| value.map_or_else(|| "not set".to_owned(), |value| format!("{value}"));
        let differs = |name: &&str| {
            let (wanted, there) = (needed.arguments.get(*name).map(value_of), self.arguments.get(*name));
            (wanted.as_ref() != there)
                .then(|| format!("`{name}` is {} and {} is asked for", said(there), said(wanted.as_ref())))
        };
        COMPARED.iter().filter_map(differs).collect()
    }

    /// Returns the lower value of argument and policy: RabbitMQ applies it for times to live and limits.
    pub(super) fn lower(&self, name: &str) -> Option<Setting<u64>> {
        let argument = number(self.arguments.get(&format!("x-{name}")))
            .map(|value| Setting { value, by: By::Arguments });
        let policy = number(self.policy.get(name)).map(|value| Setting { value, by: self.by_policy() });
        [argument, policy].into_iter().flatten().min_by_key(|setting| setting.value)
    }

    /// Returns the argument, or the policy's value where there is no argument.
    pub(super) fn argument_first(&self, name: &str) -> Option<Setting<String>> {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let argument =
            text(self.arguments.get(&format!("x-{name}"))).map(|value| Setting { value, by: By::Arguments });
        argument.or_else(|| text(self.policy.get(name)).map(|value| Setting { value, by: self.by_policy() }))
    }

    /// Returns the limit that makes a full queue remove messages, if there is one.
    pub(super) fn evicts(&self) -> Option<Setting<u64>> {
        let refuses = |overflow: Setting<String>| overflow.value.starts_with("reject-publish");
        if self.argument_first("overflow").is_some_and(refuses) {
            return None;
        }
        self.lower("max-length").or_else(|| self.lower("max-length-bytes"))
    }

    fn by_policy(&self) -> By {
        By::Policy(self.policy_name.clone())
    }
}

/// A value, and who set it.
pub(super) struct Setting<T> {
    pub(super) value: T,
    pub(super) by: By,
}

/// What sets a value of a queue: a policy can be changed, the arguments of a queue cannot.
pub(super) enum By {
    Arguments,
    /// The name, or `a` and `b`.
    Policy(String),
}

impl By {
    /// Says how to get rid of `setting`, named without `x-`.
    pub(super) fn without(&self, setting: &str) -> String {
        match self {
            Self::Arguments => {
                format!("delete the queue once it is empty, and declare it without `x-{setting}`")
            }
            Self::Policy(_) => format!("take `{setting}` out of {self}"),
        }
    }

    /// Says how to make `setting` what it must be.
    pub(super) fn with(&self, setting: &str, wanted: impl fmt::Display) -> String {
        match self {
            Self::Arguments => {
                format!("delete the queue once it is empty, and declare it with `x-{setting}` {wanted}")
            }
            Self::Policy(_) => self.without(setting),
        }
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arguments => f.write_str("its arguments"),
            Self::Policy(name) => write!(f, "policy `{name}`"),
        }
    }
}

fn number(value: Option<&Value>) -> Option<u64> {
    value.and_then(Value::as_u64)
}
