//! The three counters.

use std::time::Duration;

use redrive_core::transport::Settlement;
use redrive_core::{Disposition, Shelf};

use crate::case::Case;
use crate::harness::Harness;
use crate::planning::{SHORT, copied, failure, retry};

/// A new message is a first attempt, handed out once, and not marked as redelivered.
pub async fn the_first_arrival_is_the_first<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    let delivery = case.complete_next(&transport).await;
    assert_eq!((delivery.attempt(), delivery.broker_delivery_count()), (1, 1));
    assert!(!delivery.redelivered());
    assert_eq!(delivery.history().copy_number, 0);
}

/// The attempt grows by one with every retry. So does the number of hops, if the retry is a copy.
pub async fn attempt_and_copy_number_grow_with_every_retry<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    let mut hops = 0;
    for attempt in 1..=4 {
        let received = case.next_is(&transport, "a").await;
        assert_eq!((received.delivery.attempt(), received.delivery.history().copy_number), (attempt, hops));
        let wait = if attempt % 2 == 0 { SHORT } else { Duration::ZERO };
        let settlement = retry(&*transport, &received.delivery, wait);
        hops += u32::from(settlement.stores_copy());
        case.settle(&transport, received.receipt, settlement).await;
    }
}

/// If the broker retries in place, the attempt grows by one with every failure, whether the message is held back in place or
/// copied. Neither giving back nor a snooze raises it, and nothing lowers it.
pub async fn attempts_go_on_from_in_place_to_copies<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    if transport.facts().delays.in_place.is_none() {
        return case.does_not_apply("the facts say `delays.in_place: None`");
    }
    case.publish_ids(&["a"]).await;
    let copied = copied(&*transport);
    for (attempt, wait, in_place) in
        [(1, SHORT, true), (2, SHORT, true), (3, copied * 3, false), (4, SHORT, true), (5, SHORT, true)]
    {
        let received = case.next_is(&transport, "a").await;
        assert_eq!(received.delivery.attempt(), attempt);
        case.settle(&transport, received.receipt, Settlement::Release).await;
        let received = case.next_is(&transport, "a").await;
        assert_eq!(received.delivery.attempt(), attempt, "giving back is not a failure");
        let settlement = retry(&*transport, &received.delivery, wait);
        assert_eq!(settlement == Settlement::RetryInPlace { wait }, in_place, "{settlement:?}");
        case.settle(&transport, received.receipt, settlement).await;
    }
    let received = case.next_is(&transport, "a").await;
    let settlement = transport.plan(&received.delivery, Disposition::snooze(SHORT));
    case.settle(&transport, received.receipt, settlement).await;
    let received = case.next_is(&transport, "a").await;
    assert_eq!((received.delivery.attempt(), received.delivery.failures_in_place()), (6, 0));
    let settlement = transport.plan(&received.delivery, Disposition::DeadLetter(failure()));
    case.settle(&transport, received.receipt, settlement).await;
    let shelved = redrive_core::FailureHistory::read(&case.on_shelf(Shelf::DeadLetter, 1).await[0]);
    assert_eq!(shelved.attempt, redrive_core::Count::Known(6), "the shelf tells of all attempts");
}

/// The delivery count of a rescheduled copy starts at one: it counts deliveries since the last failure.
pub async fn the_delivery_count_of_a_copy_starts_at_one<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    let wait = copied(&*transport);
    let none = if transport.facts().delays.in_place.is_some() { wait } else { Duration::ZERO };
    drop(case.next(&transport).await);
    for _ in 0..3 {
        let received = case.next_is(&transport, "a").await;
        case.settle(&transport, received.receipt, retry(&*transport, &received.delivery, wait)).await;
        let copy = case.next_is(&transport, "a").await;
        assert_eq!(copy.delivery.broker_delivery_count(), 1);
        case.settle(&transport, copy.receipt, retry(&*transport, &copy.delivery, none)).await;
    }
}

/// A snoozed message comes back with the same attempt.
pub async fn a_snooze_costs_no_attempt<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    let received = case.next(&transport).await;
    let settlement = transport.plan(&received.delivery, Disposition::snooze(SHORT));
    case.settle(&transport, received.receipt, settlement).await;
    let again = case.complete_next(&transport).await;
    assert_eq!((again.attempt(), again.history().snoozes), (1, 1));
}

/// The history that is written on a copy can be read back from it: reason, text, times, source and history.
pub async fn the_history_survives_the_copy<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    let received = case.next(&transport).await;
    let settlement = retry(&*transport, &received.delivery, copied(&*transport));
    let Settlement::Reschedule { copy, .. } = &settlement else { panic!("{settlement:?} is no retry") };
    let mut told = redrive_core::FailureHistory::read(copy);
    case.settle(&transport, received.receipt, settlement).await;
    let again = case.complete_next(&transport).await;
    told.id_assigned = again.history().id_assigned;
    assert_eq!(again.history(), &told);
    assert_eq!(told.source_queue.as_deref(), Some(again.queue()));
}
