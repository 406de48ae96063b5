//! What the plan decides.

use super::*;
use crate::FailureHistory;
use crate::delivery::DeliveryBuilder;
use crate::engine::replaced_by;

fn failed(message: Message, in_place: u32) -> Delivery {
    DeliveryBuilder::from(Delivery::new(message.with_id("a"), "q", SystemTime::UNIX_EPOCH))
        .broker_delivery_count(in_place + 1)
        .failures_in_place(in_place)
        .build()
}

fn handed_out_twice(delivery: Delivery) -> Delivery {
    DeliveryBuilder::from(delivery).broker_delivery_count(2).build()
}

fn planned(facts: &Facts, delivery: &Delivery, disposition: Disposition) -> Settlement {
    let planning = Planning::new(SystemTime::UNIX_EPOCH, facts);
    Settlement::plan(delivery, disposition, &planning)
}

fn failure() -> Failure {
    Failure::new(crate::Reason::RetryableError, "no answer")
}

#[test]
fn a_retry_stays_in_place_as_long_as_the_broker_holds_it_long_enough() {
    const SECOND: Duration = Duration::from_secs(1);
    let mut facts = Facts::new("test");
    let retry = |facts: &Facts, delivery: &Delivery, wait| {
        planned(facts, delivery, Disposition::Retry(wait, failure()))
    };
    assert!(retry(&facts, &failed(Message::new("").with_id("a"), 0), SECOND).stores_copy());
    facts.delays.in_place = Some(crate::transport::InPlace::Linear { shortest: SECOND, longest: SECOND * 3 });
    for (failures, wait, in_place) in
        [(0, 0, true), (0, 1, true), (0, 2, false), (1, 2, true), (9, 3, true), (9, 4, false)]
    {
        let wait = SECOND * wait;
        let settlement = retry(&facts, &failed(Message::new("").with_id("a"), failures), wait);
        assert_eq!(settlement == Settlement::RetryInPlace { wait }, in_place, "{failures}: {settlement:?}");
    }
    let nameless = Delivery::new(Message::new(""), "q", SystemTime::UNIX_EPOCH);
    assert!(retry(&facts, &nameless, SECOND).stores_copy(), "only a copy carries its id");
    let unstored =
        replaced_by(failed(Message::new(""), 2), Message::new("").with_id("a"), SystemTime::UNIX_EPOCH);
    assert!(retry(&facts, &unstored, SECOND).stores_copy(), "the broker holds what it was copied from");
    let mut expiring = Message::new("").with_id("a");
    expiring.properties_mut().expiration = Some(SECOND * 60);
    assert!(retry(&facts, &failed(expiring, 0), SECOND).stores_copy(), "only a copy carries its deadline");
}

#[test]
fn every_copy_carries_the_failures_that_the_broker_counted() {
    let facts = Facts::new("test");
    let delivery = failed(Message::new("").with_header(names::ATTEMPT, 2_i64), 3);
    assert_eq!(delivery.attempt(), 6);
    for (disposition, failures) in [
        (Disposition::snooze(Duration::from_secs(1)), 5),
        (Disposition::Retry(Duration::from_secs(1), failure()), 6),
        (Disposition::DeadLetter(failure()), 6),
        (Disposition::Park(failure()), 6),
    ] {
        let (Settlement::Reschedule { copy, .. } | Settlement::Shelve { copy, .. }) =
            planned(&facts, &delivery, disposition)
        else {
            panic!("no copy")
        };
        assert_eq!(crate::FailureHistory::read(&copy).attempt, Count::Known(failures));
    }
}

#[test]
fn dead_letters_go_by_the_broker_where_it_is_asked_to_and_can() {
    let delivery = failed(Message::new("").with_id("a"), 0);
    let dead_letter = |native| {
        let mut facts = Facts::new("test");
        facts.dead_letter = native;
        let park = planned(&facts, &delivery, Disposition::Park(failure()));
        assert!(park.stores_copy(), "parking is always a copy");
        planned(&facts, &delivery, Disposition::DeadLetter(failure())).name()
    };
    assert_eq!(dead_letter(NativeDeadLetter::Preferred), "native-dead-letter");
    assert_eq!(dead_letter(NativeDeadLetter::No), "shelve", "rejected, it would be gone");
    assert_eq!(dead_letter(NativeDeadLetter::LastResort), "shelve");
}

#[test]
fn what_has_no_room_for_its_history_is_stored_as_it_arrived_unless_the_broker_moves_it() {
    let message = Message::new("").with_id("a").with_header("large", "x".repeat(5000));
    let room = message.headers().encoded_len();
    let mut facts = Facts::new("test");
    let plan = |facts: &Facts, message: &Message, disposition| {
        planned(facts, &failed(message.clone(), 0), disposition)
    };
    for disposition in [
        || Disposition::DeadLetter(failure()),
        || Disposition::Park(failure()),
        || Disposition::Retry(Duration::from_secs(1), failure()),
        || Disposition::Snooze(Duration::from_secs(1)),
    ] {
        facts.limits.headers =
            Some(crate::transport::HeaderLimit::new(room, |message| message.headers().encoded_len()));
        facts.dead_letter = NativeDeadLetter::LastResort;
        assert_eq!(plan(&facts, &message, disposition()), Settlement::NativeDeadLetter);
        facts.dead_letter = NativeDeadLetter::No;
        let copy = message.clone().with_header(names::SOURCE_QUEUE, "q").with_header(names::HOP, 1_i64);
        // A mark that another program carried on is of an earlier copy.
        for message in
            [message.clone(), message.clone().with_header(names::SHELVED, "7:2026-01-01T00:00:00.000Z")]
        {
            let settlement = plan(&facts, &message, disposition());
            assert!(settlement.leaves_history_out());
            assert_eq!(settlement, Settlement::Shelve { shelf: Shelf::DeadLetter, copy: copy.clone() });
        }
        let mut expires = message.clone();
        expires.properties_mut().expiration = Some(Duration::from_secs(9));
        let Settlement::Shelve { copy, .. } = plan(&facts, &expires, disposition()) else {
            panic!("no copy")
        };
        assert_eq!(copy.properties().expiration, None, "it would end there");
        assert_eq!(copy.headers().get(names::EXPIRATION).and_then(Value::to_integer), Some(9000));
    }
}

#[test]
fn a_time_that_no_wait_can_reach_is_not_waited_for() {
    const DAY: Duration = Duration::from_secs(86_400);
    let mut facts = Facts::new("test");
    facts.delays.longest = Some(10 * DAY);
    let planning = Planning::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000), &facts);
    let waits = |until: Value| {
        let message = Message::new("").with_header(names::NOT_BEFORE, until);
        let delivery = Delivery::new(message, "q", planning.now);
        Settlement::wait_on(&delivery, &planning).is_some()
    };
    assert!(waits(write_time(planning.now + 9 * DAY)));
    assert!(!waits(write_time(planning.now + 11 * DAY)));
    assert!(!waits(Value::I64(i64::MAX)));
}

/// Returns the hops of a wait, on hosts whose clocks differ: at the end of each hop, the clock is `ahead` of the previous one.
fn hops_of(wait: Duration, ahead: &[i64]) -> Vec<u64> {
    let mut facts = Facts::new("test");
    facts.delays.hop_durations = Some(vec![Duration::from_secs(10), Duration::from_secs(100)]);
    let mut now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let mut planning = Planning::new(now, &facts);
    let first = Delivery::new(Message::new("").with_id("m"), "q", now);
    let mut settlement = Settlement::plan(&first, Disposition::Retry(wait, failure()), &planning);
    let mut hops = Vec::new();
    for ahead in ahead.iter().copied().chain(std::iter::repeat(0)) {
        let Settlement::Reschedule { wait, copy } = settlement else { panic!("{settlement:?}") };
        hops.push(wait.as_secs());
        now += wait;
        let skew = Duration::from_secs(ahead.unsigned_abs());
        now = if ahead < 0 { now - skew } else { now + skew };
        planning.now = now;
        match Settlement::wait_on(&Delivery::new(copy, "q", now), &planning) {
            Some(next) => settlement = next,
            None => return hops,
        }
        assert!(hops.len() < 20, "it goes round and round: {hops:?}");
    }
    unreachable!()
}

#[test]
fn a_clock_that_is_set_back_makes_no_wait_longer() {
    let (wait, hops) = (Duration::from_secs(220), [100, 100, 10, 10]);
    assert_eq!(hops_of(wait, &[]), hops);
    assert_eq!(hops_of(wait, &[-86_400]), hops, "by a day");
    assert_eq!(hops_of(wait, &[0, -600]), hops, "another host takes over, ten minutes behind");
}

#[test]
fn the_time_that_a_message_lay_in_its_queue_is_not_waited_for_again() {
    assert_eq!(hops_of(Duration::from_secs(250), &[120]), [100, 10, 10, 10]);
}

#[test]
fn what_was_left_of_another_wait_ends_none_early() {
    let mut facts = Facts::new("test");
    facts.delays.hop_durations = Some(vec![Duration::from_secs(10)]);
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let planning = Planning::new(now, &facts);
    let first = Delivery::new(Message::new("").with_id("m"), "q", now);
    let retry = Disposition::Retry(Duration::from_secs(12), failure());
    let Settlement::Reschedule { mut copy, .. } = Settlement::plan(&first, retry, &planning) else {
        panic!()
    };
    // A version that does not know the remaining wait carries the header on: past its last hop, and into an hour's wait for its
    // next failure.
    let hop = FailureHistory::read(&copy).copy_number + 2;
    copy.headers_mut().insert_own(names::HOP, i64::from(hop));
    copy.headers_mut().insert_own(names::NOT_BEFORE, write_time(now + Duration::from_secs(3600)));
    let Some(Settlement::Reschedule { copy, .. }) =
        Settlement::wait_on(&Delivery::new(copy, "q", now), &planning)
    else {
        panic!("it is not due");
    };
    assert_eq!(FailureHistory::read(&copy).not_before, Some(now + Duration::from_secs(3600)));
}

#[test]
fn what_is_left_of_a_wait_outlives_a_release_by_a_copy() {
    let mut facts = Facts::new("test");
    facts.delays.hop_durations = Some(vec![Duration::from_secs(10)]);
    (facts.counting.releases, facts.counting.deliveries) = (true, true);
    let first = failed(Message::new("").with_id("a"), 0);
    let wait = Disposition::Retry(Duration::from_secs(60), failure());
    let Settlement::Reschedule { copy, .. } = planned(&facts, &first, wait) else { panic!() };
    let early = failed(copy, 1);
    assert_eq!(early.history().wait_left, Some(Duration::from_secs(50)));
    let released = planned(&facts, &early, Disposition::Release);
    let Settlement::Reschedule { copy, .. } = released else { panic!("{released:?}") };
    assert_eq!(FailureHistory::read(&copy).wait_left, Some(Duration::from_secs(50)));
}

#[test]
fn a_story_that_could_not_be_unpacked_is_carried_whole() {
    let mut facts = Facts::new("test");
    let story = format!(r#"{{"v":2,"error":"{}"}}"#, "x".repeat(5000));
    // As much as any headers may take, and so little that everything else is dropped.
    for most in [usize::MAX, 5500] {
        facts.limits.headers =
            Some(crate::transport::HeaderLimit::new(most, |message| message.headers().encoded_len()));
        let message = Message::new("").with_header(names::STORY, &*story).with_header("tenant", "blue");
        let settlement = planned(&facts, &failed(message, 0), Disposition::DeadLetter(failure()));
        let Settlement::Shelve { copy, .. } = settlement else { panic!("{settlement:?}") };
        assert_eq!(copy.headers().get(names::STORY).and_then(Value::as_str), Some(&*story));
        assert_eq!(copy.headers().get(names::REASON).and_then(Value::as_str), Some("RetryableError"));
    }
}

#[test]
fn a_wait_beyond_the_longest_is_as_long_as_the_longest() {
    let mut facts = Facts::new("test");
    let longest = Duration::from_secs(10 * 365 * 24 * 3600);
    facts.delays.longest = Some(longest);
    facts.delays.hop_durations = Some(vec![Duration::from_secs(1), Duration::from_secs(60)]);
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    for wait in [longest + Duration::from_secs(1), Duration::MAX] {
        let first = Delivery::new(Message::new("").with_id("a"), "q", now);
        let plan = Settlement::plan(&first, Disposition::Snooze(wait), &Planning::new(now, &facts));
        let Settlement::Reschedule { wait: hop, copy } = plan else { panic!("{plan:?}") };
        let (arrives, next) = (now + hop, FailureHistory::read(&copy).not_before);
        assert_eq!(next, Some(now + longest));
        let again = Delivery::new(copy, "q", arrives);
        assert!(
            Settlement::wait_on(&again, &Planning::new(arrives, &facts)).is_some(),
            "handled after {hop:?} instead of {wait:?}"
        );
    }
}

#[test]
fn what_another_program_puts_back_from_a_shelf_begins_afresh_and_nothing_else_does() {
    let facts = Facts::new("test");
    let before = Message::new("")
        .with_id("a")
        .with_header(names::ATTEMPT, 7_i64)
        .with_header(names::HANDED_OUT, 30_i64)
        .with_header(names::DEADLINE, "1970-01-01T00:00:01Z")
        .with_header(names::HOP, 3_i64);
    let poison = || Failure::new(crate::Reason::PoisonMessage, "it kills");
    let arrives = |message: &Message| Delivery::new(message.clone(), "q", SystemTime::UNIX_EPOCH);
    let copy = |settlement| match settlement {
        Settlement::Shelve { copy, .. } | Settlement::Reschedule { copy, .. } => copy,
        other => panic!("{other:?} stores no copy"),
    };
    let first = handed_out_twice(Delivery::new(before, "q", SystemTime::UNIX_EPOCH));
    for disposition in [Disposition::DeadLetter(poison()), Disposition::Park(poison())] {
        let shelved = copy(planned(&facts, &first, disposition));
        let again = arrives(&shelved);
        assert_eq!(again.put_back(), Some(&crate::Reason::PoisonMessage));
        assert_eq!((again.attempt(), again.broker_delivery_count(), again.deadline()), (1, 1, None));
        assert_eq!(again.history().past.len(), 1, "the story is kept");

        assert_eq!(arrives(&redriven(&shelved)).put_back(), None);
        let wait = Duration::from_secs(1);
        for next in [Disposition::Retry(wait, failure()), Disposition::snooze(wait), Disposition::Release] {
            let mut counting = facts.clone();
            (counting.counting.releases, counting.counting.deliveries) = (true, true);
            let again = handed_out_twice(again.clone());
            let attempt = 1 + u32::from(matches!(next, Disposition::Retry(..)));
            let mut later = copy(planned(&counting, &again, next));
            assert_eq!((arrives(&later).put_back(), arrives(&later).attempt()), (None, attempt));
            // A program that does not know the mark carries it on.
            later
                .headers_mut()
                .insert(names::SHELVED, shelved.headers().get(names::SHELVED).unwrap().clone());
            assert_eq!(arrives(&later).put_back(), None);
        }
    }
}

#[test]
fn what_stores_no_copy_leaves_out_a_history_only_if_the_broker_dead_letters() {
    for settlement in [Settlement::Complete, Settlement::Release, Settlement::NativeDeadLetter] {
        assert!(!settlement.stores_copy(), "{settlement:?}");
        let is_native = settlement == Settlement::NativeDeadLetter;
        assert_eq!(settlement.leaves_history_out(), is_native, "{settlement:?}");
    }
}
