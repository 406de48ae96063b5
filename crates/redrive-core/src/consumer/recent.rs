//! Which deliveries were settled a moment ago.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, Hash, Hasher};
use std::mem::discriminant;
use std::num::NonZeroUsize;

use foldhash::quality::RandomState;

use crate::delivery::Delivery;
use crate::headers::Value;

/// Headers that the broker changes with every hand-out of the same copy.
const COUNTED_BY_THE_BROKER: [&str; 2] = ["x-delivery-count", "x-acquired-count"];

/// The last deliveries that were settled. When the acknowledgement of one is lost on the way, the broker hands it out
/// again, marked as redelivered: it is then known here, and settled on sight.
///
/// Only what the broker marks as redelivered is ever looked up: two messages that are alike are told apart by that, as
/// long as their connection lives. A message without an id of its own is never remembered: nothing tells it from its twin.
pub(crate) struct RecentlySettled {
    settled: Last,
    /// What came from here and comes again, not done. Where two are the same in everything, it cannot be said which of
    /// them was settled and which is still to come: then none is known.
    given_back: Last,
    // Keyed per process, and nothing of it is ever shown: nobody outside can make two messages collide. Fast on large
    // bodies: every message that is done passes it.
    hasher: RandomState,
}

impl RecentlySettled {
    pub(crate) fn new(capacity: NonZeroUsize) -> Self {
        let last = || Last { keys: HashSet::default(), order: VecDeque::new(), capacity: capacity.get() };
        Self { settled: last(), given_back: last(), hasher: RandomState::default() }
    }

    pub(crate) fn remember(&mut self, delivery: &Delivery) {
        if let Some(key) = self.key(delivery) {
            self.settled.insert(key);
        }
    }

    /// It stays with the broker, which hands it out again: then it is not done, even where another that is the same in
    /// everything was, or will be.
    pub(crate) fn forget(&mut self, delivery: &Delivery) {
        if let Some(key) = self.key(delivery) {
            self.given_back.insert(key);
        }
    }

    pub(crate) fn knows(&self, delivery: &Delivery) -> bool {
        let known = |key: &u64| self.settled.keys.contains(key) && !self.given_back.keys.contains(key);
        delivery.redelivered() && self.key(delivery).as_ref().is_some_and(known)
    }

    /// Who this copy is: its id and hop, and everything that a publisher that uses an id twice may change. Two that are
    /// taken for one lose the second; one that is taken for two is only handled twice.
    fn key(&self, delivery: &Delivery) -> Option<u64> {
        let story = delivery.story();
        if story.id_assigned {
            return None;
        }
        let message = delivery.message();
        let properties = message.properties();
        let id = properties.id.as_ref().filter(|id| !id.is_empty())?;
        let mut key = self.hasher.build_hasher();
        // Numbers are taken together: every single one would cost a round.
        key.write_u64(u64::from(story.hop) << 32 | u64::from(story.failures()));
        key.write_u32(story.redrives.or_highest());
        (id.as_str(), &**message.body(), delivery.exchange(), delivery.routing_key()).hash(&mut key);
        let told_apart_by =
            (&properties.correlation_id, &properties.timestamp, &properties.kind, &properties.reply_to);
        if told_apart_by != (&None, &None, &None, &None) {
            told_apart_by.hash(&mut key);
        }
        for (name, value) in message.headers().iter() {
            if !COUNTED_BY_THE_BROKER.contains(&name) {
                name.hash(&mut key);
                hash_value(value, &mut key);
            }
        }
        Some(key.finish())
    }
}

/// The last keys, each once.
struct Last {
    keys: HashSet<u64, RandomState>,
    order: VecDeque<u64>,
    capacity: usize,
}

impl Last {
    fn insert(&mut self, key: u64) {
        if !self.keys.insert(key) {
            return;
        }
        if self.order.len() == self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
        self.order.push_back(key);
    }
}

fn hash_value(value: &Value, key: &mut impl Hasher) {
    discriminant(value).hash(key);
    match value {
        Value::Null => {}
        Value::Bool(value) => value.hash(key),
        Value::I8(n) => n.hash(key),
        Value::U8(n) => n.hash(key),
        Value::I16(n) => n.hash(key),
        Value::U16(n) => n.hash(key),
        Value::I32(n) => n.hash(key),
        Value::U32(n) => n.hash(key),
        Value::I64(n) => n.hash(key),
        Value::U64(n) => n.hash(key),
        Value::F32(n) => n.to_bits().hash(key),
        Value::F64(n) => n.to_bits().hash(key),
        Value::Decimal { scale, value } => (scale, value).hash(key),
        Value::Char(c) => c.hash(key),
        Value::Timestamp(time) => time.hash(key),
        Value::Uuid(bytes) => bytes.hash(key),
        Value::String(text) => text.hash(key),
        Value::RawString(bytes) | Value::Bytes(bytes) => bytes.hash(key),
        Value::List(items) => {
            items.len().hash(key);
            items.iter().for_each(|item| hash_value(item, key));
        }
        Value::Table(table) => {
            table.len().hash(key);
            for (name, value) in table.iter() {
                name.hash(key);
                hash_value(value, key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Message, header_names};
    use std::time::UNIX_EPOCH;

    fn recent(capacity: usize) -> RecentlySettled {
        RecentlySettled::new(NonZeroUsize::new(capacity).unwrap())
    }

    fn delivery(id: &str, hop: i64) -> Delivery {
        let message = Message::new("body").with_id(id).with_header(header_names::HOP, hop);
        Delivery::new(message, "q", UNIX_EPOCH)
    }

    #[test]
    fn what_was_settled_is_known_when_it_comes_again() {
        let mut recent = recent(2);
        recent.remember(&delivery("a", 0));
        assert!(recent.knows(&delivery("a", 0).marked_redelivered(true)));
        assert!(
            !recent.knows(&delivery("a", 0)),
            "not marked as redelivered: another message of the same id"
        );
        assert!(!recent.knows(&delivery("a", 1).marked_redelivered(true)), "its copy is somebody else");
    }

    #[test]
    fn what_is_given_back_is_not_taken_for_its_twin() {
        let twin = || delivery("twin", 0);
        for settled_first in [true, false] {
            let mut recent = recent(2);
            if settled_first {
                recent.remember(&twin());
                recent.forget(&twin());
            } else {
                recent.forget(&twin());
                recent.remember(&twin());
            }
            assert!(!recent.knows(&twin().marked_redelivered(true)), "settled first: {settled_first}");
        }
    }

    #[test]
    fn what_was_given_back_long_ago_is_like_any_other() {
        let mut recent = recent(2);
        for id in ["a", "b", "c"] {
            recent.forget(&delivery(id, 0));
        }
        recent.remember(&delivery("a", 0));
        assert!(recent.knows(&delivery("a", 0).marked_redelivered(true)));
        assert_eq!(recent.given_back.order.len(), 2);
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut recent = recent(2);
        for id in ["a", "b", "b", "c"] {
            recent.remember(&delivery(id, 0));
        }
        let known = |id| recent.knows(&delivery(id, 0).marked_redelivered(true));
        assert_eq!((known("a"), known("b"), known("c")), (false, true, true));
    }

    #[test]
    fn an_id_used_twice_for_different_bodies_is_two_messages() {
        let mut recent = recent(2);
        recent.remember(&delivery("a", 0));
        let other =
            Delivery::new(Message::new("other").with_id("a"), "q", UNIX_EPOCH).marked_redelivered(true);
        assert!(!recent.knows(&other));
    }

    #[test]
    fn an_id_used_twice_for_different_headers_kinds_or_keys_is_two_messages() {
        let of_order_7 = |message: Message, key: &str| {
            Delivery::new(message.with_id("order-7"), "q", UNIX_EPOCH).published_to("events", key)
        };
        let created = || of_order_7(Message::new("7").with_header("event", "created"), "orders");
        let mut kind = Message::new("7").with_header("event", "created");
        kind.properties_mut().kind = Some("OrderEvent".into());
        let mut recent = recent(2);
        recent.remember(&created());
        for other in [
            of_order_7(Message::new("7").with_header("event", "cancelled"), "orders"),
            of_order_7(kind, "orders"),
            of_order_7(Message::new("7").with_header("event", "created"), "orders.eu"),
        ] {
            assert!(!recent.knows(&other.clone().marked_redelivered(true)), "{other:?}");
        }
        assert!(recent.knows(&created().marked_redelivered(true)));
    }

    #[test]
    fn the_count_of_the_broker_makes_no_other_message() {
        let counted = |times: i64| {
            let message = Message::new("body").with_id("a").with_header("x-delivery-count", times);
            Delivery::new(message, "q", UNIX_EPOCH)
        };
        let mut recent = recent(2);
        recent.remember(&counted(0));
        assert!(recent.knows(&counted(1).marked_redelivered(true)));
    }

    #[test]
    fn a_message_without_an_id_is_never_remembered() {
        let mut recent = recent(2);
        let nameless =
            Delivery::new(Message::new("body"), "q", UNIX_EPOCH).with_assigned_id(|| "assigned".into());
        recent.remember(&nameless);
        assert!(!recent.knows(&nameless.marked_redelivered(true)));
    }
}
