//! What redrive wrote on a message when it failed before, read tolerantly.

use std::time::{Duration, SystemTime};

use crate::failure::Reason;
use crate::header_names as names;
use crate::headers::{Headers, Timestamp, Value};
use crate::message::Message;
use crate::text::fnv1a;
use crate::times::{parse_rfc3339, plausible};
use crate::trace::TraceParent;

/// History of a message's failures. Reading never fails and never panics, whatever the headers contain. A count that is present
/// but cannot be read is [`Count::Unreadable`], never silently zero. Times are as they were written:
/// [`believed`](Self::believed) leaves those that a decision may rely on.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct FailureHistory {
    /// How often handling failed since the message was published or redriven.
    pub attempt: Count,
    /// Number of copies between the message as published and this one.
    pub copy_number: u32,
    /// How often an operator sent it back.
    pub redrives: Count,
    /// How often a handler asked for it to be delivered again later.
    pub snoozes: u32,
    /// How often earlier copies were handed out without a failure being recorded.
    pub deliveries_before: u32,
    /// When it failed for the first time.
    pub first_failed_at: Option<SystemTime>,
    /// When it failed last.
    pub last_failed_at: Option<SystemTime>,
    /// Why it failed last.
    pub reason: Option<Reason>,
    /// Text of the last error.
    pub error: Option<String>,
    /// Type of the last error.
    pub error_type: Option<String>,
    /// Fingerprint of the last failure.
    pub fingerprint: Option<String>,
    /// The queue whose consumer failed.
    pub source_queue: Option<String>,
    /// The exchange that the message was first published to.
    pub source_exchange: Option<String>,
    /// The routing key that the message was first published with.
    pub source_routing_key: Option<String>,
    /// When the publisher's expiration ends, as computed at an earlier delivery; see
    /// [`Delivery::deadline`](crate::Delivery::deadline).
    pub deadline: Option<SystemTime>,
    /// Not to be handled before this time.
    pub not_before: Option<SystemTime>,
    /// How much of its wait remained, beyond the hop that this copy was stored for.
    pub wait_left: Option<Duration>,
    /// When the wait that this copy was stored for ends.
    pub due_at: Option<SystemTime>,
    /// The trace context of the attempt that stored this copy, where that attempt had a `Tracer`.
    pub trace_parent: Option<TraceParent>,
    /// The first failures and the last ones, oldest first.
    pub past: Vec<PastFailure>,
    /// True if the message's id was assigned on arrival, because it had none.
    pub id_assigned: bool,
    /// True if the message carries a packed story ([`STORY`](crate::header_names::STORY)) that its transport could not unpack.
    pub packed_history_unreadable: bool,
    /// Description of what the transport could not read of the message. No handler sees such a message.
    pub read_without: Option<String>,
}

/// One earlier failure.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PastFailure {
    /// Number of the attempt that failed.
    pub attempt: u32,
    /// When it failed.
    pub at: Option<SystemTime>,
    /// Why it failed.
    pub reason: String,
    /// Text of the error.
    pub error: String,
    /// Wait that followed, in milliseconds.
    pub wait_ms: Option<u64>,
}

/// A count on a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// The number; 0 if the header is missing.
    Known(u32),
    /// The header is present but not a count.
    Unreadable,
}

impl Default for Count {
    fn default() -> Self {
        Self::Known(0)
    }
}

impl Count {
    /// Returns the count. An unreadable count becomes the maximum, so that every limit counts as reached.
    #[must_use]
    pub fn or_highest(self) -> u32 {
        match self {
            Self::Known(count) => count,
            Self::Unreadable => u32::MAX,
        }
    }

    fn read(headers: &Headers, name: &str) -> Self {
        match headers.get(name) {
            None => Self::Known(0),
            Some(value) => match value.to_integer() {
                Some(count) if count >= 0 => Self::Known(u32::try_from(count).unwrap_or(u32::MAX)),
                _ => Self::Unreadable,
            },
        }
    }
}

impl FailureHistory {
    /// Reads the history from a message's headers.
    #[must_use]
    pub fn read(message: &Message) -> Self {
        if !Self::is_on(message) {
            return Self::default();
        }
        let headers = message.headers();
        let text = |name| headers.get(name).and_then(Value::as_str).map(str::to_owned);
        let time = |name| headers.get(name).and_then(read_time);
        let copy_number = read_copy_number(headers);
        Self {
            attempt: Count::read(headers, names::ATTEMPT),
            copy_number,
            snoozes: Count::read(headers, names::SNOOZES).or_highest(),
            redrives: Count::read(headers, names::REDRIVES),
            deliveries_before: match Count::read(headers, names::HANDED_OUT) {
                Count::Known(count) => count,
                Count::Unreadable => 0,
            },
            first_failed_at: time(names::FIRST_FAILED_AT),
            last_failed_at: time(names::LAST_FAILED_AT),
            reason: headers.get(names::REASON).and_then(Value::as_str).map(Reason::parse),
            error: text(names::ERROR),
            error_type: text(names::ERROR_TYPE),
            fingerprint: text(names::FINGERPRINT),
            source_queue: text(names::SOURCE_QUEUE),
            source_exchange: text(names::SOURCE_EXCHANGE),
            source_routing_key: text(names::SOURCE_ROUTING_KEY),
            deadline: time(names::DEADLINE),
            not_before: time(names::NOT_BEFORE),
            wait_left: headers.get(names::WAIT_LEFT).and_then(|value| read_wait_left(value, copy_number)),
            due_at: time(names::DUE_AT),
            trace_parent: headers
                .get(names::TRACE_PARENT)
                .and_then(Value::as_str)
                .and_then(TraceParent::parse),
            past: headers.get(names::HISTORY).and_then(Value::as_list).map(read_history).unwrap_or_default(),
            id_assigned: false,
            packed_history_unreadable: headers.contains(names::STORY),
            read_without: None,
        }
    }

    /// Returns the history without the times that are not [plausible] at `now`: for every decision by a time. Those of
    /// [`past`](Self::past) stay, for people.
    #[must_use]
    pub fn believed(mut self, now: SystemTime) -> Self {
        for time in [
            &mut self.first_failed_at,
            &mut self.last_failed_at,
            &mut self.deadline,
            &mut self.not_before,
            &mut self.due_at,
        ] {
            *time = time.and_then(|time| plausible(time, now));
        }
        self
    }

    /// Returns true if the message carries anything to read. Most messages do not: nothing has failed yet.
    pub(crate) fn is_on(message: &Message) -> bool {
        message.headers().iter().any(|(name, _)| name.starts_with(names::PREFIX))
    }

    /// Returns how often handling failed since the message was published or redriven. If the header cannot be read, returns the
    /// maximum, so that every limit counts as reached.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.attempt.or_highest()
    }

    /// Returns the names of the headers that hold counts, are present, and cannot be read.
    #[must_use]
    pub fn unreadable(&self) -> Vec<&'static str> {
        [
            (self.attempt == Count::Unreadable, names::ATTEMPT),
            (self.redrives == Count::Unreadable, names::REDRIVES),
            (self.packed_history_unreadable, names::STORY),
        ]
        .into_iter()
        .filter_map(|(unreadable, name)| unreadable.then_some(name))
        .collect()
    }
}

/// Reads the copy number. It only distinguishes copies, so an unreadable one may become any number that can still grow: a copy
/// with the number of its original would be taken for the original, and dropped as settled before.
pub(crate) fn read_copy_number(headers: &Headers) -> u32 {
    let written = match headers.get(names::STORY) {
        // The number is in there; that of another copy is in another story.
        Some(story) if !headers.contains(names::HOP) => {
            // The same in every process.
            let hash = fnv1a(format!("{story:?}").bytes()) % u64::from(u32::MAX - 1);
            1 + u32::try_from(hash).unwrap_or_default()
        }
        _ => Count::read(headers, names::HOP).or_highest(),
    };
    if written < u32::MAX { written } else { 0 }
}

/// Writes on a copy how much of its wait remains after its hop.
pub(crate) fn write_wait_left(headers: &mut Headers, left: Duration) {
    let copy_number = read_copy_number(headers);
    // Rounded up: the message must not be handled early.
    let millis = left.as_nanos().div_ceil(1_000_000);
    headers.insert_own(names::WAIT_LEFT, format!("{copy_number}:{millis}"));
}

/// Reads the remaining wait, if it was written on this copy. One written on another copy means nothing: a program that does not
/// know the header carries it on.
fn read_wait_left(value: &Value, copy_number: u32) -> Option<Duration> {
    let (of_copy, millis) = value.as_str()?.split_once(':')?;
    (of_copy.parse() == Ok(copy_number)).then(|| millis.parse().ok().map(Duration::from_millis))?
}

/// Reads RFC 3339, as redrive writes it; or a timestamp or milliseconds since 1970, if another client rewrote the header.
fn read_time(value: &Value) -> Option<SystemTime> {
    match value {
        Value::String(text) => parse_rfc3339(text),
        Value::Timestamp(time) => time.to_system_time(),
        other => Timestamp::from_unix_millis(i64::try_from(other.as_integer()?).ok()?).to_system_time(),
    }
}

/// Writes a time as headers contain it.
pub(crate) fn write_time(time: SystemTime) -> Value {
    let time = time.clamp(SystemTime::UNIX_EPOCH, latest_time());
    Value::String(humantime::format_rfc3339_millis(time).to_string())
}

/// Returns the latest time that can be written: years after 9999 cannot, and a clock that shows one is wrong anyway.
pub(crate) fn latest_time() -> SystemTime {
    SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(253_402_300_799)
}

fn read_history(entries: &[Value]) -> Vec<PastFailure> {
    // redrive writes a handful of entries; an array of another program may have any length.
    const MAX_READ: usize = 64;
    entries.iter().take(MAX_READ).filter_map(Value::as_table).map(read_past_failure).collect()
}

fn read_past_failure(entry: &Headers) -> PastFailure {
    use names::history as key;
    let text = |name| entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    PastFailure {
        attempt: Count::read(entry, key::ATTEMPT).or_highest(),
        at: entry.get(key::AT).and_then(read_time),
        reason: text(key::REASON),
        error: text(key::ERROR),
        wait_ms: entry.get(key::WAIT).and_then(Value::to_integer).and_then(|wait| u64::try_from(wait).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failures(value: impl Into<Value>) -> u32 {
        FailureHistory::read(&Message::new("").with_header(names::ATTEMPT, value)).failures()
    }

    #[test]
    fn an_attempt_count_is_read_in_every_way_that_it_may_be_written() {
        assert_eq!(FailureHistory::read(&Message::new("")).failures(), 0);
        assert_eq!(failures(3_i64), 3);
        assert_eq!(failures(3_u8), 3);
        assert_eq!(failures("3"), 3);
        assert_eq!(failures(i64::MAX), u32::MAX);
    }

    #[test]
    fn an_unreadable_attempt_count_is_never_zero() {
        for value in
            [Value::String("many".into()), Value::I64(-1), Value::Null, Value::List(vec![]), Value::F64(1.5)]
        {
            assert_eq!(failures(value.clone()), u32::MAX, "{value:?}");
        }
    }

    #[test]
    fn a_copy_whose_story_is_not_readable_is_taken_for_no_other() {
        let copy = |story: &str| FailureHistory::read(&Message::new("").with_header(names::STORY, story));
        let (one, other) = (copy(r#"{"v":2,"hop":1}"#), copy(r#"{"v":2,"hop":2}"#));
        assert_eq!(one.unreadable(), [names::STORY]);
        assert_eq!(one, copy(r#"{"v":2,"hop":1}"#));
        let numbers = [0, one.copy_number, other.copy_number];
        assert!(
            numbers[0] != numbers[1] && numbers[1] != numbers[2] && numbers[0] != numbers[2],
            "{numbers:?}"
        );
    }

    #[test]
    fn times_are_read_back_as_written() {
        let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1_700_000_000_123);
        assert_eq!(read_time(&write_time(time)), Some(time));
        assert_eq!(read_time(&Value::I64(1_700_000_000_123)), Some(time));
        assert_eq!(read_time(&Value::String("yesterday".into())), None);
    }
}
