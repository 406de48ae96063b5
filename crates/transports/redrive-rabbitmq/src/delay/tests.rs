//! The decisions of the modes, without a broker.

use std::collections::BTreeMap;

use lapin::types::AMQPValue;
use proptest::prelude::*;
use redrive_core::transport::{InPlace, Planning, Settlement};
use redrive_core::{Delivery, Disposition, Failure, FailureHistory, Reason, Value};

use super::*;
use crate::topology::GivenNames;

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn plan_for(delay: &Delay, queue_type: QueueType) -> Plan {
    Plan {
        names: GivenNames::of("orders").settled(delay.dead_letter_suffix()),
        queue_type,
        retry_queue_type: delay.default_retry_queue_type(),
        topology: Topology::Declare,
        delivery_limit: 20,
        delay_arguments: delay.work_queue_arguments(),
        arguments: BTreeMap::new(),
        dead_letter_exchange: None,
        bindings: Vec::new(),
    }
}

fn strategy_of(delay: impl Into<Delay>, waits: &[Duration]) -> Arc<dyn DelayStrategy> {
    let delay = delay.into();
    let plan = plan_for(&delay, QueueType::Quorum);
    assert_eq!(delay.contradiction(&plan, &[]), None);
    let mut needs = Needs::none();
    needs.waits.extend(waits.iter().copied());
    delay.strategy(&Arc::new(plan), &needs, &[])
}

fn contradiction(delay: impl Into<Delay>) -> String {
    let delay = delay.into();
    delay.contradiction(&plan_for(&delay, QueueType::Quorum), &[]).expect("refused")
}

fn copy() -> Message {
    Message::new("body")
        .with_header(header_names::SOURCE_EXCHANGE, "shop")
        .with_header(header_names::SOURCE_ROUTING_KEY, "order.eu")
        .with_header(header_names::ATTEMPT, 2_i64)
}

/// Returns how long a retry with `wait` keeps a message from its handler, hop by hop, as the core plans and the strategy carries
/// out.
fn kept_for(strategy: &dyn DelayStrategy, wait: Duration) -> (Duration, u32) {
    let mut facts = Facts::new("rabbitmq");
    facts.delays.hop_durations = Some(strategy.hops());
    facts.delays.longest = Some(MAX_WAIT);
    let begun = std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let (mut now, mut hops) = (begun, 0);
    let planning = |now| Planning::new(now, &facts);
    let failure = Failure::new(Reason::RetryableError, "throttled");
    let mut next = Some(Settlement::plan(
        &Delivery::new(Message::new("").with_id("a"), "orders", now),
        Disposition::Retry(wait, failure),
        &planning(now),
    ));
    while let Some(Settlement::Reschedule { wait, mut copy }) = next {
        let route = strategy.route(wait, &mut copy).expect("some queue holds it");
        // A rung's name contains its wait.
        let held = route.routing_key.rsplit('-').next().unwrap().trim_end_matches("ms").parse().unwrap();
        (now, hops) = (now + millis(held), hops + 1);
        next = Settlement::wait_on(&Delivery::new(copy, "orders", now), &planning(now));
    }
    (now.duration_since(begun).unwrap(), hops)
}

/// Policies that name their waits, one with full jitter over a day, and none.
fn policies() -> [Vec<Duration>; 4] {
    let jittered =
        (0..20).flat_map(|attempt| (1..=4).map(move |quarter| millis((250 * quarter) << attempt.min(16))));
    [
        Vec::new(),
        vec![millis(1000), millis(10_000), millis(60_000)],
        vec![millis(600_000)],
        jittered.collect(),
    ]
}

#[test]
fn a_wait_that_nobody_named_is_put_together() {
    let strategy = strategy_of(Delay::Ladder, &[millis(1000), millis(10_000), millis(3_600_000)]);
    for (wait, kept, hops) in [
        // Throttled for 37 s, or by `Retry-After: 90`; published for half an hour later.
        (37_000, 40_000, 2),
        (90_000, 90_000, 2),
        (1_800_000, 1_800_000, 1),
        (55_000, 60_000, 1),
        (7 * 86_400_000, 7 * 86_400_000, 1),
    ] {
        assert_eq!(kept_for(&*strategy, millis(wait)), (millis(kept), hops), "{wait}");
    }
}

#[test]
fn only_queues_that_are_there_are_used_where_none_may_be_declared() {
    let mut plan = plan_for(&Delay::Ladder, QueueType::Quorum);
    plan.topology = Topology::Verify;
    let mut needs = Needs::none();
    needs.waits.extend([millis(1000), millis(10_000), millis(3_600_000)]);
    let strategy = Delay::Ladder.strategy(&Arc::new(plan), &needs, &[]);
    assert_eq!(strategy.hops().len(), 3);
    assert_eq!(kept_for(&*strategy, millis(12_000)), (millis(12_000), 3));
    // Rather late than hundreds of hops.
    assert_eq!(kept_for(&*strategy, millis(1_800_000)), (millis(3_600_000), 1));
}

#[test]
fn jitter_over_a_day_needs_a_bounded_number_of_queues() {
    for waits in policies() {
        let strategy = strategy_of(Delay::Ladder, &waits);
        assert!(strategy.parts().len() <= 24 && strategy.hops().len() <= ladder::MOST_QUEUES, "{waits:?}");
    }
}

proptest! {
    /// Whoever asks for it, and whatever the policy names.
    #[test]
    fn no_wait_is_early_or_later_than_a_tenth_or_takes_many_hops(
        policy in 0..4_usize, asked in prop_oneof![1_u64..2_000, 1_u64..4_000_000, 1_u64..7 * 86_400_000],
    ) {
        let strategy = strategy_of(Delay::Ladder, &policies()[policy]);
        let wait = millis(asked);
        let (kept, hops) = kept_for(&*strategy, wait);
        prop_assert!(kept >= wait, "{kept:?} for {wait:?}");
        // The shortest queue is the smallest step.
        prop_assert!(kept <= wait + (wait / 10).max(millis(50)), "{kept:?} for {wait:?}, {hops} hops");
        prop_assert!(hops <= 8, "{hops} hops for {wait:?}");
    }

    #[test]
    fn whatever_waits_are_asked_for_the_queues_are_bounded(
        asked in proptest::collection::vec(1_u64..10_000_000_000, 1..200),
        known in proptest::collection::vec(1_u64..10_000_000_000, 0..100),
    ) {
        let strategy = strategy_of(Delay::Ladder, &known.into_iter().map(millis).collect::<Vec<_>>());
        let routes: std::collections::BTreeSet<_> = asked
            .into_iter()
            .filter_map(|wait| strategy.route(millis(wait), &mut Message::new("")))
            .map(|route| route.routing_key)
            .collect();
        prop_assert!(routes.len() <= strategy.hops().len() && strategy.hops().len() <= ladder::MOST_QUEUES);
    }

    /// Spare queues that the broker lets nobody declare are left out, one by one, until only those of the start are used.
    #[test]
    fn without_its_spare_queues_a_wait_is_never_early(asked in 1_u64..100_000) {
        let mut strategy = strategy_of(Delay::Ladder, &[millis(1000), millis(10_000)]);
        let wait = millis(asked);
        loop {
            prop_assert!(kept_for(&*strategy, wait).0 >= wait);
            let spare = strategy.hops().into_iter().filter_map(|hop| strategy.route(hop, &mut copy()));
            let Some(less) = spare.into_iter().find_map(|route| strategy.without(&route)) else { break };
            strategy = less;
        }
        prop_assert_eq!(strategy.hops(), [millis(1000), millis(10_000)]);
    }
}

#[test]
fn native_declares_nothing_but_keeps_a_ladder_for_what_must_be_copied() {
    let native = Native::between(millis(100), millis(400));
    let strategy = strategy_of(native, &[millis(100)]);
    assert_eq!(strategy.parts(), []);
    let route = strategy.route(millis(60), &mut copy()).expect("a snooze finds a queue");
    assert_eq!(route, Route::queue("orders--retry-100ms"));
    assert!(strategy.spare(&route).is_some(), "it is declared when it is needed");
    let mut facts = Facts::new("rabbitmq");
    strategy.describe(&mut facts);
    assert_eq!(facts.delays.in_place, Some(InPlace::Linear { shortest: millis(100), longest: millis(400) }));
}

#[test]
fn native_always_sets_all_arguments() {
    let delay = Delay::from(Native::between(millis(100), millis(400)));
    let is_work = |part: &Part| part.is_queue("orders");
    let work = plan_for(&delay, QueueType::Quorum).parts().into_iter().find(is_work);
    let Some(Part::Queue(work)) = work else { panic!("no work queue") };
    for (name, value) in [
        ("x-delayed-retry-type", AMQPValue::LongString("failed".into())),
        ("x-delayed-retry-min", AMQPValue::LongLongInt(100)),
        ("x-delayed-retry-max", AMQPValue::LongLongInt(400)),
        ("x-delivery-limit", AMQPValue::LongLongInt(20)),
    ] {
        assert_eq!(work.arguments.get(name), Some(&value), "{name}");
    }
}

#[test]
fn native_says_which_waits_the_broker_does_not_hold() {
    let native = Native::between(millis(100), millis(400));
    assert_eq!(strategy_of(native, &[millis(100), millis(200), millis(400)]).caveats().len(), 1);
    assert!(strategy_of(native, &[millis(100), millis(401)]).caveats()[1].contains("longer than the 400ms"));
    assert!(strategy_of(native, &[millis(150)]).caveats()[1].contains("150ms"));
}

#[test]
fn native_is_refused_where_it_would_be_ignored() {
    let native = Native::between(millis(100), millis(400));
    let delay = Delay::from(native);
    let classic = delay.contradiction(&plan_for(&delay, QueueType::Classic), &[]).expect("refused");
    assert!(classic.contains("quorum queue"), "{classic}");
    for wrong in [Native::between(Duration::ZERO, millis(1)), Native::between(millis(2), millis(1))] {
        assert!(contradiction(wrong).contains("at least 1 ms"));
    }
    assert!(delay.refused_by(None).is_some() && delay.refused_by(Some(Version::V4_0)).is_some());
    assert_eq!(delay.refused_by(Some(Version::V4_3)), None);
    assert_eq!(Delay::Ladder.refused_by(None), None);
    let mut verified = plan_for(&delay, QueueType::Quorum);
    verified.topology = Topology::Verify;
    assert!(delay.contradiction(&verified, &[]).is_some(), "a snooze would have no queue");
    assert_eq!(delay.contradiction(&verified, &[millis(1000)]), None);
}

#[test]
fn a_single_queue_holds_each_copy_by_its_own_expiration() {
    let strategy = strategy_of(SingleQueue::durable(), &[]);
    let mut copy = copy();
    let route = strategy.route(millis(10), &mut copy).expect("a route");
    assert_eq!(route, Route { exchange: "orders--backoff".into(), routing_key: "order.eu".into() });
    assert_eq!(copy.properties().expiration, Some(millis(50)), "never below the shortest");
    assert_eq!(copy.headers().get("x-kithara-retries"), Some(&Value::I64(2)));
    assert_eq!(strategy.route(millis(60_001), &mut copy), None, "longer waits are several hops");
    assert_eq!(strategy.parts().len(), 5);
    let names = plan_for(&SingleQueue::durable().into(), QueueType::Classic).names;
    assert_eq!(names.dead_letters, "orders--failed");
}

#[test]
fn the_higher_of_both_counts_is_the_count() {
    let strategy = strategy_of(SingleQueue::durable(), &[]);
    let read = |ours: Option<i64>, theirs: Value| {
        let mut message = Message::new("").with_header("x-kithara-retries", theirs);
        if let Some(ours) = ours {
            message.headers_mut().insert(header_names::ATTEMPT, ours);
        }
        strategy.arrived(&mut message);
        FailureHistory::read(&message).failures()
    };
    assert_eq!(read(None, Value::I64(3)), 3);
    assert_eq!(read(Some(5), Value::I64(3)), 5);
    assert_eq!(read(Some(2), "3".into()), 3);
    assert_eq!(read(None, "many".into()), u32::MAX);
    assert_eq!(read(Some(2), Value::I64(-1)), u32::MAX);
}

#[test]
fn a_single_queue_that_cannot_be_is_refused() {
    let named = |name: &str| SingleQueue::durable().queue(Entity::durable().named(name));
    assert!(contradiction(named("orders--failed")).contains("dead_letter_queue"));
    assert!(contradiction(SingleQueue::durable().between(millis(9), millis(8))).contains("at least 1 ms"));
    let same = SingleQueue::durable()
        .backoff_exchange(Entity::durable().named("x"))
        .retry_exchange(Entity::durable().named("x"));
    assert!(contradiction(same).contains("round"));
    for exclusive in [
        SingleQueue::durable().backoff_exchange(Entity::durable().exclusive(true)),
        SingleQueue::durable().retry_exchange(Entity::durable().exclusive(true)),
    ] {
        assert!(contradiction(exclusive).contains("cannot be exclusive"));
    }
    let delay = Delay::from(SingleQueue::transient());
    let mut plan = plan_for(&delay, QueueType::Quorum);
    assert_eq!(delay.contradiction(&plan, &[]), None);
    plan.retry_queue_type = QueueType::Quorum;
    assert!(delay.contradiction(&plan, &[]).is_some_and(|refused| refused.contains("transient")));
}

#[test]
fn what_can_be_gone_with_a_connection_says_so() {
    let mut facts = Facts::new("rabbitmq");
    let strategy = strategy_of(SingleQueue::transient(), &[]);
    strategy.describe(&mut facts);
    assert!(strategy.is_transient() && !facts.delays.survive_crashes);
    assert_eq!(strategy.caveats().len(), 2);
    let durable = strategy_of(SingleQueue::durable(), &[]);
    assert!(!durable.is_transient());
    assert_eq!(durable.caveats().len(), 1);
}

fn two_stages() -> Staged {
    Staged::back_to("shop").stage("wait.1s", millis(1000)).stage("wait.9s", millis(9000)).through("in.9s")
}

#[test]
fn a_key_that_somebody_must_bind_is_named_at_the_start() {
    let of = |staged: Staged| strategy_of(staged, &[]).caveats();
    assert!(of(two_stages())[1].contains("bind `orders` to `shop` with the key `orders`"));
    assert!(of(two_stages().other_key("late"))[1].contains("with the key `late`"));
    assert_eq!(of(two_stages().declared(true)).len(), 1, "it binds it itself");
}

#[test]
fn a_stage_is_entered_with_the_original_key() {
    let strategy = strategy_of(two_stages(), &[]);
    let main = Origin::new("orders", "shop", "order.eu");
    let route = |wait, copy: &mut Message| strategy.route_from(&main, millis(wait), copy);
    let entered =
        |exchange: &str, key: &str| Some(Route { exchange: exchange.into(), routing_key: key.into() });
    assert_eq!(route(1000, &mut copy()), entered("wait.1s", "order.eu"));
    assert_eq!(route(1001, &mut copy()), entered("in.9s", "order.eu"));
    assert_eq!(route(9001, &mut copy()), None);
    let direct = Origin::new("orders", "", "order.eu");
    let route = strategy.route_from(&direct, millis(1), &mut copy());
    assert_eq!(
        route,
        entered("wait.1s", "orders"),
        "its key is none of the main exchange, whatever its headers say"
    );
    assert_eq!(strategy.route(millis(1), &mut copy()), entered("wait.1s", "orders"));
    assert_eq!(strategy.hops(), [millis(1000), millis(9000)]);
}

#[test]
fn stages_that_cannot_be_are_refused() {
    assert!(contradiction(Staged::back_to("shop")).contains("no stage"));
    assert!(contradiction(Staged::back_to("").stage("a", millis(1))).contains("no name"));
    assert!(contradiction(two_stages().stage("b", millis(9000))).contains("must grow"));
    assert!(contradiction(Staged::back_to("shop").stage("orders", millis(1))).contains("work queue"));
    assert!(
        contradiction(Staged::back_to("shop").stage("a", millis(1)).through("shop")).contains("everything")
    );
    assert!(!Delay::from(two_stages()).is_declared(Topology::Declare));
    assert!(Delay::from(two_stages().declared(true)).is_declared(Topology::Verify));
}
