//! Limits: 0 is a pause.

use std::sync::Arc;

use futures::future::join;
use redrive_core::transport::Settlement;
use redrive_core::{Transport, TransportErrorKind};
use tokio::time::timeout;

use crate::case::{ARRIVAL, Case};
use crate::harness::Harness;
use crate::planning::needs;

/// After the limit is set to 0, what was handed out before still arrives; then `receive` returns that there is none to come. What
/// was not handed out is free for other consumers.
pub async fn pause_lets_finish_what_was_handed_out<H: Harness>(case: &Case<H>) {
    const MESSAGES: usize = 10;
    let mut few = needs();
    few.prefetch = 4;
    let paused = case.started_with(few).await;
    let ids = case.publish_many(MESSAGES).await;
    let first = case.next(&paused).await;
    case.pause(&paused).await;
    let mut seen = vec![first.delivery.id().to_owned()];
    case.settle(&paused, first.receipt, Settlement::Complete).await;
    for received in case.drain(&paused).await {
        seen.push(received.delivery.id().to_owned());
        case.settle(&paused, received.receipt, Settlement::Complete).await;
    }
    assert!(seen.len() < MESSAGES, "`set_limit(0)` does not stop the broker from handing out");
    let other = case.started().await;
    seen.extend(case.complete_ids(&other, MESSAGES - seen.len()).await);
    seen.sort();
    assert_eq!(seen, ids);
    case.nothing_is_left(&other).await;
}

/// A message that is published while the only consumer is paused stays with the broker.
pub async fn pause_takes_nothing_new<H: Harness>(case: &Case<H>) {
    let paused = case.started().await;
    case.pause(&paused).await;
    assert!(case.drain(&paused).await.is_empty(), "something arrived from an empty queue");
    case.publish_ids(&["a"]).await;
    assert!(case.drain(&paused).await.is_empty(), "a paused transport takes a message");
    let other = case.started().await;
    case.complete_is(&other, "a").await;
}

/// Setting the limit to 0 ends a waiting `receive`: there is none to come.
pub async fn pause_ends_a_waiting_receive<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    let waiting = tokio::spawn({
        let transport = Arc::clone(&transport);
        async move { transport.receive().await }
    });
    case.nothing_comes(&transport).await;
    case.pause(&transport).await;
    match timeout(ARRIVAL, waiting).await {
        Ok(Ok(Ok(None))) => {}
        Ok(Ok(Ok(Some(_)))) => panic!("something arrived from an empty queue"),
        Ok(Ok(Err(error))) => panic!("`receive` fails: {error}"),
        Ok(Err(panic)) => panic!("`receive` panics: {panic}"),
        Err(_) => panic!("`receive` still waits after the pause"),
    }
}

/// Settling works while the transport is paused, and rescheduled messages come when it is resumed.
pub async fn settling_goes_on_while_paused<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a", "b", "c"]).await;
    let a = case.next_is(&transport, "a").await;
    let b = case.next_is(&transport, "b").await;
    let c = case.next_is(&transport, "c").await;
    case.pause(&transport).await;
    case.settle(&transport, a.receipt, Settlement::Complete).await;
    let settlement = crate::planning::retry(&*transport, &b.delivery, crate::planning::SHORT);
    case.settle(&transport, b.receipt, settlement).await;
    case.settle(&transport, c.receipt, Settlement::Release).await;
    assert!(case.drain(&transport).await.is_empty(), "a paused transport takes a message");
    case.resume(&transport).await;
    assert_eq!(case.complete_ids(&transport, 2).await, ["b", "c"]);
    case.nothing_is_left(&transport).await;
}

/// With a limit again, deliveries continue, including messages published during the pause, any number of times.
pub async fn resume_goes_on<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    for id in ["a", "b", "c"] {
        case.pause(&transport).await;
        case.publish_ids(&[id]).await;
        assert!(case.drain(&transport).await.is_empty(), "a paused transport takes a message");
        case.resume(&transport).await;
        case.complete_is(&transport, id).await;
    }
    case.nothing_is_left(&transport).await;
}

/// Pausing twice and resuming twice is the same as once.
pub async fn pausing_twice_is_pausing_once<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.pause(&transport).await;
    case.pause(&transport).await;
    case.resume(&transport).await;
    case.resume(&transport).await;
    case.publish_ids(&["a", "b"]).await;
    assert_eq!(case.complete_ids(&transport, 2).await, ["a", "b"]);
    case.nothing_is_left(&transport).await;
}

/// Of two limits that are set at the same time the later one applies, and both calls resolve.
pub async fn of_two_limits_at_once_the_later_holds<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    let set_both = async |earlier, later| {
        let both = join(transport.set_limit(earlier), transport.set_limit(later));
        let (earlier, later) = timeout(ARRIVAL, both).await.expect("both calls resolve");
        earlier.and(later).unwrap_or_else(|error| panic!("`set_limit` fails: {error}"));
    };
    set_both(1, 0).await;
    case.publish_ids(&["a"]).await;
    assert!(case.drain(&transport).await.is_empty(), "a paused transport takes a message");
    set_both(0, 1).await;
    case.complete_is(&transport, "a").await;
    case.nothing_is_left(&transport).await;
}

/// With a limit of 1 a transport has one delivery in flight, and with a higher limit more from then on, whether or not it was
/// paused in between. Deliveries that were in flight before can still be settled.
pub async fn a_higher_limit_holds_more<H: Harness>(case: &Case<H>) {
    for paused in [true, false] {
        let mut few = needs();
        few.prefetch = 3;
        let transport = case.opened_with(few).await;
        case.set_limit(&transport, 1).await;
        case.publish_ids(&["a", "b", "c"]).await;
        let a = case.next_is(&transport, "a").await;
        case.nothing_comes(&transport).await;
        if paused {
            case.pause(&transport).await;
            assert!(
                case.drain(&transport).await.is_empty(),
                "with a limit of 1, it had a second one in flight"
            );
        }
        case.set_limit(&transport, 3).await;
        let b = case.next_is(&transport, "b").await;
        let c = case.next_is(&transport, "c").await;
        case.settle(&transport, b.receipt, Settlement::Complete).await;
        case.settle(&transport, a.receipt, Settlement::Complete).await;
        case.settle(&transport, c.receipt, Settlement::Complete).await;
        case.nothing_is_left(&transport).await;
        transport.close().await;
    }
}

/// With a lower limit, even one above 0, a transport has no more than that in flight once what it had, or had requested, before is
/// settled.
pub async fn a_lower_limit_holds_less<H: Harness>(case: &Case<H>) {
    let mut few = needs();
    few.prefetch = 5;
    let transport = case.started_with(few).await;
    case.publish_ids(&["a", "b", "c"]).await;
    let before = [case.next(&transport).await, case.next(&transport).await, case.next(&transport).await];
    case.set_limit(&transport, 2).await;
    for received in before {
        case.settle(&transport, received.receipt, Settlement::Complete).await;
    }
    // What was requested before the change.
    case.publish_many(5).await;
    case.complete_ids(&transport, 5).await;
    case.publish_ids(&["d", "e", "f"]).await;
    let d = case.next_is(&transport, "d").await;
    let e = case.next_is(&transport, "e").await;
    case.nothing_comes(&transport).await;
    let other = case.started().await;
    case.complete_is(&other, "f").await;
    case.settle(&transport, d.receipt, Settlement::Complete).await;
    case.settle(&transport, e.receipt, Settlement::Complete).await;
    other.close().await;
    case.nothing_is_left(&transport).await;
}

/// Setting a limit after the end fails with [`Closed`](TransportErrorKind::Closed); stopping a transport that has ended is
/// harmless.
pub async fn a_limit_after_close_is_refused<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    transport.close().await;
    case.pause(&transport).await;
    let refused = transport.set_limit(1).await.err();
    assert_eq!(refused.map(|error| error.kind()), Some(TransportErrorKind::Closed));
    assert!(case.drain(&transport).await.is_empty(), "a closed transport takes a message");
}
