//! Copies that wait to be sent, by their way; and which of them go together. Pure.

use std::collections::{HashMap, VecDeque};

use crate::delay::Way;

/// How many batches that go one way may be on their way at once: while one waits for its answers the next is sent. Not
/// more, so that a queue that never answers takes few channels from the others.
const LANES: usize = 2;
/// How many copies go together at most, and about how many bytes.
const COPIES: usize = 256;
const BYTES: usize = 1024 * 1024;

/// All that wait. What goes together goes the same way, so that nobody waits, or fails, because of a queue that he has nothing
/// to do with.
#[derive(Debug)]
pub(crate) struct Waiting<J> {
    lanes: HashMap<Way, Lanes<J>>,
}

#[derive(Debug)]
struct Lanes<J> {
    jobs: VecDeque<(usize, J)>,
    running: usize,
}

impl<J> Default for Waiting<J> {
    fn default() -> Self {
        Self { lanes: HashMap::new() }
    }
}

impl<J> Waiting<J> {
    /// One more, of so many bytes. True when a lane has to be started for it; else one that runs takes it along.
    pub(crate) fn push(&mut self, way: &Way, bytes: usize, job: J) -> bool {
        if !self.lanes.contains_key(way) {
            self.lanes.insert(way.clone(), Lanes { jobs: VecDeque::new(), running: 0 });
        }
        let Some(lanes) = self.lanes.get_mut(way) else { return false };
        lanes.jobs.push_back((bytes, job));
        let start = lanes.running < LANES;
        lanes.running += usize::from(start);
        start
    }

    /// The next batch of a lane. Empty: there is none, and the lane has ended.
    pub(crate) fn next(&mut self, way: &Way) -> Vec<J> {
        let Some(lanes) = self.lanes.get_mut(way) else { return Vec::new() };
        let (mut batch, mut size) = (Vec::new(), 0);
        while let Some(&(bytes, _)) = lanes.jobs.front() {
            // A large one goes alone: it may be too large, and the broker closes the channel over that.
            if batch.len() == COPIES || (!batch.is_empty() && size + bytes > BYTES) {
                break;
            }
            size += bytes;
            batch.extend(lanes.jobs.pop_front().map(|(_, job)| job));
        }
        if batch.is_empty() {
            self.end(way);
        }
        batch
    }

    /// All that no lane has taken. Lanes that find nothing end by themselves.
    pub(crate) fn take_all(&mut self) -> Vec<J> {
        let lanes = self.lanes.values_mut();
        lanes.flat_map(|lanes| lanes.jobs.drain(..)).map(|(_, job)| job).collect()
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// A lane ended without being asked to. What waits is given up when nobody else carries it.
    pub(crate) fn end(&mut self, way: &Way) {
        if let Some(lanes) = self.lanes.get_mut(way) {
            lanes.running = lanes.running.saturating_sub(1);
            if lanes.running == 0 {
                self.lanes.remove(way);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str) -> Way {
        Way::queue(name)
    }

    #[test]
    fn two_lanes_go_one_way_and_end_when_nothing_waits() {
        let mut waiting = Waiting::default();
        let started: Vec<_> = (0..4).map(|job| waiting.push(&queue("a"), 10, job)).collect();
        assert_eq!(started, [true, true, false, false]);
        assert!(waiting.push(&queue("b"), 10, 9), "another way does not wait for this one");
        assert_eq!(waiting.next(&queue("a")), [0, 1, 2, 3]);
        assert!(waiting.next(&queue("a")).is_empty());
        assert!(waiting.push(&queue("a"), 10, 4), "one lane has ended, and another may start");
        assert_eq!(waiting.next(&queue("a")), [4]);
        assert!(waiting.next(&queue("a")).is_empty());
        assert!(waiting.next(&queue("a")).is_empty());
        assert_eq!(waiting.lanes.len(), 1, "nothing is kept of a way that nobody takes");
    }

    #[test]
    fn a_batch_is_bounded_and_a_large_copy_goes_alone() {
        let mut waiting = Waiting::default();
        for job in 0..COPIES + 1 {
            waiting.push(&queue("a"), 10, job);
        }
        assert_eq!(waiting.next(&queue("a")).len(), COPIES);
        assert_eq!(waiting.next(&queue("a")), [COPIES]);
        for (job, bytes) in [(1, 10), (2, 2 * BYTES), (3, 10)] {
            waiting.push(&queue("a"), bytes, job);
        }
        assert_eq!(
            [waiting.next(&queue("a")), waiting.next(&queue("a")), waiting.next(&queue("a"))],
            [[1], [2], [3]]
        );
    }

    #[test]
    fn what_waits_is_taken_from_lanes_that_are_busy() {
        let mut waiting = Waiting::default();
        for job in 0..3 {
            waiting.push(&queue("a"), 10, job);
        }
        assert_eq!(waiting.next(&queue("a")), [0, 1, 2]);
        assert!(!waiting.push(&queue("a"), 10, 3));
        waiting.push(&queue("b"), 10, 4);
        let mut taken = waiting.take_all();
        taken.sort_unstable();
        assert_eq!(taken, [3, 4]);
        for way in ["a", "a", "b"] {
            assert!(waiting.next(&queue(way)).is_empty());
        }
        assert!(waiting.is_empty(), "nothing is kept of lanes that have ended");
    }

    #[test]
    fn what_a_broken_lane_leaves_is_given_up() {
        let mut waiting = Waiting::default();
        waiting.push(&queue("a"), 10, 1);
        waiting.end(&queue("a"));
        assert!(waiting.lanes.is_empty());
    }
}
