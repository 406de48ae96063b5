//! Waiting items by key, and which of them share a batch. Pure.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// The limits of the batches of each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// The maximum number of concurrent batches. With more than one, the next batch is sent while another waits for its answer.
    pub lanes: usize,
    /// The number of waiting items that justifies another lane beside a running one; [`bytes`](Self::bytes) waiting bytes justify
    /// it too. Fewer items wait for the running lane: a small batch costs the broker nearly as much as a large one.
    pub beside: usize,
    /// The maximum number of items in a batch.
    pub items: usize,
    /// The approximate maximum size of a batch in bytes. A larger item gets a batch of its own.
    pub bytes: usize,
}

/// Holds waiting items by key. Items with the same key share batches, up to the [limits](BatchLimits). A lane sends the batches
/// of one key, one at a time. Keys are independent: an item neither waits nor fails because of another key.
///
/// Use [`Batcher`](crate::Batcher), which runs each lane as a task; use `Lanes` directly if a transport must do more between two
/// batches.
///
/// ```
/// use redrive_transport::{BatchLimits, Lanes};
///
/// let mut lanes = Lanes::new(BatchLimits { lanes: 1, beside: 1, items: 2, bytes: usize::MAX });
/// assert!(lanes.push(&"orders", 10, "a")); // start a lane
/// assert!(!lanes.push(&"orders", 10, "b") && !lanes.push(&"orders", 10, "c")); // it takes these too
/// assert_eq!(lanes.next(&"orders"), ["a", "b"]);
/// assert_eq!(lanes.next(&"orders"), ["c"]);
/// assert!(lanes.next(&"orders").is_empty()); // end the lane
/// ```
#[derive(Debug)]
pub struct Lanes<K, T> {
    limits: BatchLimits,
    by_key: HashMap<K, KeyState<T>>,
}

#[derive(Debug)]
struct KeyState<T> {
    waiting: VecDeque<(usize, T)>,
    /// The total size of the waiting items.
    bytes: usize,
    /// The number of running lanes.
    running: usize,
}

impl<T> KeyState<T> {
    /// Returns true if the waiting items justify a lane beside a running one.
    fn justifies_lane(&self, limits: &BatchLimits) -> bool {
        self.waiting.len() >= limits.beside || self.bytes >= limits.bytes
    }
}

impl<K: Clone + Eq + Hash, T> Lanes<K, T> {
    /// Creates lanes with these limits, and without items.
    #[must_use]
    pub fn new(limits: BatchLimits) -> Self {
        Self { limits, by_key: HashMap::new() }
    }

    /// Adds an item of this many bytes. Returns true if the caller must start a lane; otherwise a running lane takes the item.
    #[must_use = "the item is not sent unless the caller starts a lane"]
    pub fn push(&mut self, key: &K, bytes: usize, item: T) -> bool {
        if !self.by_key.contains_key(key) {
            self.by_key.insert(key.clone(), KeyState { waiting: VecDeque::new(), bytes: 0, running: 0 });
        }
        let Some(state) = self.by_key.get_mut(key) else { return false };
        state.waiting.push_back((bytes, item));
        state.bytes += bytes;
        let start =
            state.running < self.limits.lanes && (state.running == 0 || state.justifies_lane(&self.limits));
        state.running += usize::from(start);
        start
    }

    /// Returns the next batch of a lane. If it is empty, the lane has ended: no item waits, or too few for a lane beside another.
    pub fn next(&mut self, key: &K) -> Vec<T> {
        self.next_up_to(self.limits.items, key)
    }

    /// Like [`next`](Self::next), with one item at most: for a key whose items probably get no answer.
    pub fn next_one(&mut self, key: &K) -> Vec<T> {
        self.next_up_to(1, key)
    }

    fn next_up_to(&mut self, most: usize, key: &K) -> Vec<T> {
        let Some(state) = self.by_key.get_mut(key) else { return Vec::new() };
        let (mut batch, mut size) = (Vec::new(), 0);
        if state.running > 1 && !state.justifies_lane(&self.limits) {
            self.end(key);
            return batch;
        }
        while let Some(&(bytes, _)) = state.waiting.front() {
            // A large item gets its own batch: the broker may refuse it, and with it the whole batch.
            if batch.len() == most || (!batch.is_empty() && size + bytes > self.limits.bytes) {
                break;
            }
            size += bytes;
            state.bytes -= bytes;
            batch.extend(state.waiting.pop_front().map(|(_, item)| item));
        }
        if batch.is_empty() {
            self.end(key);
        }
        batch
    }

    /// Removes and returns all waiting items. Running lanes then get an empty batch and end.
    pub fn take_all(&mut self) -> Vec<T> {
        let states = self.by_key.values_mut();
        states
            .flat_map(|state| {
                state.bytes = 0;
                state.waiting.drain(..)
            })
            .map(|(_, item)| item)
            .collect()
    }

    /// Ends a lane before [`next`](Self::next) returned an empty batch, for example after a panic. If no other lane of the key
    /// runs, the waiting items of the key are dropped.
    pub fn end(&mut self, key: &K) {
        if let Some(state) = self.by_key.get_mut(key) {
            state.running = state.running.saturating_sub(1);
            if state.running == 0 {
                self.by_key.remove(key);
            }
        }
    }

    /// Returns true if no item waits and no lane runs.
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
    fn two_lanes_serve_one_key_and_end_when_no_item_waits() {
        let mut lanes = lanes();
        let started: Vec<_> = (0..4).map(|item| lanes.push(&"a", 10, item)).collect();
        assert_eq!(started, [true, true, false, false]);
        assert!(lanes.push(&"b", 10, 9), "another key is independent");
        assert_eq!(lanes.next(&"a"), [0, 1, 2, 3]);
        assert!(lanes.next(&"a").is_empty());
        assert!(lanes.push(&"a", 10, 4), "one lane has ended, so another may start");
        assert_eq!(lanes.next(&"a"), [4]);
        assert!(lanes.next(&"a").is_empty());
        assert!(lanes.next(&"a").is_empty());
        assert_eq!(lanes.by_key.len(), 1, "only the key whose lane runs is kept");
    }

    #[test]
    fn a_batch_is_bounded_and_a_large_item_gets_its_own() {
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
    fn one_item_leaves_the_others_to_the_next_batch() {
        let mut lanes = lanes();
        for item in 0..3 {
            let _ = lanes.push(&"a", 10, item);
        }
        assert_eq!(lanes.next_one(&"a"), [0]);
        assert_eq!(lanes.next(&"a"), [1, 2]);
        assert!(lanes.next_one(&"a").is_empty());
        assert!(lanes.next_one(&"a").is_empty());
        assert!(lanes.is_empty());
    }

    #[test]
    fn few_items_wait_for_the_running_lane_and_many_start_another() {
        let mut lanes = Lanes::new(BatchLimits { beside: 3, ..LIMITS });
        assert!(lanes.push(&"a", 10, 0));
        assert_eq!(lanes.next(&"a"), [0]);
        let started: Vec<_> = (1..4).map(|item| lanes.push(&"a", 10, item)).collect();
        assert_eq!(started, [false, false, true]);
        assert_eq!(lanes.next(&"a"), [1, 2, 3]);
        assert!(lanes.push(&"b", 10, 0));
        assert_eq!(lanes.next(&"b"), [0]);
        assert!(lanes.push(&"b", LIMITS.bytes, 1), "a few large items start another lane too");
        assert!(!lanes.push(&"a", 10, 4));
        assert!(lanes.next(&"a").is_empty(), "the first lane ends and leaves the item to the other");
        assert_eq!(lanes.next(&"a"), [4]);
        assert!(lanes.next(&"a").is_empty());
        assert_eq!(lanes.by_key.len(), 1);
    }

    #[test]
    fn waiting_items_are_taken_from_busy_lanes() {
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
        assert!(lanes.is_empty(), "ended lanes leave nothing behind");
    }

    #[test]
    fn waiting_items_are_dropped_when_the_only_lane_breaks() {
        let mut lanes = lanes();
        let _ = lanes.push(&"a", 10, 1);
        lanes.end(&"a");
        assert!(lanes.is_empty());
    }
}
