//! Several consumers, and many settlements at once.

use std::sync::Arc;

use futures::future::join_all;
use redrive_core::shelves::{EntryOutcome, Owner, Selection};
use redrive_core::transport::Settlement;
use redrive_core::{Message, Shelf, header_names};
use tokio::time::timeout;

use super::operating::{browse, ids, with_shelves};
use crate::case::{ARRIVAL, Case};
use crate::harness::Harness;
use crate::planning::{LONG, SHORT, needs, retry, shelve};

/// With two consumers on one queue each message goes to one of them, and none goes to both.
pub async fn two_consumers_share_without_doubles<H: Harness>(case: &Case<H>) {
    const MESSAGES: usize = 40;
    let mut few = needs();
    few.prefetch = 4;
    let both = [case.started_with(few.clone()).await, case.started_with(few).await];
    let ids = case.publish_many(MESSAGES).await;
    // Both hold their deliveries until everything is handed out: otherwise a duplicate could stay unnoticed.
    let mut seen = Vec::new();
    while seen.len() < MESSAGES {
        let received = tokio::select! {
            received = case.next(&both[0]) => (received, &both[0]),
            received = case.next(&both[1]) => (received, &both[1]),
        };
        seen.push(received.0.delivery.id().to_owned());
        case.settle(received.1, received.0.receipt, Settlement::Complete).await;
    }
    seen.sort();
    assert_eq!(seen, ids);
    case.nothing_comes(&both[0]).await;
    case.nothing_comes(&both[1]).await;
}

/// Two consumers with room for one delivery each get one each: neither starves the other.
pub async fn consumers_do_not_starve_each_other<H: Harness>(case: &Case<H>) {
    let mut one = needs();
    one.prefetch = 1;
    let first = case.started_with(one.clone()).await;
    let second = case.started_with(one).await;
    case.publish_ids(&["a", "b"]).await;
    let from_first = case.next(&first).await;
    let from_second = case.next(&second).await;
    assert_ne!(from_first.delivery.id(), from_second.delivery.id());
    case.settle(&first, from_first.receipt, Settlement::Complete).await;
    case.settle(&second, from_second.receipt, Settlement::Complete).await;
}

/// Two hundred settlements of all kinds, in progress at the same time: every message ends where its own settlement says.
pub async fn concurrent_settlements_end_at_the_right_place<H: Harness>(case: &Case<H>) {
    const MESSAGES: usize = 200;
    let transport = case.started().await;
    case.publish_many(MESSAGES).await;
    let mut work = Vec::new();
    for n in 0..MESSAGES {
        let received = case.next_is(&transport, &format!("m{n}")).await;
        let settlement = match n % 5 {
            0 => Settlement::Complete,
            1 => retry(&*transport, &received.delivery, SHORT),
            2 => shelve(&*transport, &received.delivery, Shelf::DeadLetter),
            3 => shelve(&*transport, &received.delivery, Shelf::Parking),
            _ => retry(&*transport, &received.delivery, LONG),
        };
        let transport = Arc::clone(&transport);
        work.push(async move {
            let settled = timeout(ARRIVAL, transport.settle(received.receipt, settlement)).await;
            match settled {
                Ok(settled) => settled.map_err(|refused| refused.error.to_string()),
                Err(_) => Err(format!("not within {ARRIVAL:?}")),
            }
        });
    }
    for settled in join_all(work.into_iter().map(tokio::spawn)).await {
        let settled = settled.expect("settling does not panic");
        assert_eq!(settled, Ok(()));
    }
    for (shelf, rest) in [(Shelf::DeadLetter, 2), (Shelf::Parking, 3)] {
        let shelved = case.on_shelf(shelf, MESSAGES / 5).await;
        let mut found: Vec<_> =
            shelved.iter().filter_map(|message| message.id()).map(str::to_owned).collect();
        found.sort();
        assert_eq!(found, ids_with(&[rest], MESSAGES), "on the {shelf} shelf");
    }
    let waited = ids_with(&[1, 4], MESSAGES);
    assert_eq!(case.complete_ids(&transport, waited.len()).await, waited);
    case.nothing_is_left(&transport).await;
}

/// Returns the ids of the messages whose number, modulo five, is one of `rests`, sorted as text.
fn ids_with(rests: &[usize], count: usize) -> Vec<String> {
    let mut ids: Vec<String> =
        (0..count).filter(|n| rests.contains(&(n % 5))).map(|n| format!("m{n}")).collect();
    ids.sort();
    ids
}

/// An entry that failed in a queue which does not share the shelf is shown, and no action takes it, by whatever it is selected.
pub async fn what_failed_in_another_queue_is_left_out<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    case.publish_ids(&["a", "b"]).await;
    for id in ["a", "b"] {
        let received = case.next_is(&transport, id).await;
        let mut settlement = shelve(&*transport, &received.delivery, Shelf::DeadLetter);
        if let (Settlement::Shelve { copy, .. }, "a") = (&mut settlement, id) {
            copy.headers_mut().insert(header_names::SOURCE_QUEUE, "of-somebody-else");
        }
        case.settle(&transport, received.receipt, settlement).await;
    }
    case.on_shelf(Shelf::DeadLetter, 2).await;
    let entries = browse(&*shelves, Shelf::DeadLetter, 10).await;
    let other = entries.iter().find(|entry| entry.message.id() == Some("a")).expect("it is shown");
    if other.owner == Owner::This {
        return case.does_not_apply("nobody can share the shelf");
    }
    assert_eq!((other.owner, other.failed_in.as_deref()), (Owner::Other, Some("of-somebody-else")));
    let word = Selection::Reason("RetryableError".into());
    for which in [&Selection::All, &word] {
        let report = shelves.park(which).await.unwrap_or_else(|error| panic!("parking fails: {error}"));
        assert_eq!((report.done(), report.left_out), (u64::from(*which == Selection::All), 1));
        assert!(report.into_result().is_ok(), "it is no failure");
        let report = shelves.redrive(Shelf::DeadLetter, which).await.expect("it begins");
        assert_eq!((report.entries.len(), report.left_out), (0, 1));
        let report = shelves.discard(Shelf::DeadLetter, which).await.expect("it begins");
        assert_eq!((report.entries.len(), report.left_out), (0, 1));
    }
    let handle = Selection::from(other.handle.clone());
    for report in [
        shelves.redrive(Shelf::DeadLetter, &handle).await,
        shelves.park(&handle).await,
        shelves.discard(Shelf::DeadLetter, &handle).await,
    ] {
        let EntryOutcome::Failed(error) = report.expect("it begins").entries.remove(0).outcome else {
            panic!("it belongs to another consumer")
        };
        assert!(error.to_string().contains("`of-somebody-else`"), "{error}");
    }
    shelves.replace(&other.handle, Message::new("edited")).await.expect_err("it belongs to another consumer");
    shelves
        .redrive_as(&other.handle, Message::new("edited"))
        .await
        .expect_err("it belongs to another consumer");
    assert_eq!(ids(&*shelves, Shelf::DeadLetter).await, ["a"]);
    assert_eq!(ids(&*shelves, Shelf::Parking).await, ["b"]);
    case.nothing_is_left(&transport).await;
}
