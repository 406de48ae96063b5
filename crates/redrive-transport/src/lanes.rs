//! What waits to be sent, by its key; and which of it goes together. Pure.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// How much goes together, for each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// How many batches are on their way at once. With more than one, the next is sent while one waits for its answer.
    pub lanes: usize,
    /// How many items must wait before another lane takes them beside one that runs, or as many bytes as a batch has at most. With
    /// fewer they wait for that one: a batch of few costs the broker nearly as much as one of many.
    pub beside: usize,
    /// How many items a batch has at most.
    pub items: usize,
    /// How many bytes a batch has at most, about. A larger item goes alone.
    pub bytes: usize,
}

/// Items that wait, by their key. Items of one key go together, up to the [limits](BatchLimits); a lane carries one batch after
/// the other. What has another key waits for none of them, and fails with none of them.
///
/// [`Batcher`](crate::Batcher) runs the lanes as tasks. Alone it is for transports that need more than that between two batches.
#[derive(Debug)]
pub struct Lanes<K, T> {
    limits: BatchLimits,
    by_key: HashMap<K, OfKey<T>>,
}

#[derive(Debug)]
struct OfKey<T> {
    waiting: VecDeque<(usize, T)>,
    /// Those of everything that waits.
    bytes: usize,
    running: usize,
}

impl<T> OfKey<T> {
    /// Whether a lane beside another is worth what waits.
    fn are_worth(&self, limits: &BatchLimits) -> bool {
        self.waiting.len() >= limits.beside || self.bytes >= limits.bytes
    }
}

impl<K: Clone + Eq + Hash, T> Lanes<K, T> {
    /// Nothing waits.
    #[must_use]
    pub fn new(limits: BatchLimits) -> Self {
        Self { limits, by_key: HashMap::new() }
    }

    /// One more item, of this many bytes. True when a lane must be started for it; otherwise a running lane takes it along.
    #[must_use = "nobody carries it when the lane is not started"]
    pub fn push(&mut self, key: &K, bytes: usize, item: T) -> bool {
        if !self.by_key.contains_key(key) {
            self.by_key.insert(key.clone(), OfKey { waiting: VecDeque::new(), bytes: 0, running: 0 });
        }
        let Some(lanes) = self.by_key.get_mut(key) else { return false };
        lanes.waiting.push_back((bytes, item));
        lanes.bytes += bytes;
        let start =
            lanes.running < self.limits.lanes && (lanes.running == 0 || lanes.are_worth(&self.limits));
        lanes.running += usize::from(start);
        start
    }

    /// The next batch of a lane. Empty: the lane has ended, and nothing waits, or too little for it beside another lane.
    pub fn next(&mut self, key: &K) -> Vec<T> {
        let Some(lanes) = self.by_key.get_mut(key) else { return Vec::new() };
        let (mut batch, mut size) = (Vec::new(), 0);
        if lanes.running > 1 && !lanes.are_worth(&self.limits) {
            self.end(key);
            return batch;
        }
        while let Some(&(bytes, _)) = lanes.waiting.front() {
            // A large one goes alone: the broker may refuse it, and with it all that goes along.
            if batch.len() == self.limits.items || (!batch.is_empty() && size + bytes > self.limits.bytes) {
                break;
            }
            size += bytes;
            lanes.bytes -= bytes;
            batch.extend(lanes.waiting.pop_front().map(|(_, item)| item));
        }
        if batch.is_empty() {
            self.end(key);
        }
        batch
    }

    /// Everything that no lane has taken. Lanes that find nothing end by themselves.
    pub fn take_all(&mut self) -> Vec<T> {
        let lanes = self.by_key.values_mut();
        lanes
            .flat_map(|lanes| {
                lanes.bytes = 0;
                lanes.waiting.drain(..)
            })
            .map(|(_, item)| item)
            .collect()
    }

    /// A lane ended before [`next`](Self::next) was empty, for example by a panic. What waits is dropped when no other lane of its
    /// key runs.
    pub fn end(&mut self, key: &K) {
        if let Some(lanes) = self.by_key.get_mut(key) {
            lanes.running = lanes.running.saturating_sub(1);
            if lanes.running == 0 {
                self.by_key.remove(key);
            }
        }
    }

    /// Whether nothing waits and no lane runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BatchLimits = BatchLimits { lanes: 2, beside: 1, items: 4, bytes: 1000 };

    fn lanes<T>() -> Lanes<&'static str, T> {
        Lanes::new(LIMITS)
    }

    #[test]
    fn two_lanes_carry_one_key_and_end_when_nothing_waits() {
        let mut lanes = lanes();
        let started: Vec<_> = (0..4).map(|item| lanes.push(&"a", 10, item)).collect();
        assert_eq!(started, [true, true, false, false]);
        assert!(lanes.push(&"b", 10, 9), "another key does not wait for this one");
        assert_eq!(lanes.next(&"a"), [0, 1, 2, 3]);
        assert!(lanes.next(&"a").is_empty());
        assert!(lanes.push(&"a", 10, 4), "one lane has ended, and another may start");
        assert_eq!(lanes.next(&"a"), [4]);
        assert!(lanes.next(&"a").is_empty());
        assert!(lanes.next(&"a").is_empty());
        assert_eq!(lanes.by_key.len(), 1, "nothing is kept of a key that nothing has");
    }

    #[test]
    fn a_batch_is_bounded_and_a_large_item_goes_alone() {
        let mut lanes = lanes();
        for item in 0..LIMITS.items + 1 {
            let _ = lanes.push(&"a", 10, item);
        }
        assert_eq!(lanes.next(&"a").len(), LIMITS.items);
        assert_eq!(lanes.next(&"a"), [LIMITS.items]);
        for (item, bytes) in [(1, 10), (2, 2 * LIMITS.bytes), (3, 10)] {
            let _ = lanes.push(&"a", bytes, item);
        }
        assert_eq!([lanes.next(&"a"), lanes.next(&"a"), lanes.next(&"a")], [[1], [2], [3]]);
    }

    #[test]
    fn few_wait_for_the_lane_that_runs_and_many_get_another() {
        let mut lanes = Lanes::new(BatchLimits { beside: 3, ..LIMITS });
        assert!(lanes.push(&"a", 10, 0));
        assert_eq!(lanes.next(&"a"), [0]);
        let started: Vec<_> = (1..4).map(|item| lanes.push(&"a", 10, item)).collect();
        assert_eq!(started, [false, false, true]);
        assert_eq!(lanes.next(&"a"), [1, 2, 3]);
        assert!(lanes.push(&"b", 10, 0));
        assert_eq!(lanes.next(&"b"), [0]);
        assert!(lanes.push(&"b", LIMITS.bytes, 1), "few large ones get another, too");
        assert!(!lanes.push(&"a", 10, 4));
        assert!(lanes.next(&"a").is_empty(), "the first lane leaves it to the other");
        assert_eq!(lanes.next(&"a"), [4]);
        assert!(lanes.next(&"a").is_empty());
        assert_eq!(lanes.by_key.len(), 1);
    }

    #[test]
    fn what_waits_is_taken_from_lanes_that_are_busy() {
        let mut lanes = lanes();
        for item in 0..3 {
            let _ = lanes.push(&"a", 10, item);
        }
        assert_eq!(lanes.next(&"a"), [0, 1, 2]);
        assert!(!lanes.push(&"a", 10, 3));
        let _ = lanes.push(&"b", 10, 4);
        let mut taken = lanes.take_all();
        taken.sort_unstable();
        assert_eq!(taken, [3, 4]);
        for key in ["a", "a", "b"] {
            assert!(lanes.next(&key).is_empty());
        }
        assert!(lanes.is_empty(), "nothing is kept of lanes that have ended");
    }

    #[test]
    fn what_a_broken_lane_leaves_is_dropped() {
        let mut lanes = lanes();
        let _ = lanes.push(&"a", 10, 1);
        lanes.end(&"a");
        assert!(lanes.is_empty());
    }
}
