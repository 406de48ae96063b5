use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// The broker's side of a channel, with RabbitMQ's rules.
#[derive(Default)]
struct Channel {
    in_flight: BTreeSet<u64>,
    handed_out: u64,
    acknowledged: Vec<u64>,
}

impl Channel {
    fn hand_out(&mut self) {
        self.handed_out += 1;
        self.in_flight.insert(self.handed_out);
    }

    fn take(&mut self, acks: Vec<Ack>) {
        acks.into_iter().for_each(|ack| self.take_one(ack));
    }

    fn take_one(&mut self, ack: Ack) {
        assert!(
            self.in_flight.contains(&ack.tag),
            "{ack:?} is of no delivery in flight: the broker closes the channel"
        );
        let settled: Vec<_> = match ack.multiple {
            true => self.in_flight.range(..=ack.tag).copied().collect(),
            false => vec![ack.tag],
        };
        for tag in settled {
            self.in_flight.remove(&tag);
            self.acknowledged.push(tag);
        }
    }
}

const fn one(tag: u64) -> Ack {
    Ack { tag, multiple: false }
}

const fn up_to(tag: u64) -> Ack {
    Ack { tag, multiple: true }
}

#[test]
fn what_is_settled_in_order_is_told_immediate() {
    let mut window = AckWindow::new(200);
    assert_eq!(window.settle(1), Due::WaitsFirst);
    assert_eq!(window.settle(3), Due::Waits);
    assert_eq!(window.settle(2), Due::Waits);
    assert_eq!(window.take_all(), [up_to(3)]);
    assert_eq!(window.take_all(), []);
    assert_eq!(window.settle(4), Due::WaitsFirst);
    assert_eq!(window.take_all(), [one(4)]);
}

#[test]
fn nothing_passes_one_that_is_in_flight() {
    let mut window = AckWindow::new(200);
    for tag in [1, 2, 4, 5] {
        window.settle(tag);
    }
    assert_eq!(window.take_all(), [up_to(2), one(4), one(5)]);
    window.settle(6);
    assert_eq!(window.settle(3), Due::Waits);
    // 4 and 5 are acknowledged; a later acknowledgement may pass them, but must not name them.
    assert_eq!(window.take_all(), [up_to(6)]);
}

#[test]
fn one_that_was_given_back_is_never_named() {
    let mut window = AckWindow::new(200);
    window.settle(1);
    window.settle(2);
    window.settled_otherwise(3);
    assert_eq!(window.take_all(), [up_to(2)]);
    window.settled_otherwise(5);
    window.settle(4);
    assert_eq!(window.take_all(), [one(4)]);
}

#[test]
fn never_more_than_half_the_prefetch_waits() {
    for (prefetch, most) in [(1, 1), (2, 1), (3, 1), (50, 25), (128, 64), (1000, 64), (u16::MAX, 64)] {
        let mut window = AckWindow::new(prefetch);
        let first_due = (1..).find(|tag| window.settle(*tag) == Due::Now);
        assert_eq!(first_due, Some(most), "prefetch {prefetch}");
    }
    assert_eq!(AckWindow::immediate().settle(7), Due::Now);
}

#[test]
fn those_behind_a_slow_one_wait_for_it_until_there_are_too_many() {
    let mut window = AckWindow::new(8);
    for tag in [1, 2, 4] {
        window.settle(tag);
    }
    assert_eq!(window.settle(5), Due::Now);
    assert_eq!(window.take_due(), [up_to(2)], "4 and 5 may still go with 3");
    window.settle(6);
    assert_eq!(window.settle(7), Due::Now);
    assert_eq!(window.take_due(), [one(4), one(5), one(6), one(7)]);
}

#[test]
fn a_very_slow_one_does_not_make_the_window_grow() {
    let mut window = AckWindow::new(2);
    let mut channel = Channel::default();
    for tag in 1..=10_000 {
        channel.hand_out();
        if tag != 1 && window.settle(tag) == Due::Now {
            channel.take(window.take_due());
        }
        assert!(window.states.len() <= window.span + 1);
    }
    assert_eq!(channel.in_flight, BTreeSet::from([1]));
    window.settle(1);
    channel.take(window.take_all());
    for tag in 10_001..=10_003 {
        channel.hand_out();
        window.settle(tag);
    }
    assert_eq!(window.take_all(), [up_to(10_003)], "once it is done they go together again");
}

#[derive(Clone, Debug)]
enum Step {
    HandOut,
    /// Index among those in flight.
    Settle(prop::sample::Index),
    GiveBack(prop::sample::Index),
    Timer,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::HandOut),
        3 => any::<prop::sample::Index>().prop_map(Step::Settle),
        1 => any::<prop::sample::Index>().prop_map(Step::GiveBack),
        1 => Just(Step::Timer),
    ]
}

proptest! {
    /// In any order, with any bounds: only settled deliveries are acknowledged, and each exactly once.
    #[test]
    fn only_what_is_settled_is_acknowledged_and_each_once(
        prefetch in 1_u16..40,
        span in 1_usize..12,
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let mut window = AckWindow { span, ..AckWindow::new(prefetch) };
        let mut channel = Channel::default();
        let mut running = Vec::new();
        let mut settled = BTreeSet::new();
        for step in steps {
            match step {
                Step::HandOut => if channel.in_flight.len() < usize::from(prefetch) {
                    channel.hand_out();
                    running.push(channel.handed_out);
                },
                Step::Settle(index) => if !running.is_empty() {
                    let tag = running.swap_remove(index.index(running.len()));
                    settled.insert(tag);
                    if window.settle(tag) == Due::Now {
                        channel.take(window.take_due());
                    }
                },
                Step::GiveBack(index) => if !running.is_empty() {
                    let tag = running.swap_remove(index.index(running.len()));
                    // Sent first, as the channel does.
                    prop_assert!(channel.in_flight.remove(&tag));
                    window.settled_otherwise(tag);
                },
                Step::Timer => {
                    channel.take(window.take_all());
                    prop_assert!(channel.in_flight.iter().all(|tag| running.contains(tag)), "something waits on");
                }
            }
            prop_assert!(channel.acknowledged.iter().all(|tag| settled.contains(tag)));
            let waiting = settled.iter().filter(|tag| channel.in_flight.contains(tag)).count();
            prop_assert!(waiting <= usize::from(prefetch / 2).max(1), "the broker is starved");
        }
        channel.take(window.take_all());
        prop_assert_eq!(&BTreeSet::from_iter(channel.acknowledged.iter().copied()), &settled);
        prop_assert_eq!(channel.acknowledged.len(), settled.len(), "acknowledged twice");
    }
}

#[test]
fn it_knows_whether_something_is_in_flight() {
    let mut window = AckWindow::new(10);
    assert!(!window.has_in_flight(0), "nothing was handed out");
    assert!(window.has_in_flight(3), "three were, and none is settled");
    window.settle(1);
    window.settled_otherwise(3);
    assert!(window.has_in_flight(3));
    window.settle(2);
    assert!(!window.has_in_flight(3));
    let _ = window.take_all();
    assert!(!window.has_in_flight(3) && window.has_in_flight(4));
}
