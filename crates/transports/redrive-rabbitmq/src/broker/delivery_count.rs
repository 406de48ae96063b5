//! How often the broker delivered a message, from the headers of each version of RabbitMQ. Pure.

use redrive_core::{Headers, Value};

use crate::broker::deaths::DeathHistory;
use crate::broker::{QueueType, Version};

/// The headers that a quorum queue changes with each delivery of one message.
pub(crate) const HEADERS: [&str; 2] = ["x-delivery-count", "x-acquired-count"];

/// Returns the number of deliveries of this copy, including this one.
///
/// A quorum queue counts returns in `x-delivery-count` (absent means zero). From 4.3 on, `x-acquired-count` counts all deliveries,
/// including returns that are nobody's fault. Before the first return a client, or another queue, may have written both headers:
/// they count only if the broker marks the delivery as redelivered.
///
/// From 4.0 on, the count travels with a message that the broker dead-letters. A consumer that rejects a message, which comes back to
/// `queue` through a delay queue, raises it each time: those rejections, which `x-death` tells, are no deaths of a process.
pub(crate) fn count(
    headers: &Headers,
    redelivered: bool,
    queue: &str,
    queue_type: QueueType,
    version: Option<Version>,
) -> u32 {
    if !redelivered {
        return 1;
    }
    if queue_type == QueueType::Classic {
        return 2;
    }
    let returns = match number(headers, "x-acquired-count") {
        // Never less than the counted returns: a smaller number was not written by the broker.
        Some(acquired) if version.is_some_and(|version| version >= Version::V4_3) => {
            returns(headers).min(acquired)
        }
        _ => returns(headers),
    };
    let rejected = match version {
        Some(version) if version >= Version::V4_0 => rejections(headers, queue),
        _ => 0,
    };
    returns.saturating_sub(rejected).saturating_add(1)
}

/// Upper bound of the rejections that are believed. Any publisher can write `x-death`: a message that kills its process gets this number
/// of further deliveries at most.
const MOST_REJECTIONS: u32 = 100;

/// Returns how often a message was rejected in this queue, by `x-death`.
fn rejections(headers: &Headers, queue: &str) -> u32 {
    if !headers.contains("x-death") {
        return 0;
    }
    let rejected = DeathHistory::read(headers).rejected_in(queue);
    u32::try_from(rejected).unwrap_or(u32::MAX).min(MOST_REJECTIONS)
}

/// Returns how many returns a quorum queue counts against its limit.
pub(crate) fn returns(headers: &Headers) -> u32 {
    number(headers, "x-delivery-count").unwrap_or(0)
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
        count(headers, redelivered, "orders", QueueType::Quorum, Some(Version::V4_3))
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
        assert_eq!(count(&counted(7_i64), true, "orders", QueueType::Classic, None), 2);
        assert_eq!(count(&counted(7_i64), false, "orders", QueueType::Classic, None), 1);
    }

    fn died(count: i64, deaths: &[(&str, &str, i64)]) -> Headers {
        let death = |&(queue, reason, count): &(&str, &str, i64)| {
            Value::Table(Headers::from_iter([
                ("queue", Value::from(queue)),
                ("reason", reason.into()),
                ("count", count.into()),
            ]))
        };
        let mut headers = counted(count);
        headers.insert("x-death", Value::List(deaths.iter().map(death).collect()));
        headers
    }

    #[test]
    fn what_was_rejected_in_this_queue_is_no_death_of_a_process() {
        let waited = ("orders.wait", "expired", 12);
        for (returns, deaths, expected) in [
            (12, &[("orders", "rejected", 12), waited][..], 1),
            (15, &[("orders", "rejected", 12), waited], 4),
            (3, &[("orders", "rejected", 12)], 1),
            (12, &[("bills", "rejected", 12), waited], 13),
            (12, &[("orders", "delivery_limit", 12)], 13),
            (12, &[("orders", "rejected", -4)], 13),
        ] {
            assert_eq!(quorum(&died(returns, deaths), true), expected, "{returns} {deaths:?}");
        }
        // Before 4.0 the count begins again in each queue.
        let rejected = died(12, &[("orders", "rejected", 12)]);
        assert_eq!(count(&rejected, true, "orders", QueueType::Quorum, None), 13);
    }

    #[test]
    fn a_forged_story_hides_no_killer_for_ever() {
        let forged = [("orders", "rejected", i64::MAX), ("orders", "rejected", i64::MAX)];
        assert_eq!(quorum(&died(i64::from(MOST_REJECTIONS), &forged), true), 1);
        assert_eq!(quorum(&died(i64::from(MOST_REJECTIONS) + 10, &forged), true), 11);
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
