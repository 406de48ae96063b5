//! Loss of deliveries while the connection lives.

use std::collections::BTreeSet;

use redrive_core::transport::Settlement;
use tokio::time::timeout;

use crate::case::{ARRIVAL, Case, QUIET};
use crate::harness::Harness;
use crate::planning::{SHORT, copied};

/// A delivery that is lost while it is handled is reported (`lost`): its handler is then dropped. Settling it fails with
/// [`Lost`](redrive_core::TransportErrorKind::Lost), the message is redelivered, and no attempt is charged.
pub async fn a_lost_delivery_says_so<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    let held = case.next_is(&transport, "a").await;
    let lost = transport.lost(&held.receipt);
    if !case.lose(&transport, &held.delivery).await {
        return case
            .does_not_apply("the harness cannot take a delivery out of the hand of a living transport");
    }
    let told = timeout(ARRIVAL, lost).await;
    assert!(told.is_ok(), "a delivery was lost, and `lost` does not say so");
    case.settle_is_lost(&transport, held.receipt, Settlement::Complete).await;
    assert_eq!(case.complete_is(&transport, "a").await.attempt(), 1, "a loss is not a failure");
    case.nothing_is_left(&transport).await;
}

/// An error of a settlement that says that the copy is stored tells the truth, also after a loss: the consumer does not handle the
/// message again when it is redelivered.
pub async fn a_copy_that_is_claimed_after_a_loss_is_stored<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    let held = case.next_is(&transport, "a").await;
    if !case.lose(&transport, &held.delivery).await {
        return case
            .does_not_apply("the harness cannot take a delivery out of the hand of a living transport");
    }
    let settlement = copied(&*transport, &held.delivery, SHORT);
    let is_claimed = case.settle_is_lost(&transport, held.receipt, settlement).await;
    let mut expected = BTreeSet::from([0]);
    if is_claimed {
        expected.insert(1);
    }
    while !expected.is_empty() {
        let copy_number = case.complete_is(&transport, "a").await.history().copy_number;
        expected.remove(&copy_number);
    }
}

/// Losing one delivery loses no other, and reports no other as lost.
pub async fn losing_one_leaves_the_others<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a", "b"]).await;
    let a = case.next_is(&transport, "a").await;
    let b = case.next_is(&transport, "b").await;
    let (a_lost, b_lost) = (transport.lost(&a.receipt), transport.lost(&b.receipt));
    if !case.lose(&transport, &a.delivery).await {
        return case
            .does_not_apply("the harness cannot take a delivery out of the hand of a living transport");
    }
    assert!(timeout(ARRIVAL, a_lost).await.is_ok(), "a delivery was lost, and `lost` does not say so");
    assert!(timeout(QUIET, b_lost).await.is_err(), "`lost` says so of a delivery that is in flight");
    case.settle(&transport, b.receipt, Settlement::Complete).await;
    drop(a);
    case.complete_is(&transport, "a").await;
    case.nothing_is_left(&transport).await;
}
