//! How often the broker delivered a message, from the headers of each version of RabbitMQ. Pure.

use redrive_core::{Headers, Value};

use crate::broker::Version;
use crate::topology::QueueType;

/// The headers that a quorum queue changes with each delivery of one message.
pub(crate) const HEADERS: [&str; 2] = ["x-delivery-count", "x-acquired-count"];

/// Returns the number of deliveries of this copy, including this one.
///
/// A quorum queue counts returns in `x-delivery-count` (absent means zero). From 4.3 on, `x-acquired-count` counts all deliveries,
/// including returns that are nobody's fault. Before the first return a client, or another queue, may have written both headers:
/// they count only if the broker marks the delivery as redelivered.
pub(crate) fn count(
    headers: &Headers,
    redelivered: bool,
    queue_type: QueueType,
    version: Option<Version>,
) -> u32 {
    if !redelivered {
        return 1;
    }
    if queue_type == QueueType::Classic {
        return 2;
    }
    let returns = number(headers, "x-delivery-count").unwrap_or(0);
    let returns = match number(headers, "x-acquired-count") {
        // Never less than the counted returns: a smaller number was not written by the broker.
        Some(acquired) if version.is_some_and(|version| version >= Version::V4_3) => returns.min(acquired),
        _ => returns,
    };
    returns.saturating_add(1)
}

/// Returns how many returns a quorum queue counts against its limit.
pub(crate) fn returns(headers: &Headers) -> i64 {
    number(headers, "x-delivery-count").map_or(0, i64::from)
}

/// Returns true if a redelivered message has no count: the queue is not a quorum queue. A dead-lettered message proves nothing: 4.3
/// marks its first delivery as redelivered.
pub(crate) fn is_missing(headers: &Headers, redelivered: bool) -> bool {
    const TELLING: [&str; 3] = ["x-delivery-count", "x-acquired-count", "x-death"];
    redelivered && !TELLING.iter().any(|name| headers.contains(name))
}

/// Reads an integer of any type; `None` if it is absent or no count.
fn number(headers: &Headers, name: &str) -> Option<u32> {
    let number = headers.get(name).and_then(Value::to_integer)?;
    (number >= 0).then(|| u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(count: impl Into<Value>) -> Headers {
        Headers::from_iter([("x-delivery-count", count.into())])
    }

    fn quorum(headers: &Headers, redelivered: bool) -> u32 {
        count(headers, redelivered, QueueType::Quorum, Some(Version::V4_3))
    }

    #[test]
    fn absent_is_zero_and_every_integer_type_is_read() {
        assert_eq!(quorum(&Headers::new(), true), 1);
        for value in [Value::I64(2), Value::U8(2), Value::I32(2), Value::String("2".into())] {
            assert_eq!(quorum(&counted(value), true), 3);
        }
    }

    #[test]
    fn a_number_that_is_none_does_not_panic() {
        for value in [Value::I64(-5), Value::Null, Value::List(vec![]), Value::String("x".into())] {
            assert_eq!(quorum(&counted(value), true), 1);
        }
        assert_eq!(quorum(&counted(i64::MAX), true), u32::MAX);
    }

    #[test]
    fn a_stale_count_on_the_first_delivery_is_not_believed() {
        assert_eq!(quorum(&counted(25_i64), false), 1);
        let mut headers = counted(25_i64);
        headers.insert("x-acquired-count", 1_i64);
        assert_eq!(quorum(&headers, true), 2);
    }

    #[test]
    fn classic_queues_tell_one_from_more() {
        assert_eq!(count(&counted(7_i64), true, QueueType::Classic, None), 2);
        assert_eq!(count(&counted(7_i64), false, QueueType::Classic, None), 1);
    }

    #[test]
    fn a_redelivery_without_a_count_is_of_no_quorum_queue() {
        assert!(is_missing(&Headers::new(), true));
        assert!(!is_missing(&Headers::new(), false));
        for telling in ["x-delivery-count", "x-acquired-count", "x-death"] {
            assert!(!is_missing(&Headers::from_iter([(telling, Value::I64(1))]), true), "{telling}");
        }
    }
}
