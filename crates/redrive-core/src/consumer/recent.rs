//! Which deliveries were settled a moment ago.

use std::collections::hash_map::RandomState;
use std::collections::{HashSet, VecDeque};
use std::hash::BuildHasher;
use std::num::NonZeroUsize;

use crate::delivery::Delivery;

/// The last deliveries that were settled. When the acknowledgement of one is lost on the way, the broker hands it out
/// again, marked as redelivered: it is then known here, and settled on sight.
///
/// Only what the broker marks as redelivered is ever looked up: two messages that are alike are told apart by that, as
/// long as their connection lives. A message without an id of its own is never remembered: nothing tells it from its twin.
pub(crate) struct RecentlySettled {
    keys: HashSet<u64>,
    order: VecDeque<u64>,
    capacity: usize,
    // Keyed per process: nobody outside can make two messages collide.
    hasher: RandomState,
}

impl RecentlySettled {
    pub(crate) fn new(capacity: NonZeroUsize) -> Self {
        let capacity = capacity.get();
        Self { keys: HashSet::new(), order: VecDeque::new(), capacity, hasher: RandomState::new() }
    }

    pub(crate) fn remember(&mut self, delivery: &Delivery) {
        let Some(key) = self.key(delivery) else { return };
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

    pub(crate) fn knows(&self, delivery: &Delivery) -> bool {
        delivery.redelivered() && self.key(delivery).is_some_and(|key| self.keys.contains(&key))
    }

    /// Who this copy is: its id and hop, and what a publisher that uses an id twice would change.
    fn key(&self, delivery: &Delivery) -> Option<u64> {
        let story = delivery.story();
        if story.id_assigned {
            return None;
        }
        let message = delivery.message();
        let properties = message.properties();
        let id = properties.id.as_ref().filter(|id| !id.is_empty())?;
        let counts = (story.hop, story.failures(), story.redrives.or_highest());
        let written = (&properties.correlation_id, properties.timestamp, message.body());
        Some(self.hasher.hash_one((id, counts, written)))
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
    fn a_message_without_an_id_is_never_remembered() {
        let mut recent = recent(2);
        let nameless =
            Delivery::new(Message::new("body"), "q", UNIX_EPOCH).with_assigned_id(|| "assigned".into());
        recent.remember(&nameless);
        assert!(!recent.knows(&nameless.marked_redelivered(true)));
    }
}
