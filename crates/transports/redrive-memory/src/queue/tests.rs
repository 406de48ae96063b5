//! Tests the state machine alone: without a runtime, and with the time as an argument.

use std::time::Duration;

use proptest::prelude::*;
use redrive_core::transport::Settlement;
use redrive_core::{Message, Shelf};
use tokio::time::Instant;

use super::{NextDelivery, Owner, Queue, Tag};
use crate::error::Refusal;
use crate::options::MemoryOptions;

const ME: Owner = 1;
const OTHER: Owner = 2;

fn message(id: &str) -> Message {
    Message::new("").with_id(id)
}

fn reschedule(wait: u64, id: &str) -> Settlement {
    Settlement::Reschedule { wait: Duration::from_secs(wait), copy: message(id) }
}

fn shelve(shelf: Shelf, id: &str) -> Settlement {
    Settlement::Shelve { shelf, copy: message(id) }
}

/// Returns the tag, id and delivery count of the next delivery. Panics if there is none.
fn next(queue: &mut Queue, owner: Owner, now: Instant) -> (Tag, String, u32) {
    match queue.deliver_next(owner, 0, now) {
        NextDelivery::Delivery { tag, message, delivery_count, .. } => {
            (tag, message.id().unwrap_or_default().to_owned(), delivery_count)
        }
        NextDelivery::Nothing { next_due } => {
            panic!("no message is ready; the next one is due at {next_due:?}")
        }
    }
}

fn filled(options: MemoryOptions, ids: &[&str]) -> Queue {
    let mut queue = Queue::new(options);
    for id in ids {
        queue.publish(message(id)).expect("there is room");
    }
    queue
}

#[test]
fn a_message_that_is_given_back_returns_to_its_position() {
    let now = Instant::now();
    let mut queue = filled(MemoryOptions::new(), &["a", "b", "c", "d"]);
    let (a, ..) = next(&mut queue, ME, now);
    let (b, ..) = next(&mut queue, ME, now);
    let (c, ..) = next(&mut queue, ME, now);
    queue.release(b);
    queue.give_back(c, now);
    queue.release(a);
    let order: Vec<_> = (0..4).map(|_| next(&mut queue, ME, now).1).collect();
    assert_eq!(order, ["a", "b", "c", "d"]);
}

#[test]
fn a_release_does_not_count_as_a_delivery() {
    let now = Instant::now();
    let mut queue = filled(MemoryOptions::new(), &["a"]);
    let (tag, _, count) = next(&mut queue, ME, now);
    assert_eq!(count, 1);
    queue.release(tag);
    let (tag, _, count) = next(&mut queue, ME, now);
    assert_eq!(count, 1);
    queue.give_back(tag, now);
    let (tag, _, count) = next(&mut queue, ME, now);
    assert_eq!(count, 2);
    assert_eq!(queue.settle(tag, Settlement::Release, || now), Ok(()));
    assert_eq!(next(&mut queue, ME, now).2, 2);
}

#[test]
fn waits_end_in_the_order_of_their_due_times() {
    let now = Instant::now();
    let mut queue = filled(MemoryOptions::new(), &["a", "b", "c"]);
    for (wait, id) in [(60, "a"), (10, "b"), (10, "c")] {
        let (tag, ..) = next(&mut queue, ME, now);
        queue.settle(tag, reschedule(wait, id), || now).expect("it waits");
    }
    let due = now + Duration::from_secs(10);
    let just_before = due - Duration::from_millis(1);
    assert!(
        matches!(queue.deliver_next(ME, 0, just_before), NextDelivery::Nothing { next_due } if next_due == Some(due))
    );
    assert_eq!(next(&mut queue, ME, due).1, "b");
    assert_eq!(next(&mut queue, ME, due).1, "c");
    assert_eq!(queue.waiting(due), 1);
    assert_eq!(next(&mut queue, ME, now + Duration::from_secs(60)).1, "a");
}

#[test]
fn a_wait_beyond_the_clock_never_ends() {
    let now = Instant::now();
    let mut queue = filled(MemoryOptions::new(), &["a"]);
    let (tag, ..) = next(&mut queue, ME, now);
    let copy = message("a");
    queue.settle(tag, Settlement::Reschedule { wait: Duration::MAX, copy }, || now).expect("it waits");
    assert_eq!(queue.waiting(now + Duration::from_secs(10 * 365 * 86_400)), 1);
}

#[test]
fn the_limit_holds_per_owner() {
    let now = Instant::now();
    let mut queue = filled(MemoryOptions::new(), &["a", "b", "c"]);
    assert!(matches!(queue.deliver_next(ME, 1, now), NextDelivery::Delivery { .. }));
    assert!(matches!(queue.deliver_next(ME, 1, now), NextDelivery::Nothing { .. }));
    assert!(matches!(queue.deliver_next(OTHER, 1, now), NextDelivery::Delivery { .. }));
    assert_eq!(queue.tags_of(ME).len(), 1);
}

#[test]
fn a_full_queue_refuses_publishers_but_no_retries() {
    let now = Instant::now();
    let mut queue = filled(MemoryOptions::new().queue_capacity(1), &["a"]);
    assert_eq!(queue.publish(message("b")), Err(Refusal::QueueFull(1)));
    let (tag, ..) = next(&mut queue, ME, now);
    assert_eq!(queue.publish(message("b")), Err(Refusal::QueueFull(1)), "a delivery in flight takes up room");
    assert_eq!(queue.settle(tag, reschedule(1, "a"), || now), Ok(()));
    assert_eq!(queue.depth(), 1);
}

#[test]
fn a_full_shelf_refuses_and_the_delivery_stays_in_flight() {
    let now = Instant::now();
    let mut queue = filled(MemoryOptions::new().shelf_capacity(1), &["a", "b"]);
    let (a, ..) = next(&mut queue, ME, now);
    let (b, ..) = next(&mut queue, ME, now);
    assert_eq!(queue.settle(a, shelve(Shelf::DeadLetter, "a"), || now), Ok(()));
    let refused = Err(Refusal::ShelfFull(Shelf::DeadLetter));
    assert_eq!(queue.settle(b, shelve(Shelf::DeadLetter, "b"), || now), refused);
    assert_eq!(queue.settle(b, Settlement::NativeDeadLetter, || now), refused);
    assert_eq!(queue.settle(b, shelve(Shelf::Parking, "b"), || now), Ok(()), "the other shelf has room");
}

#[test]
fn at_the_delivery_limit_the_broker_shelves_the_message() {
    let now = Instant::now();
    let mut queue = filled(MemoryOptions::new().delivery_limit(2), &["a"]);
    let (tag, ..) = next(&mut queue, ME, now);
    queue.give_back(tag, now);
    let (tag, ..) = next(&mut queue, ME, now);
    queue.release(tag);
    assert_eq!(queue.shelf(Shelf::DeadLetter).len(), 0, "a release does not count");
    let (tag, ..) = next(&mut queue, ME, now);
    queue.give_back(tag, now);
    assert_eq!((queue.depth(), queue.shelf(Shelf::DeadLetter).len()), (0, 1));
}

#[test]
fn at_the_limit_a_full_shelf_loses_nothing() {
    let now = Instant::now();
    let mut queue = filled(MemoryOptions::new().delivery_limit(1).shelf_capacity(0), &["a"]);
    for _ in 0..3 {
        let (tag, ..) = next(&mut queue, ME, now);
        queue.give_back(tag, now);
        assert_eq!((queue.depth(), queue.shelf(Shelf::DeadLetter).len()), (1, 0));
    }
}

#[test]
fn a_receipt_settles_once() {
    let now = Instant::now();
    let mut queue = filled(MemoryOptions::new(), &["a"]);
    let (tag, ..) = next(&mut queue, ME, now);
    assert_eq!(queue.settle(tag, Settlement::Complete, || now), Ok(()));
    assert_eq!(queue.settle(tag, reschedule(1, "a"), || now), Err(Refusal::Lost));
    queue.give_back(tag, now);
    assert_eq!(queue.depth(), 0);
}

/// A step on a queue. A `usize` selects one of the tags.
#[derive(Clone, Debug)]
enum Step {
    Publish,
    Deliver { owner: Owner, limit: u32 },
    Complete(usize),
    Reschedule(usize, u64),
    Shelve(usize, Shelf),
    NativeDeadLetter(usize),
    Release(usize),
    GiveBack(usize),
    Crash(Owner),
    Wait(u64),
    Discard(Shelf),
    SetWritable(Shelf, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let owner = 1..=2_u64;
    let shelf = prop_oneof![Just(Shelf::DeadLetter), Just(Shelf::Parking)];
    prop_oneof![
        4 => Just(Step::Publish),
        6 => (owner.clone(), 0..4_u32).prop_map(|(owner, limit)| Step::Deliver { owner, limit }),
        2 => any::<usize>().prop_map(Step::Complete),
        2 => (any::<usize>(), 0..20_u64).prop_map(|(n, wait)| Step::Reschedule(n, wait)),
        2 => (any::<usize>(), shelf.clone()).prop_map(|(n, shelf)| Step::Shelve(n, shelf)),
        1 => any::<usize>().prop_map(Step::NativeDeadLetter),
        1 => any::<usize>().prop_map(Step::Release),
        1 => any::<usize>().prop_map(Step::GiveBack),
        1 => owner.prop_map(Step::Crash),
        1 => (0..15_u64).prop_map(Step::Wait),
        1 => shelf.clone().prop_map(Step::Discard),
        1 => (shelf, any::<bool>()).prop_map(|(shelf, writable)| Step::SetWritable(shelf, writable)),
    ]
}

/// A queue, and the numbers of messages that were published and removed.
struct World {
    queue: Queue,
    now: Instant,
    tags: Vec<Tag>,
    published: usize,
    removed: usize,
}

impl World {
    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Publish => {
                let id = format!("m{}", self.published);
                self.published += usize::from(self.queue.publish(message(&id)).is_ok());
            }
            Step::Deliver { owner, limit } => {
                if let NextDelivery::Delivery { tag, .. } = self.queue.deliver_next(owner, limit, self.now) {
                    self.tags.push(tag);
                }
            }
            Step::Complete(n) => self.removed += usize::from(self.settle(n, &Settlement::Complete)),
            Step::Reschedule(n, wait) => drop(self.settle(n, &reschedule(wait, "copy"))),
            Step::Shelve(n, shelf) => drop(self.settle(n, &shelve(shelf, "copy"))),
            Step::NativeDeadLetter(n) => drop(self.settle(n, &Settlement::NativeDeadLetter)),
            Step::Release(n) => drop(self.settle(n, &Settlement::Release)),
            Step::GiveBack(n) => {
                if let Some(tag) = self.pick_tag(n) {
                    self.queue.give_back(tag, self.now);
                }
            }
            Step::Crash(owner) => {
                for tag in self.queue.tags_of(owner) {
                    self.queue.give_back(tag, self.now);
                }
            }
            Step::Wait(seconds) => self.now += Duration::from_secs(seconds),
            Step::Discard(shelf) => {
                if !self.queue.shelf(shelf).is_empty() {
                    self.queue.take_from_shelf(shelf, 0);
                    self.removed += 1;
                }
            }
            Step::SetWritable(shelf, writable) => self.queue.set_shelf_writable(shelf, writable),
        }
    }

    /// Selects a tag. Used tags stay in the list: stale tags must have no effect.
    fn pick_tag(&self, n: usize) -> Option<Tag> {
        n.checked_rem(self.tags.len()).map(|n| self.tags[n])
    }

    fn settle(&mut self, n: usize, settlement: &Settlement) -> bool {
        self.pick_tag(n).is_some_and(|tag| self.queue.settle(tag, settlement.clone(), || self.now).is_ok())
    }

    fn present(&self) -> usize {
        let shelves = [Shelf::DeadLetter, Shelf::Parking].map(|shelf| self.queue.shelf(shelf).len());
        self.queue.depth() + shelves[0] + shelves[1]
    }
}

proptest! {
    #[test]
    fn no_message_is_lost_or_doubled(
        steps in proptest::collection::vec(step(), 0..200),
        queue_capacity in proptest::option::of(0..8_usize),
        shelf_capacity in proptest::option::of(0..4_usize),
        delivery_limit in proptest::option::of(1..4_u32),
    ) {
        let options = MemoryOptions { queue_capacity, shelf_capacity, delivery_limit };
        let queue = Queue::new(options);
        let mut world = World { queue, now: Instant::now(), tags: Vec::new(), published: 0, removed: 0 };
        for step in &steps {
            world.apply(step);
            prop_assert_eq!(world.present() + world.removed, world.published, "after {:?}", step);
            prop_assert!(world.queue.ready.iter().is_sorted_by_key(|&(position, _)| position), "after {:?}", step);
        }
    }
}
