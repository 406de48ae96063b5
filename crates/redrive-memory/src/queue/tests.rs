//! The state machine by itself: no runtime, and time as an argument.

use std::time::Duration;

use proptest::prelude::*;
use redrive_core::{Message, Settlement, Shelf};
use tokio::time::Instant;

use super::{HandOut, Owner, Queue, Tag};
use crate::error::Refusal;
use crate::options::MemoryOptions;

const ME: Owner = 1;
const OTHER: Owner = 2;

fn message(id: &str) -> Message {
    Message::new("").with_id(id)
}

fn later(wait: u64, id: &str) -> Settlement {
    Settlement::Reschedule { wait: Duration::from_secs(wait), copy: message(id) }
}

fn onto(shelf: Shelf, id: &str) -> Settlement {
    Settlement::Shelve { shelf, copy: message(id) }
}

/// The next one's tag, id and count; panics where there is none.
fn next(queue: &mut Queue, owner: Owner, now: Instant) -> (Tag, String, u32) {
    match queue.hand_out(owner, 0, now) {
        HandOut::Message { tag, message, handed_out, .. } => {
            (tag, message.id().unwrap_or_default().to_owned(), handed_out)
        }
        HandOut::Nothing { next_due } => panic!("nothing is ready; the next is due {next_due:?}"),
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
fn what_is_given_back_takes_its_old_place() {
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
fn only_what_is_not_released_counts() {
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
    assert_eq!(queue.settle(tag, Settlement::Release, now), Ok(()));
    assert_eq!(next(&mut queue, ME, now).2, 2);
}

#[test]
fn waits_end_in_the_order_of_their_due_times() {
    let now = Instant::now();
    let mut queue = filled(MemoryOptions::new(), &["a", "b", "c"]);
    for (wait, id) in [(60, "a"), (10, "b"), (10, "c")] {
        let (tag, ..) = next(&mut queue, ME, now);
        queue.settle(tag, later(wait, id), now).expect("it waits");
    }
    let due = now + Duration::from_secs(10);
    let just_before = due - Duration::from_millis(1);
    assert!(
        matches!(queue.hand_out(ME, 0, just_before), HandOut::Nothing { next_due } if next_due == Some(due))
    );
    assert_eq!(next(&mut queue, ME, due).1, "b");
    assert_eq!(next(&mut queue, ME, due).1, "c");
    assert_eq!(queue.waiting(due), 1);
    assert_eq!(next(&mut queue, ME, now + Duration::from_secs(60)).1, "a");
}

#[test]
fn a_wait_beyond_the_clock_is_held_for_ever() {
    let now = Instant::now();
    let mut queue = filled(MemoryOptions::new(), &["a"]);
    let (tag, ..) = next(&mut queue, ME, now);
    let copy = message("a");
    queue.settle(tag, Settlement::Reschedule { wait: Duration::MAX, copy }, now).expect("it waits");
    assert_eq!(queue.waiting(now + Duration::from_secs(10 * 365 * 86_400)), 1);
}

#[test]
fn prefetch_is_each_owners_own() {
    let now = Instant::now();
    let mut queue = filled(MemoryOptions::new(), &["a", "b", "c"]);
    assert!(matches!(queue.hand_out(ME, 1, now), HandOut::Message { .. }));
    assert!(matches!(queue.hand_out(ME, 1, now), HandOut::Nothing { .. }));
    assert!(matches!(queue.hand_out(OTHER, 1, now), HandOut::Message { .. }));
    assert_eq!(queue.held_by(ME).len(), 1);
}

#[test]
fn a_full_queue_refuses_publishers_and_never_retries() {
    let now = Instant::now();
    let mut queue = filled(MemoryOptions::new().queue_capacity(1), &["a"]);
    assert_eq!(queue.publish(message("b")), Err(Refusal::QueueFull(1)));
    let (tag, ..) = next(&mut queue, ME, now);
    assert_eq!(queue.publish(message("b")), Err(Refusal::QueueFull(1)), "what is held takes its place");
    assert_eq!(queue.settle(tag, later(1, "a"), now), Ok(()));
    assert_eq!(queue.depth(), 1);
}

#[test]
fn a_full_shelf_refuses_and_the_delivery_stays_in_flight() {
    let now = Instant::now();
    let mut queue = filled(MemoryOptions::new().shelf_capacity(1), &["a", "b"]);
    let (a, ..) = next(&mut queue, ME, now);
    let (b, ..) = next(&mut queue, ME, now);
    assert_eq!(queue.settle(a, onto(Shelf::DeadLetter, "a"), now), Ok(()));
    let refused = Err(Refusal::ShelfFull(Shelf::DeadLetter));
    assert_eq!(queue.settle(b, onto(Shelf::DeadLetter, "b"), now), refused);
    assert_eq!(queue.settle(b, Settlement::NativeDeadLetter, now), refused);
    assert_eq!(queue.settle(b, onto(Shelf::Parking, "b"), now), Ok(()), "the other shelf has room");
}

#[test]
fn at_the_limit_the_broker_shelves_what_comes_back() {
    let now = Instant::now();
    let mut queue = filled(MemoryOptions::new().delivery_limit(2), &["a"]);
    let (tag, ..) = next(&mut queue, ME, now);
    queue.give_back(tag, now);
    let (tag, ..) = next(&mut queue, ME, now);
    queue.release(tag);
    assert_eq!(queue.shelf(Shelf::DeadLetter).len(), 0, "a release is no delivery");
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
    assert_eq!(queue.settle(tag, Settlement::Complete, now), Ok(()));
    assert_eq!(queue.settle(tag, later(1, "a"), now), Err(Refusal::Lost));
    queue.give_back(tag, now);
    assert_eq!(queue.depth(), 0);
}

/// Something that is done with a queue. Numbers choose among what there is.
#[derive(Clone, Debug)]
enum Step {
    Publish,
    HandOut { owner: Owner, prefetch: u32 },
    Complete(usize),
    Reschedule(usize, u64),
    Move(usize, Shelf),
    Reject(usize),
    Release(usize),
    Drop(usize),
    Crash(Owner),
    Wait(u64),
    Clear(Shelf),
    Switch(Shelf, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let owner = 1..=2_u64;
    let shelf = prop_oneof![Just(Shelf::DeadLetter), Just(Shelf::Parking)];
    prop_oneof![
        4 => Just(Step::Publish),
        6 => (owner.clone(), 0..4_u32).prop_map(|(owner, prefetch)| Step::HandOut { owner, prefetch }),
        2 => any::<usize>().prop_map(Step::Complete),
        2 => (any::<usize>(), 0..20_u64).prop_map(|(n, wait)| Step::Reschedule(n, wait)),
        2 => (any::<usize>(), shelf.clone()).prop_map(|(n, shelf)| Step::Move(n, shelf)),
        1 => any::<usize>().prop_map(Step::Reject),
        1 => any::<usize>().prop_map(Step::Release),
        1 => any::<usize>().prop_map(Step::Drop),
        1 => owner.prop_map(Step::Crash),
        1 => (0..15_u64).prop_map(Step::Wait),
        1 => shelf.clone().prop_map(Step::Clear),
        1 => (shelf, any::<bool>()).prop_map(|(shelf, writable)| Step::Switch(shelf, writable)),
    ]
}

/// A queue, with what it must add up to.
struct World {
    queue: Queue,
    now: Instant,
    tags: Vec<Tag>,
    published: usize,
    gone: usize,
}

impl World {
    fn take(&mut self, step: &Step) {
        match *step {
            Step::Publish => {
                let id = format!("m{}", self.published);
                self.published += usize::from(self.queue.publish(message(&id)).is_ok());
            }
            Step::HandOut { owner, prefetch } => {
                if let HandOut::Message { tag, .. } = self.queue.hand_out(owner, prefetch, self.now) {
                    self.tags.push(tag);
                }
            }
            Step::Complete(n) => self.gone += usize::from(self.settle(n, &Settlement::Complete)),
            Step::Reschedule(n, wait) => drop(self.settle(n, &later(wait, "copy"))),
            Step::Move(n, shelf) => drop(self.settle(n, &onto(shelf, "copy"))),
            Step::Reject(n) => drop(self.settle(n, &Settlement::NativeDeadLetter)),
            Step::Release(n) => drop(self.settle(n, &Settlement::Release)),
            Step::Drop(n) => {
                if let Some(tag) = self.any_tag(n) {
                    self.queue.give_back(tag, self.now);
                }
            }
            Step::Crash(owner) => {
                for tag in self.queue.held_by(owner) {
                    self.queue.give_back(tag, self.now);
                }
            }
            Step::Wait(seconds) => self.now += Duration::from_secs(seconds),
            Step::Clear(shelf) => {
                if !self.queue.shelf(shelf).is_empty() {
                    self.queue.take_from_shelf(shelf, 0);
                    self.gone += 1;
                }
            }
            Step::Switch(shelf, writable) => self.queue.set_shelf_writable(shelf, writable),
        }
    }

    /// Tags stay in the list when they are used up: stale ones must do no harm.
    fn any_tag(&self, n: usize) -> Option<Tag> {
        n.checked_rem(self.tags.len()).map(|n| self.tags[n])
    }

    fn settle(&mut self, n: usize, settlement: &Settlement) -> bool {
        self.any_tag(n).is_some_and(|tag| self.queue.settle(tag, settlement.clone(), self.now).is_ok())
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
        let mut world = World { queue, now: Instant::now(), tags: Vec::new(), published: 0, gone: 0 };
        for step in &steps {
            world.take(step);
            prop_assert_eq!(world.present() + world.gone, world.published, "after {:?}", step);
        }
    }
}
