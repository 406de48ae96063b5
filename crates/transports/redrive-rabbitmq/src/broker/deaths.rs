//! Reads tolerantly what RabbitMQ writes on a message that it dead-letters.

use std::time::SystemTime;

use redrive_core::shelves::{EntryHandle, Shelved};
use redrive_core::{
    Delivery, FromDelivery, Headers, Message, Reason, Rejected, Value, header_names, parse_rfc3339,
    plausible, rfc3339,
};

/// The `x-death` header and its companions (<https://www.rabbitmq.com/docs/dlx#effects>): an argument of a handler, or
/// [`read`](Self::read) from the headers of any message. It informs people. redrive takes from it only how often a consumer
/// rejected the message, for the number of deliveries that RabbitMQ 4 counts; and the attempts, if
/// [`attempts_from_deaths`](crate::Options::attempts_from_deaths) is set: RabbitMQ 4 restarts the count whenever a client republishes.
///
/// ```
/// use redrive_rabbitmq::DeathHistory;
///
/// async fn ship(deaths: DeathHistory, order: String) {
///     println!("{order}: rejected {} times before", deaths.count_in("orders"));
/// }
/// # fn is_handler<A>(_: impl redrive_consumer::Handler<A, ()>) {} is_handler(ship);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct DeathHistory {
    /// The deaths, most recent first; one entry per queue and reason.
    pub deaths: Vec<Death>,
    /// `x-delivery-count`: number of failures that a quorum queue counted; 0 if absent.
    pub delivery_count: u64,
    /// `x-acquired-count`: number of earlier deliveries from a quorum queue (RabbitMQ 4.3 and newer); 0 if absent.
    pub acquired_count: u64,
    /// `x-first-death-queue`.
    pub first_queue: Option<String>,
    /// `x-first-death-reason`.
    pub first_reason: Option<String>,
    /// `x-first-death-exchange`.
    pub first_exchange: Option<String>,
    /// `x-last-death-queue` (RabbitMQ 3.13 and newer).
    pub last_queue: Option<String>,
    /// `x-last-death-reason` (RabbitMQ 3.13 and newer).
    pub last_reason: Option<String>,
    /// `x-last-death-exchange` (RabbitMQ 3.13 and newer).
    pub last_exchange: Option<String>,
}

/// One entry of `x-death`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Death {
    /// The queue that it died in.
    pub queue: String,
    /// The reason: `rejected`, `expired`, `maxlen` or `delivery_limit`.
    pub reason: String,
    /// How often it died there for that reason.
    pub count: u64,
    /// The exchange that it had been published to.
    pub exchange: String,
    /// The routing keys that it had been published with.
    pub routing_keys: Vec<String>,
    /// The time of the first such death.
    pub time: Option<SystemTime>,
    /// The `expiration` that it had, in milliseconds; RabbitMQ removes it when it dead-letters the message.
    pub original_expiration: Option<String>,
}

impl DeathHistory {
    /// Reads the headers. Accepts any order of fields and integers of every type; absent headers leave the defaults.
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
            last_queue: text("x-last-death-queue"),
            last_reason: text("x-last-death-reason"),
            last_exchange: text("x-last-death-exchange"),
        }
    }

    /// Returns true if nothing shows that the broker dead-lettered the message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.deaths.is_empty()
    }

    /// Returns how often the message was rejected in this queue.
    pub(crate) fn rejected_in(&self, queue: &str) -> u64 {
        let rejected = |death: &&Death| death.queue == queue && death.reason == "rejected";
        self.deaths.iter().filter(rejected).fold(0, |sum, death| sum.saturating_add(death.count))
    }

    /// Returns how often the message died in this queue, for any reason.
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
        time: entry.get("time").and_then(read_time),
        original_expiration: entry.get("original-expiration").and_then(Value::as_str).map(str::to_owned),
    }
}

/// Reads a time. RabbitMQ writes a timestamp; programs that pass a message through JSON make it a text.
fn read_time(value: &Value) -> Option<SystemTime> {
    match value {
        Value::Timestamp(time) => time.to_system_time(),
        Value::String(text) => parse_rfc3339(text),
        _ => None,
    }
}

fn read_count(value: &Value) -> u64 {
    value.to_integer().map_or(0, |count| u64::try_from(count.max(0)).unwrap_or(u64::MAX))
}

impl<S> FromDelivery<S> for DeathHistory {
    fn from_delivery(delivery: &Delivery, _: &S) -> Result<Self, Rejected> {
        Ok(Self::read(delivery.message().headers()))
    }
}

/// Creates an entry of a shelf, with the broker's data if the broker dead-lettered the message itself.
pub(crate) fn shelved(handle: EntryHandle, message: Message) -> Shelved {
    let mut shelved = Shelved::new(handle, message);
    if let Some(death) = DeathHistory::read(shelved.message.headers()).deaths.into_iter().next() {
        // Of several deaths with one reason, the broker reports the time of the first.
        shelved.shelved_at = death.time.filter(|_| death.count == 1);
        shelved.broker_reason = Some(death.reason);
    }
    shelved
}

/// Writes the deaths in `queue` on the message as failed attempts, in redrive's own headers, which its copies keep. Does nothing if
/// redrive wrote on it before, or if no consumer of `queue` rejected it.
pub(crate) fn as_attempts(mut message: Message, queue: &str, now: SystemTime) -> Message {
    if message.headers().iter().any(|(name, _)| name.starts_with(header_names::PREFIX)) {
        return message;
    }
    let deaths = DeathHistory::read(message.headers()).deaths;
    let failed =
        |death: &&Death| death.queue == queue && matches!(&*death.reason, "rejected" | "delivery_limit");
    let failures: Vec<&Death> = deaths.iter().filter(failed).collect();
    let attempts = failures.iter().fold(0_u64, |sum, death| sum.saturating_add(death.count));
    let Some(first) = failures.last().filter(|_| attempts > 0) else { return message };
    let headers = message.headers_mut();
    headers.insert(header_names::ATTEMPT, i64::try_from(attempts).unwrap_or(i64::MAX));
    headers.insert(header_names::REASON, Reason::RetryableError.as_str());
    headers.insert(header_names::SOURCE_QUEUE, queue);
    headers.insert(header_names::SOURCE_EXCHANGE, &*first.exchange);
    if let Some(key) = first.routing_keys.first() {
        headers.insert(header_names::SOURCE_ROUTING_KEY, &**key);
    }
    let times = failures.iter().filter_map(|death| plausible(death.time?, now));
    if let Some(began) = times.min().and_then(rfc3339) {
        headers.insert(header_names::FIRST_FAILED_AT, began);
    }
    let history = deaths.iter().rev().map(|death| Value::Table(death.as_past_failure())).collect();
    headers.insert(header_names::HISTORY, Value::List(history));
    message
}

impl Death {
    fn as_past_failure(&self) -> Headers {
        use header_names::history as keys;
        let times = if self.count == 1 { "once".to_owned() } else { format!("{} times", self.count) };
        let error = format!("{} {times} in queue `{}`, by x-death", self.reason, self.queue);
        let mut entry = Headers::from_iter([
            (keys::ATTEMPT, Value::I64(i64::try_from(self.count).unwrap_or(i64::MAX))),
            (keys::REASON, Value::from(&*self.reason)),
            (keys::ERROR, Value::from(error)),
        ]);
        if let Some(time) = self.time.and_then(rfc3339) {
            entry.insert(keys::AT, time);
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use redrive_core::{Shelf, Timestamp, header_names as names};

    use super::*;

    const DIED: u64 = 1_700_000_000;

    fn death(queue: &str, reason: &str, count: i64) -> Value {
        let entry = Headers::from_iter([
            ("count", Value::I64(count)),
            ("reason", reason.into()),
            ("queue", queue.into()),
            ("time", Timestamp::from_unix_seconds(DIED).into()),
            ("exchange", "shop".into()),
            ("routing-keys", Value::List(vec!["orders.new".into()])),
            ("original-expiration", "60000".into()),
        ]);
        entry.into()
    }

    fn dead(deaths: impl IntoIterator<Item = Value>) -> Message {
        Message::new("").with_header("x-death", Value::List(deaths.into_iter().collect()))
    }

    fn died() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(DIED)
    }

    #[test]
    fn an_entry_is_read_by_name() {
        let message =
            dead([death("orders", "maxlen", 3), Value::Null]).with_header("x-last-death-queue", "orders");
        let history = DeathHistory::read(message.headers());
        assert_eq!(history.count_in("orders"), 3);
        assert_eq!(history.last_queue.as_deref(), Some("orders"));
        let [only] = &history.deaths[..] else { panic!("one entry") };
        assert_eq!((&*only.reason, only.time), ("maxlen", Some(died())));
        assert_eq!((&*only.exchange, &*only.routing_keys[0]), ("shop", "orders.new"));
        assert_eq!(only.original_expiration.as_deref(), Some("60000"));
    }

    #[test]
    fn a_time_may_be_text() {
        for text in ["2023-11-14T22:13:20Z", "2023-11-14T22:13:20+00:00", "2023-11-14 22:13:20"] {
            assert_eq!(read_time(&text.into()), Some(died()), "{text}");
        }
        assert_eq!(read_time(&"yesterday".into()), None);
    }

    #[test]
    fn anything_else_is_nothing() {
        let headers = Headers::from_iter([
            ("x-death", Value::from("forged")),
            ("x-delivery-count", Value::from(-4_i8)),
        ]);
        assert_eq!(DeathHistory::read(&headers), DeathHistory::default());
    }

    #[test]
    fn an_entry_of_a_shelf_has_the_time_of_its_one_death_or_of_its_last_failure() {
        let failed = "2026-01-02T03:04:05Z";
        let on_shelf = |message: Message| {
            shelved(
                EntryHandle::new(Shelf::DeadLetter, "1"),
                message.with_header(names::LAST_FAILED_AT, failed),
            )
        };
        let ours = on_shelf(Message::new(""));
        assert_eq!((ours.shelved_at, ours.broker_reason), (humantime::parse_rfc3339(failed).ok(), None));
        let theirs = on_shelf(dead([death("orders", "expired", 1)]));
        assert_eq!((theirs.shelved_at, theirs.broker_reason.as_deref()), (Some(died()), Some("expired")));
        assert_eq!(on_shelf(dead([death("orders", "rejected", 2)])).shelved_at, None);
    }

    #[test]
    fn deaths_become_attempts() {
        let message =
            dead([death("wait", "expired", 3), death("orders", "rejected", 3), death("orders", "maxlen", 1)]);
        let delivery = Delivery::new(as_attempts(message, "orders", died()), "orders", died());
        assert_eq!(delivery.attempt(), 4);
        let history = delivery.history();
        assert_eq!(history.first_failed_at, Some(died()));
        assert_eq!(history.source_exchange.as_deref(), Some("shop"));
        assert_eq!(history.past.len(), 3);
        assert_eq!(history.past[2].error, "expired 3 times in queue `wait`, by x-death");
    }

    #[test]
    fn a_death_at_a_time_that_has_no_text_is_an_attempt_all_the_same() {
        for seconds in [-1, 1_700_000, 253_402_300_800, 1_700_000_000_000, i64::MAX] {
            let mut forged = Headers::from_iter([("count", Value::I64(2)), ("reason", "rejected".into())]);
            forged.insert("queue", "orders");
            forged.insert("time", Timestamp::from_unix_millis(seconds.saturating_mul(1000)));
            let message = as_attempts(dead([forged.into()]), "orders", died());
            let delivery = Delivery::new(message, "orders", died());
            assert_eq!((delivery.attempt(), delivery.history().first_failed_at), (3, None), "{seconds}");
        }
    }

    #[test]
    fn what_redrive_wrote_or_nobody_rejected_stays_as_it_is() {
        let ours = dead([death("orders", "rejected", 3)]).with_header(names::ATTEMPT, 1_i64);
        let elsewhere = dead([death("payments", "rejected", 3), death("orders", "expired", 1)]);
        for message in [ours, elsewhere, Message::new("")] {
            assert_eq!(as_attempts(message.clone(), "orders", died()), message);
        }
    }
}
