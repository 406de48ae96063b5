//! Giving deliveries back.

use std::time::Duration;

use redrive_core::Transport;
use redrive_core::transport::Settlement;
use tokio::time::Instant;

use crate::case::{Case, LEASE, within_the_lease};
use crate::harness::Harness;
use crate::planning::{needs, retry};
use crate::samples;

/// A released message is redelivered, unchanged.
pub async fn release_gives_back<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish(samples::full(&case.harness)).await;
    let received = case.next(&transport).await;
    case.settle(&transport, received.receipt, Settlement::Release).await;
    let again = case.complete_next(&transport).await;
    samples::assert_same(again.message(), received.delivery.message());
    case.nothing_is_left(&transport).await;
}

/// Releasing a message raises the broker's delivery count only if the facts say so.
pub async fn release_counts_as_declared<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    let facts = transport.facts();
    if !facts.counting.deliveries {
        return case.does_not_apply("the facts say `counting.deliveries: false`");
    }
    case.publish_ids(&["a"]).await;
    for released_before in 0..3 {
        let received = case.next_is(&transport, "a").await;
        let expected = if facts.counting.releases { released_before + 1 } else { 1 };
        assert_eq!(received.delivery.broker_delivery_count(), expected, "after {released_before} releases");
        case.settle(&transport, received.receipt, Settlement::Release).await;
    }
}

/// Releasing costs no attempt, and changes nothing that is written on the message.
pub async fn release_costs_no_attempt<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    let received = case.next(&transport).await;
    let settlement = retry(&*transport, &received.delivery, Duration::ZERO);
    let hops = u32::from(settlement.stores_copy());
    case.settle(&transport, received.receipt, settlement).await;
    for _ in 0..3 {
        let received = case.next(&transport).await;
        assert_eq!((received.delivery.attempt(), received.delivery.history().copy_number), (2, hops));
        case.settle(&transport, received.receipt, Settlement::Release).await;
    }
}

/// A message that one consumer releases reaches another when the first is gone.
pub async fn what_is_released_reaches_others<H: Harness>(case: &Case<H>) {
    let first = case.started().await;
    case.publish_ids(&["a"]).await;
    let received = case.next(&first).await;
    case.settle(&first, received.receipt, Settlement::Release).await;
    first.close().await;
    let second = case.started().await;
    case.complete_is(&second, "a").await;
    case.nothing_is_left(&second).await;
}

/// Dropping a receipt gives the delivery back: the message is redelivered, without the transport being closed.
pub async fn a_dropped_receipt_comes_again<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    drop(case.next_is(&transport, "a").await);
    case.complete_is(&transport, "a").await;
    case.nothing_is_left(&transport).await;
}

/// A released message, and one whose receipt was dropped, come again at once: where the broker lends deliveries for a time, long
/// before that time is over.
pub async fn giving_back_does_not_wait_for_leases<H: Harness>(case: &Case<H>) {
    if !case.lease_for(LEASE).await {
        return;
    }
    let transport = case.started().await;
    case.publish_ids(&["a", "b"]).await;
    let a = case.next_is(&transport, "a").await;
    let b = case.next_is(&transport, "b").await;
    let given_back = Instant::now();
    case.settle(&transport, a.receipt, Settlement::Release).await;
    drop(b);
    assert_eq!(case.complete_ids(&transport, 2).await, ["a", "b"]);
    within_the_lease(given_back);
    case.nothing_is_left(&transport).await;
}

/// A message that is redelivered because its receipt was dropped is marked as redelivered, and no failure is counted.
pub async fn a_dropped_receipt_is_a_redelivery<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    drop(case.next_is(&transport, "a").await);
    let again = case.complete_is(&transport, "a").await;
    assert!(again.redelivered(), "a message that is redelivered is not marked as redelivered");
    // Brokers differ in whether it counts as a delivery; the count cannot exceed this one.
    assert!(again.broker_delivery_count() <= 2, "handed out {} times", again.broker_delivery_count());
    assert_eq!(again.attempt(), 1, "giving back is not a failure");
}

/// Dropping one receipt gives back no other delivery.
pub async fn a_dropped_receipt_leaves_the_others<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a", "b", "c"]).await;
    let a = case.next_is(&transport, "a").await;
    let b = case.next_is(&transport, "b").await;
    let c = case.next_is(&transport, "c").await;
    drop(b);
    case.settle(&transport, a.receipt, Settlement::Complete).await;
    case.settle(&transport, c.receipt, Settlement::Complete).await;
    case.complete_is(&transport, "b").await;
    case.nothing_is_left(&transport).await;
}

/// Receipts dropped all at once, from another thread, while deliveries come in: every message is redelivered.
pub async fn many_dropped_receipts_all_come_again<H: Harness>(case: &Case<H>) {
    const MESSAGES: usize = 50;
    let mut needs = needs();
    needs.prefetch = 60;
    let transport = case.started_with(needs).await;
    let ids = case.publish_many(MESSAGES).await;
    let mut held = Vec::new();
    for _ in 0..MESSAGES {
        held.push(case.next(&transport).await.receipt);
    }
    // Drops them on a thread without a runtime. A runtime thread waits for it, so that a paused clock stands still meanwhile.
    let dropped = tokio::task::spawn_blocking(|| std::thread::spawn(move || drop(held)).join().is_ok());
    assert_eq!(case.complete_ids(&transport, MESSAGES).await, ids);
    assert!(dropped.await.unwrap_or(false), "dropping a receipt panics outside of a runtime");
    case.nothing_is_left(&transport).await;
}
