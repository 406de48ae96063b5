use super::*;
use proptest::prelude::*;
use std::time::{Duration, UNIX_EPOCH};

use redrive_core::transport::{DeliveryBuilder, Origin};
use redrive_core::{Message, Properties, header_names};

/// A cache with a clock.
struct Cache {
    cache: SettledCache,
    now: Instant,
}

impl Cache {
    fn new(capacity: usize, max_in_flight: usize) -> Self {
        let cache = SettledCache::new(NonZeroUsize::new(capacity).unwrap(), max_in_flight);
        let mut cache = Self { cache, now: Instant::now() };
        cache.interrupted(1, Some(&[]));
        cache
    }

    fn interrupted(&mut self, interruptions: u64, unreceived: Option<&[Delivery]>) {
        self.cache.interrupted(interruptions, unreceived, self.now);
    }

    fn knows(&self, delivery: &Delivery) -> bool {
        self.cache.knows(delivery, self.now)
    }

    fn arrived(&mut self, delivery: &Delivery) -> (bool, Option<Ticket>) {
        self.cache.arrived(delivery, &|| self.now)
    }

    fn done(&mut self, ticket: &Ticket) {
        self.cache.done(ticket, &|| self.now);
    }

    fn comes_again(&mut self, ticket: &Ticket) {
        self.cache.comes_again(ticket, &|| self.now);
    }

    fn after(&mut self, time: Duration) {
        self.now += time;
    }
}

fn cache(capacity: usize) -> Cache {
    Cache::new(capacity, capacity)
}

fn delivery(id: &str, copy_number: i64) -> Delivery {
    of(Message::new("body").with_id(id).with_header(header_names::HOP, copy_number))
}

fn of(message: Message) -> Delivery {
    published_to("", "", message)
}

fn published_to(exchange: &str, routing_key: &str, message: Message) -> Delivery {
    DeliveryBuilder::new(message, Origin::new("q", exchange, routing_key), UNIX_EPOCH)
        .interruptions(1)
        .build()
}

fn after(interruptions: u64, delivery: Delivery) -> Delivery {
    DeliveryBuilder::from(delivery).interruptions(interruptions).build()
}

fn numbered(number: u64, delivery: Delivery) -> Delivery {
    DeliveryBuilder::from(delivery).broker_number(number).build()
}

fn again(delivery: Delivery, interruptions: u64) -> Delivery {
    DeliveryBuilder::from(delivery).redelivered(true).interruptions(interruptions).build()
}

/// A delivery arrives, and is settled.
fn settle(cache: &mut Cache, delivery: &Delivery) {
    let (known, ticket) = cache.arrived(delivery);
    assert!(!known);
    ticket.iter().for_each(|ticket| cache.done(ticket));
}

#[test]
fn what_was_settled_is_known_after_an_interruption_and_once() {
    let mut cache = cache(2);
    settle(&mut cache, &delivery("a", 0));
    assert!(!cache.knows(&again(delivery("a", 0), 1)), "the broker was told: it is a second message");
    cache.interrupted(2, Some(&[]));
    assert!(!cache.knows(&after(2, delivery("a", 0))), "nobody had it in flight before");
    assert!(!cache.knows(&again(delivery("a", 1), 2)), "its copy is somebody else");
    assert!(cache.arrived(&again(delivery("a", 0), 2)).0);
    assert!(!cache.arrived(&again(delivery("a", 0), 2)).0, "there is a second message");
}

#[test]
fn a_second_message_that_was_in_hand_is_not_taken_for_the_first() {
    let mut cache = cache(4);
    settle(&mut cache, &delivery("a", 0));
    let (known, _in_hand) = cache.arrived(&delivery("a", 0));
    assert!(!known);
    cache.interrupted(2, Some(&[]));
    assert!(!cache.arrived(&again(delivery("a", 0), 2)).0, "one of the two is not done");
    assert!(cache.arrived(&again(delivery("a", 0), 2)).0, "then the other is");
}

#[test]
fn a_second_message_that_was_not_even_received_is_not_taken_for_the_first() {
    let mut cache = cache(4);
    settle(&mut cache, &delivery("a", 0));
    cache.interrupted(2, Some(&[delivery("a", 0)]));
    assert!(!cache.arrived(&again(delivery("a", 0), 2)).0);
}

#[test]
fn where_it_is_not_known_what_comes_again_nothing_is_taken_for_done() {
    let mut cache = cache(4);
    settle(&mut cache, &delivery("a", 0));
    cache.interrupted(2, Some(&[]));
    settle(&mut cache, &after(2, delivery("b", 0)));
    cache.interrupted(3, None);
    for id in ["a", "b"] {
        assert!(!cache.knows(&again(delivery(id, 0), 3)));
    }
}

#[test]
fn nor_for_a_while_after_that() {
    let mut cache = cache(4);
    cache.interrupted(2, None);
    settle(&mut cache, &after(2, delivery("a", 0)));
    cache.interrupted(3, Some(&[]));
    assert!(
        !cache.knows(&again(delivery("a", 0), 3)),
        "another like it was in flight at the first interruption"
    );
    cache.after(UNSURE_FOR * 2);
    settle(&mut cache, &after(3, delivery("a", 0)));
    cache.interrupted(4, Some(&[]));
    assert!(cache.knows(&again(delivery("a", 0), 4)));
}

#[test]
fn what_was_settled_long_before_an_interruption_is_not_in_doubt() {
    let mut cache = cache(4);
    settle(&mut cache, &delivery("a", 0));
    cache.after(IN_DOUBT_FOR);
    cache.interrupted(2, Some(&[]));
    assert!(!cache.knows(&again(delivery("a", 0), 2)), "another consumer had one like it in flight");
}

#[test]
fn what_does_not_come_again_soon_was_not_lost() {
    let mut cache = cache(4);
    settle(&mut cache, &delivery("a", 0));
    cache.interrupted(2, Some(&[]));
    cache.after(COMES_AGAIN_WITHIN * 2);
    assert!(!cache.knows(&again(delivery("a", 0), 2)), "another consumer had one like it in flight");
    cache.interrupted(3, Some(&[]));
    assert!(!cache.knows(&again(delivery("a", 0), 3)), "nor after the next interruption");
}

#[test]
fn what_is_handed_over_late_is_not_taken_for_done() {
    let mut cache = cache(4);
    settle(&mut cache, &delivery("a", 0));
    cache.interrupted(2, Some(&[]));
    let late = again(delivery("a", 0), 1);
    assert!(!cache.arrived(&late).0, "its twin of before the interruption is done, perhaps");
    assert!(!cache.arrived(&again(delivery("a", 0), 2)).0, "it is redelivered, not done");
    assert!(cache.arrived(&again(delivery("a", 0), 2)).0);
}

#[test]
fn where_one_was_forgotten_that_comes_again_nothing_is_taken_for_done() {
    let mut cache = cache(1);
    for id in ["a", "b"] {
        let (_, given_back) = cache.arrived(&delivery(id, 0));
        cache.comes_again(&given_back.unwrap());
    }
    settle(&mut cache, &delivery("a", 0));
    cache.interrupted(2, Some(&[]));
    assert!(!cache.knows(&again(delivery("a", 0), 2)), "one like it was given back");
}

#[test]
fn what_was_settled_otherwise_is_not_done_when_it_comes_again() {
    let mut cache = cache(4);
    settle(&mut cache, &delivery("a", 0));
    let (_, rejected) = cache.arrived(&delivery("a", 0));
    cache.cache.settled(&rejected.unwrap(), &|| cache.now);
    cache.interrupted(2, Some(&[]));
    assert!(!cache.arrived(&again(delivery("a", 0), 2)).0);
}

#[test]
fn what_is_given_back_is_not_taken_for_its_twin() {
    let mut cache = cache(4);
    settle(&mut cache, &delivery("a", 0));
    cache.interrupted(2, Some(&[]));
    let (_, second) = cache.arrived(&after(2, delivery("a", 0)));
    cache.comes_again(&second.unwrap());
    assert!(!cache.arrived(&again(delivery("a", 0), 2)).0);
}

#[test]
fn what_its_handler_came_to_after_an_interruption_is_remembered() {
    let mut cache = cache(4);
    let (_, ticket) = cache.arrived(&delivery("a", 0));
    cache.interrupted(2, Some(&[]));
    cache.done(&ticket.unwrap());
    assert!(cache.arrived(&again(delivery("a", 0), 2)).0);
}

#[test]
fn what_came_again_before_its_handler_ended_leaves_nothing_behind() {
    let mut cache = cache(4);
    let (_, ticket) = cache.arrived(&delivery("a", 0));
    cache.interrupted(2, Some(&[]));
    assert!(!cache.arrived(&again(delivery("a", 0), 2)).0, "the handler still runs");
    cache.done(&ticket.unwrap());
    assert!(!cache.arrived(&again(delivery("a", 0), 2)).0);
}

#[test]
fn only_as_many_as_can_be_in_hand_are_in_doubt() {
    let mut cache = Cache::new(100, 2);
    for id in ["a", "b", "c"] {
        settle(&mut cache, &delivery(id, 0));
    }
    cache.interrupted(2, Some(&[]));
    let known = |id| cache.knows(&again(delivery(id, 0), 2));
    assert_eq!((known("a"), known("b"), known("c")), (false, true, true));
}

#[test]
fn the_oldest_doubts_are_forgotten() {
    let mut cache = cache(2);
    for (interruptions, id) in [(1, "a"), (2, "b"), (3, "c")] {
        settle(&mut cache, &after(interruptions, delivery(id, 0)));
        cache.interrupted(interruptions + 1, Some(&[]));
    }
    let known = |id| cache.knows(&again(delivery(id, 0), 4));
    assert_eq!((known("a"), known("b"), known("c")), (false, true, true));
    assert_eq!((cache.cache.doubts.of.len(), cache.cache.doubts.order.len()), (2, 2));
}

#[test]
fn a_number_of_the_broker_tells_twins_apart() {
    let numbered = |number| numbered(number, delivery("a", 0));
    let mut cache = cache(2);
    settle(&mut cache, &numbered(7));
    assert!(cache.knows(&again(numbered(7), 1)), "without an interruption, too");
    assert!(!cache.knows(&again(numbered(8), 1)));
    for number in [8, 9, 9] {
        settle(&mut cache, &numbered(number));
    }
    assert!(!cache.knows(&again(numbered(7), 1)), "the oldest is forgotten");
    assert!(cache.knows(&again(numbered(8), 1)));
}

#[test]
fn a_number_that_a_new_queue_gave_again_is_another_message() {
    let mut cache = cache(2);
    settle(&mut cache, &numbered(7, delivery("a", 0)));
    assert!(!cache.knows(&again(numbered(7, delivery("b", 0)), 1)));
    let came_at = |second| {
        let time = UNIX_EPOCH + Duration::from_secs(second);
        DeliveryBuilder::from(numbered(7, delivery("c", 0))).enqueued_at(Some(time)).build()
    };
    settle(&mut cache, &came_at(1));
    assert!(cache.knows(&again(came_at(1), 1)));
    assert!(!cache.knows(&again(came_at(2), 1)), "a twin that came later");
}

#[test]
fn everything_that_a_publisher_may_change_tells_messages_apart() {
    let changed = |change: &dyn Fn(&mut Properties)| {
        let mut message = Message::new("7").with_id("order-7").with_header("event", "created");
        change(message.properties_mut());
        published_to("events", "orders", message)
    };
    let mut messages = vec![
        changed(&|_| {}),
        published_to(
            "events",
            "orders",
            Message::new("8").with_id("order-7").with_header("event", "created"),
        ),
        published_to(
            "events",
            "orders",
            Message::new("7").with_id("order-7").with_header("event", "cancelled"),
        ),
        published_to(
            "events",
            "orders.eu",
            Message::new("7").with_id("order-7").with_header("event", "created"),
        ),
        published_to(
            "events.eu",
            "orders",
            Message::new("7").with_id("order-7").with_header("event", "created"),
        ),
    ];
    for value in ["x", "y"] {
        let texts = Properties::default().texts().count();
        messages.extend((0..texts).map(|nth| {
            changed(&|properties| *properties.texts_mut().nth(nth).unwrap().1 = Some(value.into()))
        }));
    }
    for value in [1, 2] {
        let seconds = Duration::from_secs(u64::from(value));
        messages.push(changed(&|properties| properties.priority = Some(value)));
        messages.push(changed(&|properties| properties.timestamp = Some((UNIX_EPOCH + seconds).into())));
        messages.push(changed(&|properties| properties.expiration = Some(seconds)));
        messages.push(changed(&|properties| properties.persistent = Some(value == 1)));
    }
    for (settled, message) in messages.iter().enumerate() {
        let mut cache = cache(2);
        settle(&mut cache, message);
        cache.interrupted(2, Some(&[]));
        for (other, message) in messages.iter().enumerate() {
            assert_eq!(cache.knows(&again(message.clone(), 2)), settled == other, "{message:?}");
        }
    }
}

#[test]
fn the_count_of_the_broker_makes_no_other_message() {
    let counted = |times: i64, counting: &'static [&'static str]| {
        let message = Message::new("body").with_id("a").with_header("count", times);
        let origin = Origin::new("q", "", "").with_counting_headers(counting);
        DeliveryBuilder::new(message, origin, UNIX_EPOCH).interruptions(1).build()
    };
    for (counting, knows) in [(&["count"] as &'static [&'static str], true), (&[], false)] {
        let mut cache = cache(2);
        settle(&mut cache, &counted(0, counting));
        cache.interrupted(2, Some(&[]));
        assert_eq!(cache.knows(&again(counted(1, counting), 2)), knows, "{counting:?}");
    }
}

#[test]
fn a_message_without_an_id_is_remembered_only_by_its_number() {
    let nameless = || of(Message::new("body"));
    let mut cache = cache(2);
    assert_eq!(cache.arrived(&nameless()), (false, None));
    settle(&mut cache, &numbered(7, nameless()));
    assert!(cache.knows(&again(numbered(7, nameless()), 1)));
}

/// A broker with identical messages, and a consumer whose connection is cut from time to time: some cuts lose acknowledgements,
/// others do not.
#[derive(Debug, Clone)]
enum Act {
    HandOut,
    Receive,
    Settle,
    GiveBack,
    Cut { told: usize },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => Just(Act::HandOut),
        3 => Just(Act::Receive),
        3 => Just(Act::Settle),
        1 => Just(Act::GiveBack),
        1 => (0_usize..4).prop_map(|told| Act::Cut { told }),
    ]
}

proptest! {
    /// The number of handled messages equals the number of published ones, whatever is cut.
    #[test]
    fn none_of_those_that_are_alike_goes_unhandled(
        messages in 1_usize..6,
        acts in proptest::collection::vec(act(), 0..60),
    ) {
        let mut cache = cache(100);
        let (mut interruptions, mut handled) = (1, 0);
        // `queue`: at the broker, whether each is marked as redelivered. Then: in the transport; in flight; told to be removed.
        let mut queue: VecDeque<bool> = (0..messages).map(|_| false).collect();
        let mut inbox: VecDeque<bool> = VecDeque::new();
        let mut in_flight: VecDeque<(bool, Ticket)> = VecDeque::new();
        let mut untold = 0;
        let to_the_end = (0..20 * messages).flat_map(|_| [Act::HandOut, Act::Receive, Act::Settle]);
        for act in acts.into_iter().chain(to_the_end) {
            match act {
                Act::HandOut => inbox.extend(queue.pop_front()),
                Act::Receive => {
                    if let Some(redelivered) = inbox.pop_front() {
                        let delivery = DeliveryBuilder::from(after(interruptions, delivery("a", 0))).redelivered(redelivered).build();
                        let (known, ticket) = cache.arrived(&delivery);
                        handled += usize::from(!known);
                        in_flight.push_back((known, ticket.unwrap()));
                    }
                }
                Act::Settle => {
                    if let Some((_, ticket)) = in_flight.pop_front() {
                        cache.done(&ticket);
                        untold += 1;
                    }
                }
                // A known message is removed, not given back.
                Act::GiveBack => {
                    if let Some((_, ticket)) = in_flight.pop_front_if(|(known, _)| !*known) {
                        cache.comes_again(&ticket);
                        handled -= 1;
                        queue.push_front(true);
                    }
                }
                Act::Cut { told } => {
                    untold -= told.min(untold);
                    interruptions += 1;
                    let unreceived: Vec<_> = inbox.drain(..).map(|_| delivery("a", 0)).collect();
                    cache.interrupted(interruptions, Some(&unreceived));
                    for _ in 0..unreceived.len() + in_flight.len() + untold {
                        queue.push_front(true);
                    }
                    for (known, ticket) in in_flight.drain(..) {
                        if known {
                            cache.done(&ticket);
                        } else {
                            // The handler fails.
                            handled -= 1;
                        }
                    }
                    untold = 0;
                }
            }
        }
        prop_assert!(queue.is_empty() && inbox.is_empty() && in_flight.is_empty());
        prop_assert!(handled >= messages, "{handled} of {messages}");
    }
}
