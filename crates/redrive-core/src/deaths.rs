//! What RabbitMQ writes on a message that it dead-letters, read tolerantly.

use std::time::SystemTime;

use crate::headers::{Headers, Value};

/// The `x-death` header and its companions, as RabbitMQ (and the in-process broker) write them
/// (<https://www.rabbitmq.com/docs/dlx#effects>). Evidence for people: nothing is decided by it, since
/// RabbitMQ 4 restarts the count whenever a client republishes.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct DeathHistory {
    /// The deaths, most recent first; one entry per queue and reason.
    pub deaths: Vec<Death>,
    /// `x-delivery-count`: how often a quorum queue saw it fail; absent is 0.
    pub delivery_count: u64,
    /// `x-acquired-count`: how often a quorum queue handed it out before (RabbitMQ 4.3 and newer); absent is 0.
    pub acquired_count: u64,
    /// `x-first-death-queue`.
    pub first_queue: Option<String>,
    /// `x-first-death-reason`.
    pub first_reason: Option<String>,
    /// `x-first-death-exchange`.
    pub first_exchange: Option<String>,
}

/// One entry of `x-death`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Death {
    /// The queue that it died in.
    pub queue: String,
    /// Why: `rejected`, `expired`, `maxlen` or `delivery_limit`.
    pub reason: String,
    /// How often it died there for that reason.
    pub count: u64,
    /// The exchange that it had been published to.
    pub exchange: String,
    /// The routing keys that it had been published with.
    pub routing_keys: Vec<String>,
    /// When it died there first.
    pub time: Option<SystemTime>,
    /// The `expiration` that it had.
    pub original_expiration: Option<String>,
}

impl DeathHistory {
    /// Reads what is there: any order of fields, integers of every type, absent is nothing.
    #[must_use]
    pub fn read(headers: &Headers) -> Self {
        let count = |name| headers.get(name).map_or(0, read_count);
        let text = |name| headers.get(name).and_then(Value::as_str).map(str::to_owned);
        let entries = headers.get("x-death").and_then(Value::as_list).unwrap_or_default();
        Self {
            deaths: entries.iter().filter_map(Value::as_table).map(read_death).collect(),
            delivery_count: count("x-delivery-count"),
            acquired_count: count("x-acquired-count"),
            first_queue: text("x-first-death-queue"),
            first_reason: text("x-first-death-reason"),
            first_exchange: text("x-first-death-exchange"),
        }
    }

    /// True when the broker never dead-lettered the message, as far as it says.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.deaths.is_empty()
    }

    /// How often the message died in this queue, for any reason.
    #[must_use]
    pub fn count_in(&self, queue: &str) -> u64 {
        self.deaths
            .iter()
            .filter(|death| death.queue == queue)
            .fold(0, |sum, death| sum.saturating_add(death.count))
    }
}

fn read_death(entry: &Headers) -> Death {
    let text = |name| entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let keys = entry.get("routing-keys").and_then(Value::as_list).unwrap_or_default();
    Death {
        queue: text("queue"),
        reason: text("reason"),
        count: entry.get("count").map_or(0, read_count),
        exchange: text("exchange"),
        routing_keys: keys.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        time: match entry.get("time") {
            Some(Value::Timestamp(time)) => time.to_system_time(),
            _ => None,
        },
        original_expiration: entry.get("original-expiration").and_then(Value::as_str).map(str::to_owned),
    }
}

fn read_count(value: &Value) -> u64 {
    match value.to_integer() {
        Some(count) => u64::try_from(count.max(0)).unwrap_or(u64::MAX),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::Timestamp;

    #[test]
    fn an_entry_is_read_by_name() {
        let entry = Headers::from_iter([
            ("count", Value::I64(3)),
            ("reason", "expired".into()),
            ("queue", "orders--retry-1000ms".into()),
            ("time", Timestamp::from_unix_seconds(1_700_000_000).into()),
            ("routing-keys", Value::List(vec!["orders".into()])),
        ]);
        let headers = Headers::from_iter([("x-death", Value::List(vec![entry.into(), Value::Null]))]);
        let history = DeathHistory::read(&headers);
        assert_eq!(history.count_in("orders--retry-1000ms"), 3);
        assert_eq!(history.deaths[0].routing_keys, ["orders"]);
    }

    #[test]
    fn anything_else_is_nothing() {
        let headers = Headers::from_iter([
            ("x-death", Value::from("forged")),
            ("x-delivery-count", Value::from(-4_i8)),
        ]);
        assert_eq!(DeathHistory::read(&headers), DeathHistory::default());
    }
}
