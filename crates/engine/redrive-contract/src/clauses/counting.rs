//! The three counters.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use redrive_core::transport::{Received, Settlement};
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
    for (attempt, in_place) in [(1, true), (2, true), (3, false), (4, true), (5, true)] {
        let received = case.next_is(&transport, "a").await;
        assert_eq!(received.delivery.attempt(), attempt);
        case.settle(&transport, received.receipt, Settlement::Release).await;
        let received = case.next_is(&transport, "a").await;
        assert_eq!(received.delivery.attempt(), attempt, "giving back is not a failure");
        let settlement = if in_place {
            retry(&*transport, &received.delivery, SHORT)
        } else {
            copied(&*transport, &received.delivery, SHORT)
        };
        assert_eq!(settlement == Settlement::RetryInPlace { wait: SHORT }, in_place, "{settlement:?}");
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
    drop(case.next(&transport).await);
    for _ in 0..3 {
        let received = case.next_is(&transport, "a").await;
        case.settle(&transport, received.receipt, copied(&*transport, &received.delivery, SHORT)).await;
        let copy = case.next_is(&transport, "a").await;
        assert_eq!(copy.delivery.broker_delivery_count(), 1);
        case.settle(&transport, copy.receipt, copied(&*transport, &copy.delivery, Duration::ZERO)).await;
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

/// A number that the broker gives a message names that message: no other has it, and it stays the same however often the message is
/// redelivered. Redeliveries are recognized by it.
pub async fn a_number_of_the_broker_names_one_message<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_many(3).await;
    let mut numbers = HashMap::new();
    let mut held = Vec::new();
    for _ in 0..3 {
        let Received { delivery, receipt } = case.next(&transport).await;
        let Some(number) = delivery.broker_number() else {
            return case.does_not_apply("the transport passes on no number of the broker");
        };
        numbers.insert(delivery.id().to_owned(), number);
        held.push(receipt);
    }
    assert_eq!(HashSet::<_>::from_iter(numbers.values()).len(), 3, "each has its own: {numbers:?}");
    drop(held);
    for _ in 0..3 {
        let again = case.complete_next(&transport).await;
        let number = again.broker_number();
        assert_eq!(
            number,
            numbers.remove(again.id()),
            "`{}` has another number when redelivered",
            again.id()
        );
    }
    case.nothing_is_left(&transport).await;
}

/// The history that is written on a copy can be read back from it: reason, text, times, source and history.
pub async fn the_history_survives_the_copy<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    let received = case.next(&transport).await;
    let settlement = copied(&*transport, &received.delivery, SHORT);
    let Settlement::Reschedule { copy, .. } = &settlement else { panic!("{settlement:?} is no retry") };
    let mut told = redrive_core::FailureHistory::read(copy);
    case.settle(&transport, received.receipt, settlement).await;
    let again = case.complete_next(&transport).await;
    told.id_assigned = again.history().id_assigned;
    assert_eq!(again.history(), &told);
    assert_eq!(told.source_queue.as_deref(), Some(again.queue()));
}
