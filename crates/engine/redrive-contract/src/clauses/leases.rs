//! For operators: work in many steps on a shelf that others leave alone meanwhile.

use redrive_core::shelves::{EntryOutcome, Selection};
use redrive_core::{Shelf, TransportErrorKind};

use super::entries::only;
use super::operating::{browse, counts, done, ids, set_aside, with_shelves};
use crate::case::Case;
use crate::eventually::eventually;
use crate::harness::Harness;

/// A shelf is leased to one client at a time, until the end of the lease or its drop.
pub async fn a_shelf_is_leased_to_one<H: Harness>(case: &Case<H>) {
    let Some((shelves, _transport)) = with_shelves(case).await else { return };
    let lease = async |shelf| shelves.lease(shelf).await;
    let Some(first) = lease(Shelf::DeadLetter).await.unwrap_or_else(|error| panic!("leasing fails: {error}"))
    else {
        return case.does_not_apply("the shelves have no leases");
    };
    let refused = lease(Shelf::DeadLetter).await.expect_err("somebody has it");
    assert_eq!(refused.kind(), TransportErrorKind::Locked, "{refused}");
    lease(Shelf::Parking).await.expect("it is another shelf");
    first.lease.end().await;
    let second = lease(Shelf::DeadLetter).await.expect("the first has ended").expect("leased");
    drop(first);
    let refused = lease(Shelf::DeadLetter).await.expect_err("the drop of the first ends no other");
    assert_eq!(refused.kind(), TransportErrorKind::Locked, "{refused}");
    drop(second);
    eventually("the dropped lease ends", || async { lease(Shelf::DeadLetter).await.is_ok() }).await;
}

/// Work in steps does what work in one step does, whatever the order of the entries is. At the end everything else is there, in its
/// order.
pub async fn a_leased_shelf_is_worked_on_in_steps<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    const IDS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    for id in IDS {
        set_aside(case, &transport, &[id], Shelf::DeadLetter, "Broken").await;
    }
    let entries = browse(&*shelves, Shelf::DeadLetter, 10).await;
    let handle = |id| {
        let entry = entries.iter().find(|entry| entry.message.id() == Some(id)).expect("it is there");
        Selection::from(entry.handle.clone())
    };
    let Some(leased) = shelves.lease(Shelf::DeadLetter).await.expect("leased") else {
        return case.does_not_apply("the shelves have no leases");
    };
    let work = &leased.shelves;
    assert_eq!(done(work.discard(Shelf::DeadLetter, &handle("b")).await), 1);
    assert_eq!(done(work.redrive(Shelf::DeadLetter, &handle("d")).await), 1, "behind the first");
    case.complete_is(&transport, "d").await;
    eventually("all are counted or held", || async {
        let counted = shelves.count(Shelf::DeadLetter).await.expect("counted");
        counted + leased.lease.held() == 4
    })
    .await;
    leased.lease.pause().await;
    assert_eq!(leased.lease.held(), 0);
    counts(&*shelves, 4, 0).await;
    assert_eq!(done(work.redrive(Shelf::DeadLetter, &handle("a")).await), 1, "before the others");
    case.complete_is(&transport, "a").await;
    let gone = only(work.discard(Shelf::DeadLetter, &handle("b")).await);
    assert!(matches!(gone, EntryOutcome::NotFound), "{gone:?}");
    assert_eq!(done(work.park(&handle("f")).await), 1);
    leased.lease.end().await;
    assert_eq!(leased.lease.held(), 0);
    assert_eq!(ids(&*shelves, Shelf::DeadLetter).await, ["c", "e"]);
    counts(&*shelves, 2, 1).await;
}
