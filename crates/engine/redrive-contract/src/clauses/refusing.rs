//! Places that cannot be written.

use std::sync::Arc;

use redrive_core::transport::Settlement;
use redrive_core::{Delivery, Shelf, Transport, TransportError, TransportErrorKind};

use crate::case::Case;
use crate::harness::{Harness, Place, ReceiptOf, StartedOf};
use crate::planning::{SHORT, copied, shelve};

/// A move to a shelf that cannot be written is refused as [`Unroutable`](TransportErrorKind::Unroutable) or
/// [`Full`](TransportErrorKind::Full), and gives the receipt back: the delivery is still in flight.
pub async fn an_unwritable_shelf_refuses_the_move<H: Harness>(case: &Case<H>) {
    for shelf in [Shelf::DeadLetter, Shelf::Parking] {
        let Some(Refused { transport, error, receipt, .. }) = refused_move(case, shelf, &["a"]).await else {
            return;
        };
        let refusals = [TransportErrorKind::Unroutable, TransportErrorKind::Full];
        assert!(refusals.contains(&error.kind()), "{:?}: {error}", error.kind());
        assert!(error.to_string().len() > 20, "the error does not say what to do: {error}");
        case.settle(&transport, receipt, Settlement::Complete).await;
        case.nothing_is_left(&transport).await;
        case.set_writable(Place::Shelf(shelf), true).await;
        // The next transport must not have to share.
        transport.close().await;
    }
}

/// The receipt that a refused settlement gave back settles the delivery once the shelf can be written again.
pub async fn a_refused_move_can_be_tried_again<H: Harness>(case: &Case<H>) {
    let Some(refused) = refused_move(case, Shelf::DeadLetter, &["a"]).await else { return };
    let Refused { transport, settlement, receipt, .. } = refused;
    let (_, receipt) = case.settle_is_refused(&transport, receipt, settlement.clone()).await;
    case.set_writable(Place::Shelf(Shelf::DeadLetter), true).await;
    case.settle(&transport, receipt, settlement).await;
    assert_eq!(case.on_shelf(Shelf::DeadLetter, 1).await[0].id(), Some("a"));
    case.nothing_is_left(&transport).await;
}

/// While the shelf cannot be written, no message is removed: the message is redelivered when the process dies.
pub async fn a_refused_move_removes_nothing<H: Harness>(case: &Case<H>) {
    let Some(refused) = refused_move(case, Shelf::DeadLetter, &["a"]).await else { return };
    case.kill(&refused.transport).await;
    drop(refused.receipt);
    case.set_writable(Place::Shelf(Shelf::DeadLetter), true).await;
    let second = case.started().await;
    case.complete_is(&second, "a").await;
    case.nothing_is_left(&second).await;
    assert!(case.read_shelf(Shelf::DeadLetter).await.is_empty(), "a refused copy was stored all the same");
}

/// A shelf that cannot be written blocks no other settlement.
pub async fn an_unwritable_shelf_holds_up_nothing_else<H: Harness>(case: &Case<H>) {
    let Some(refused) = refused_move(case, Shelf::DeadLetter, &["a", "b", "c"]).await else { return };
    let Refused { transport, settlement, receipt, .. } = refused;
    let b = case.next_is(&transport, "b").await;
    case.settle(&transport, b.receipt, shelve(&*transport, &b.delivery, Shelf::Parking)).await;
    case.complete_is(&transport, "c").await;
    assert_eq!(case.on_shelf(Shelf::Parking, 1).await[0].id(), Some("b"));
    case.set_writable(Place::Shelf(Shelf::DeadLetter), true).await;
    case.settle(&transport, receipt, settlement).await;
    case.nothing_is_left(&transport).await;
}

/// Dropping the receipt of a refused settlement gives the delivery back.
pub async fn a_refused_receipt_gives_back_when_dropped<H: Harness>(case: &Case<H>) {
    let Some(refused) = refused_move(case, Shelf::DeadLetter, &["a"]).await else { return };
    drop(refused.receipt);
    case.complete_is(&refused.transport, "a").await;
    case.set_writable(Place::Shelf(Shelf::DeadLetter), true).await;
    case.nothing_is_left(&refused.transport).await;
}

/// A retry whose copy cannot be stored is refused, and gives the receipt back: the transport waits for the broker's confirmation.
/// The receipt settles the delivery once the copy can be stored.
pub async fn a_retry_that_cannot_be_stored_is_refused<H: Harness>(case: &Case<H>) {
    let Some(refused) = refused_retry(case, &["a", "b"]).await else { return };
    let Refused { transport, settlement, receipt, .. } = refused;
    case.complete_is(&transport, "b").await;
    case.set_writable(Place::Waiting, true).await;
    case.settle(&transport, receipt, settlement).await;
    assert_eq!(case.complete_is(&transport, "a").await.attempt(), 2);
    case.nothing_is_left(&transport).await;
}

/// While copies cannot be stored, a retry removes nothing: the message itself is redelivered when the process dies.
pub async fn a_refused_retry_removes_nothing<H: Harness>(case: &Case<H>) {
    let Some(refused) = refused_retry(case, &["a"]).await else { return };
    case.kill(&refused.transport).await;
    drop(refused.receipt);
    case.set_writable(Place::Waiting, true).await;
    let second = case.started().await;
    assert_eq!(case.complete_is(&second, "a").await.history().copy_number, 0);
    case.nothing_is_left(&second).await;
}

/// A delivery in flight whose copy was refused.
struct Refused<H: Harness> {
    transport: Arc<StartedOf<H>>,
    settlement: Settlement,
    error: TransportError,
    receipt: ReceiptOf<H>,
}

/// Makes the shelf unwritable, publishes messages with these ids and tries to move the first of them. `None`: the clause does not
/// apply.
async fn refused_move<H: Harness>(case: &Case<H>, shelf: Shelf, ids: &[&str]) -> Option<Refused<H>> {
    let transport = case.started().await;
    refused(case, transport, Place::Shelf(shelf), ids, |transport, delivery| {
        shelve(transport, delivery, shelf)
    })
    .await
}

/// The same, for a retry and the place where copies wait.
async fn refused_retry<H: Harness>(case: &Case<H>, ids: &[&str]) -> Option<Refused<H>> {
    let transport = case.started().await;
    refused(case, transport, Place::Waiting, ids, |transport, delivery| copied(transport, delivery, SHORT))
        .await
}

async fn refused<H: Harness>(
    case: &Case<H>,
    transport: Arc<StartedOf<H>>,
    place: Place,
    ids: &[&str],
    settlement: impl FnOnce(&StartedOf<H>, &Delivery) -> Settlement,
) -> Option<Refused<H>> {
    // Where copies wait may be the queue itself.
    case.publish_ids(ids).await;
    let received = case.next_is(&transport, ids[0]).await;
    if !case.set_writable(place, false).await {
        return None;
    }
    let settlement = settlement(&transport, &received.delivery);
    let (error, receipt) = case.settle_is_refused(&transport, received.receipt, settlement.clone()).await;
    Some(Refused { transport, settlement, error, receipt })
}
