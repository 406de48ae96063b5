//! The three counters.

use std::time::Duration;

use redrive_core::{Disposition, Settlement};

use crate::case::Case;
use crate::harness::Harness;
use crate::planning::{SHORT, plan, retry};

/// A message that nobody has seen is a first attempt, handed out once, and not marked as redelivered.
pub async fn the_first_arrival_is_the_first<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    let delivery = case.complete_next(&transport).await;
    assert_eq!((delivery.attempt(), delivery.handed_out()), (1, 1));
    assert!(!delivery.redelivered());
    assert_eq!(delivery.story().hop, 0);
}

/// The attempt grows by one with every retry, and so does the number of hops.
pub async fn attempt_and_hop_grow_with_every_retry<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    for attempt in 1..=4 {
        let received = case.next_is(&transport, "a").await;
        assert_eq!((received.delivery.attempt(), received.delivery.story().hop), (attempt, attempt - 1));
        let wait = if attempt % 2 == 0 { SHORT } else { Duration::ZERO };
        case.settle(&transport, received.receipt, retry(&*transport, &received.delivery, wait)).await;
    }
}

/// A rescheduled copy is handed out for the first time again: the count is of hand-outs since the last failure.
pub async fn hand_outs_start_anew_with_a_copy<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    drop(case.next(&transport).await);
    for _ in 0..3 {
        let received = case.next_is(&transport, "a").await;
        case.settle(&transport, received.receipt, retry(&*transport, &received.delivery, SHORT)).await;
        let copy = case.next_is(&transport, "a").await;
        assert_eq!(copy.delivery.handed_out(), 1);
        case.settle(&transport, copy.receipt, retry(&*transport, &copy.delivery, Duration::ZERO)).await;
    }
}

/// A snoozed message comes back with the attempt that it had.
pub async fn a_snooze_costs_no_attempt<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    let received = case.next(&transport).await;
    let settlement = plan(&*transport, &received.delivery, Disposition::snooze(SHORT));
    case.settle(&transport, received.receipt, settlement).await;
    let again = case.complete_next(&transport).await;
    assert_eq!((again.attempt(), again.story().snoozes), (1, 1));
}

/// The story that is written on a copy is read back from it: reason, text, times, source and history.
pub async fn the_story_survives_the_hop<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    let received = case.next(&transport).await;
    let settlement = retry(&*transport, &received.delivery, SHORT);
    let Settlement::Reschedule { copy, .. } = &settlement else { panic!("{settlement:?} is no retry") };
    let mut told = redrive_core::Story::read(copy);
    case.settle(&transport, received.receipt, settlement).await;
    let again = case.complete_next(&transport).await;
    told.id_assigned = again.story().id_assigned;
    assert_eq!(again.story(), &told);
    assert_eq!(told.source_queue.as_deref(), Some(again.queue()));
}
