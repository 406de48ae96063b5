//! Completing messages.

use redrive_core::Transport;
use redrive_core::transport::Settlement;

use crate::case::Case;
use crate::harness::Harness;

/// A completed message is gone for good: neither this transport nor the next one receives it again.
pub async fn complete_removes<H: Harness>(case: &Case<H>) {
    let first = case.started().await;
    case.publish_ids(&["a"]).await;
    case.complete_next(&first).await;
    case.nothing_is_left(&first).await;
    first.close().await;
    let second = case.started().await;
    case.nothing_is_left(&second).await;
}

/// Completing a message, in any order, affects no other delivery in flight.
pub async fn completing_one_leaves_the_others<H: Harness>(case: &Case<H>) {
    let first = case.started().await;
    case.publish_ids(&["a", "b", "c"]).await;
    let a = case.next_is(&first, "a").await;
    let b = case.next_is(&first, "b").await;
    let c = case.next_is(&first, "c").await;
    // The last one first: a cumulative acknowledgement would take the others along.
    case.settle(&first, c.receipt, Settlement::Complete).await;
    case.settle(&first, a.receipt, Settlement::Complete).await;
    case.kill(&first).await;
    drop(b.receipt);
    let second = case.started().await;
    case.complete_is(&second, "b").await;
}
