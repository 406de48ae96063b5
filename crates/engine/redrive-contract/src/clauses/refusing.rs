//! Shelves that cannot be written.

use std::sync::Arc;

use redrive_core::transport::Settlement;
use redrive_core::{Shelf, Transport, TransportError, TransportErrorKind};

use crate::case::Case;
use crate::harness::{Harness, ReceiptOf, StartedOf};
use crate::planning::shelve;

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
        case.set_shelf_writable(shelf, true).await;
        // The next transport must not have to share.
        transport.close().await;
    }
}

/// The receipt that a refused settlement gave back settles the delivery once the shelf can be written again.
pub async fn a_refused_move_can_be_tried_again<H: Harness>(case: &Case<H>) {
    let Some(refused) = refused_move(case, Shelf::DeadLetter, &["a"]).await else { return };
    let Refused { transport, settlement, receipt, .. } = refused;
    let (_, receipt) = case.settle_is_refused(&transport, receipt, settlement.clone()).await;
    case.set_shelf_writable(Shelf::DeadLetter, true).await;
    case.settle(&transport, receipt, settlement).await;
    assert_eq!(case.on_shelf(Shelf::DeadLetter, 1).await[0].id(), Some("a"));
    case.nothing_is_left(&transport).await;
}

/// While the shelf cannot be written, no message is removed: the message is redelivered when the process dies.
pub async fn a_refused_move_removes_nothing<H: Harness>(case: &Case<H>) {
    let Some(refused) = refused_move(case, Shelf::DeadLetter, &["a"]).await else { return };
    case.kill(&refused.transport).await;
    drop(refused.receipt);
    case.set_shelf_writable(Shelf::DeadLetter, true).await;
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
    case.set_shelf_writable(Shelf::DeadLetter, true).await;
    case.settle(&transport, receipt, settlement).await;
    case.nothing_is_left(&transport).await;
}

/// Dropping the receipt of a refused settlement gives the delivery back.
pub async fn a_refused_receipt_gives_back_when_dropped<H: Harness>(case: &Case<H>) {
    let Some(refused) = refused_move(case, Shelf::DeadLetter, &["a"]).await else { return };
    drop(refused.receipt);
    case.complete_is(&refused.transport, "a").await;
    case.set_shelf_writable(Shelf::DeadLetter, true).await;
    case.nothing_is_left(&refused.transport).await;
}

/// A delivery in flight that cannot be moved to its shelf.
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
    if !case.set_shelf_writable(shelf, false).await {
        case.does_not_apply("the harness cannot make a shelf unwritable");
        return None;
    }
    case.publish_ids(ids).await;
    let received = case.next_is(&transport, ids[0]).await;
    let settlement = shelve(&*transport, &received.delivery, shelf);
    let (error, receipt) = case.settle_is_refused(&transport, received.receipt, settlement.clone()).await;
    Some(Refused { transport, settlement, error, receipt })
}
