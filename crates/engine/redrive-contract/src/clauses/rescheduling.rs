//! Rescheduled messages.

use std::time::Duration;

use redrive_core::transport::{Needs, Planning, Settlement};
use redrive_core::{Delivery, Disposition, Transport};
use tokio::time::Instant;

use crate::case::Case;
use crate::harness::{Harness, StartedOf};
use crate::planning::{CLOCK_ERROR, FAR, LONG, SHORT, copied, failure, retry};
use crate::samples;

/// A rescheduled message comes back, to the same queue.
pub async fn reschedule_comes_back<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    let first = case.next_is(&transport, "a").await;
    case.settle(&transport, first.receipt, retry(&*transport, &first.delivery, SHORT)).await;
    let second = case.next_is(&transport, "a").await;
    assert_eq!(second.delivery.queue(), first.delivery.queue());
    case.settle(&transport, second.receipt, Settlement::Complete).await;
}

/// Exactly one of a rescheduled message is left: the copy, or the message itself if it is held back in place.
pub async fn reschedule_removes_the_original<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    let first = case.next(&transport).await;
    let settlement = retry(&*transport, &first.delivery, SHORT);
    let hops = u32::from(settlement.stores_copy());
    case.settle(&transport, first.receipt, settlement).await;
    let second = case.complete_next(&transport).await;
    assert_eq!(
        (second.attempt(), second.history().copy_number),
        (2, hops),
        "the original came, not the copy"
    );
    case.nothing_is_left(&transport).await;
}

/// A rescheduled message never comes back before its wait is over.
pub async fn reschedule_is_never_early<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    for wait in [SHORT, LONG, SHORT] {
        let received = case.next(&transport).await;
        let begun = Instant::now();
        case.settle(&transport, received.receipt, retry(&*transport, &received.delivery, wait)).await;
        let again = case.next(&transport).await;
        let waited = begun.elapsed();
        assert!(waited + CLOCK_ERROR >= wait, "came back after {waited:?} instead of {wait:?}");
        case.settle(&transport, again.receipt, retry(&*transport, &again.delivery, Duration::ZERO)).await;
    }
}

/// A rescheduled message comes back when its wait is over, or a little later: as much as the harness allows
/// ([`Harness::lateness`]). This concerns copies, and messages that the broker holds back in place.
pub async fn reschedule_is_not_late<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    let most = case.harness.lateness();
    for by_copy in [false, true] {
        case.publish_ids(&["a"]).await;
        let received = case.next_is(&transport, "a").await;
        let settlement = if by_copy {
            copied(&*transport, &received.delivery, SHORT)
        } else {
            retry(&*transport, &received.delivery, SHORT)
        };
        case.settle(&transport, received.receipt, settlement).await;
        let begun = Instant::now();
        case.complete_is(&transport, "a").await;
        let late = begun.elapsed().saturating_sub(SHORT);
        assert!(late <= most, "came back {late:?} after its wait of {SHORT:?} was over; {most:?} is allowed");
    }
}

/// A message rescheduled by zero comes back at once, and only once.
pub async fn reschedule_by_zero_comes_back<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    let first = case.next(&transport).await;
    case.settle(&transport, first.receipt, retry(&*transport, &first.delivery, Duration::ZERO)).await;
    let second = case.complete_next(&transport).await;
    assert_eq!(second.attempt(), 2);
    case.nothing_is_left(&transport).await;
}

/// A rescheduled copy keeps its body, its properties, and its headers, each with its type.
pub async fn reschedule_keeps_the_whole_message<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish(samples::full(&case.harness)).await;
    let first = case.next(&transport).await;
    samples::assert_arrived(&case.harness, first.delivery.message());
    let settlement = retry(&*transport, &first.delivery, SHORT);
    let copy = samples::sent_on(&settlement, &first.delivery);
    case.settle(&transport, first.receipt, settlement).await;
    let second = case.complete_next(&transport).await;
    samples::assert_same(second.message(), &copy);
}

/// A message with a shorter wait comes back when it is due, however long the waits of messages rescheduled before it are.
pub async fn a_shorter_wait_is_not_held_up_by_a_longer_one<H: Harness>(case: &Case<H>) {
    const ROUNDS: u32 = 20;
    let transport = case.started().await;
    case.publish_ids(&["minute"]).await;
    let received = case.next(&transport).await;
    case.settle(&transport, received.receipt, retry(&*transport, &received.delivery, FAR)).await;
    // If the machine stalls between the two, or until both are due, the longer wait may end first. A shorter wait that is held up
    // by the longer one never ends first.
    for _ in 0..ROUNDS {
        case.publish_ids(&["long", "short"]).await;
        for wait in [LONG, SHORT] {
            let received = case.next(&transport).await;
            case.settle(&transport, received.receipt, retry(&*transport, &received.delivery, wait)).await;
        }
        let first = case.complete_next(&transport).await;
        let second = case.complete_next(&transport).await;
        match (first.id(), second.id()) {
            ("short", "long") => return,
            ("long", "short") => {}
            others => panic!("other messages than expected came next: {others:?}"),
        }
    }
    panic!("{ROUNDS} times a wait of {SHORT:?} was over after one of {LONG:?} that began before it");
}

/// A wait that is longer than the broker can hold a message in one hop is made of several hops, and not cut short.
pub async fn a_wait_longer_than_one_hop_is_never_cut_short<H: Harness>(case: &Case<H>) {
    const WAIT: Duration = Duration::from_millis(700);
    // The core treats a shorter rest as a difference between clocks.
    const CLOCKS_DIFFER: Duration = Duration::from_millis(110);
    let mut needs = Needs::none();
    needs.waits.extend([SHORT, LONG]);
    let transport = case.started_with(needs).await;
    case.publish_ids(&["a"]).await;
    let received = case.next(&transport).await;
    let begun = Instant::now();
    let settlement = transport.plan(&received.delivery, Disposition::Retry(WAIT, failure()));
    case.settle(&transport, received.receipt, settlement).await;
    loop {
        let received = case.next(&transport).await;
        assert_eq!(received.delivery.attempt(), 2, "a hop is not an attempt");
        match wait_on::<H>(&transport, &received.delivery) {
            Some(settlement) => case.settle(&transport, received.receipt, settlement).await,
            None => break,
        }
    }
    let waited = begun.elapsed();
    assert!(waited + CLOCKS_DIFFER >= WAIT, "came back after {waited:?} instead of {WAIT:?}");
}

/// A waiting message is held by the broker: it comes back even if the transport that rescheduled it is dead.
pub async fn what_waits_survives_its_transport<H: Harness>(case: &Case<H>) {
    let first = case.started().await;
    case.publish_ids(&["a"]).await;
    let received = case.next(&first).await;
    // It must not come back to the transport that is about to die: the broker may count that as a failure.
    case.pause(&first).await;
    case.settle(&first, received.receipt, retry(&*first, &received.delivery, LONG)).await;
    case.kill(&first).await;
    let second = case.started().await;
    let again = case.complete_next(&second).await;
    assert_eq!((again.id(), again.attempt()), ("a", 2));
    case.nothing_is_left(&second).await;
}

fn wait_on<H: Harness>(transport: &StartedOf<H>, delivery: &Delivery) -> Option<Settlement> {
    let facts = transport.facts();
    let planning = Planning::new(transport.now(), &facts);
    Settlement::wait_on(delivery, &planning)
}
