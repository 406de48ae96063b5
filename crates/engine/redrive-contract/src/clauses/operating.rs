//! Operators' actions on shelves.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use redrive_core::shelves::{EntryHandle, Selection, ShelfReport, Shelved};
use redrive_core::transport::Settlement;
use redrive_core::{Count, Disposition, Failure, Reason, Shelf, Shelves, Transport, TransportError};
use tokio::time::timeout;

use crate::case::{Case, QUIET};
use crate::eventually::eventually;
use crate::harness::{Bench, Harness, StartedOf};
use crate::samples;

/// A shelf reports how many messages are on it.
pub async fn shelves_count<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    assert_eq!(count(&*shelves, Shelf::DeadLetter).await, 0);
    set_aside(case, &transport, &["a", "b", "c"], Shelf::DeadLetter, "Broken").await;
    set_aside(case, &transport, &["d"], Shelf::Parking, "Broken").await;
    counts(&*shelves, 3, 1).await;
}

/// Browsing shows the messages of a shelf with their histories, and leaves them there, as they are.
pub async fn browsing_leaves_everything<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    set_aside(case, &transport, &["a", "b", "c"], Shelf::DeadLetter, "Broken").await;
    let mut first = None;
    for _ in 0..3 {
        let shown = browse(&*shelves, Shelf::DeadLetter, 100).await;
        let mut shown: Vec<_> = shown.into_iter().map(|entry| (entry.message, entry.handle)).collect();
        shown.sort_by_key(|(message, _)| message.id().map(str::to_owned));
        assert_eq!(shown.iter().filter_map(|(message, _)| message.id()).collect::<Vec<_>>(), ["a", "b", "c"]);
        // A look is no change: not a count of the broker either.
        assert_eq!(first.get_or_insert_with(|| shown.clone()), &shown);
    }
    let shown = browse(&*shelves, Shelf::DeadLetter, 1).await;
    assert_eq!(shown[0].history.reason, Some(Reason::Custom("Broken".into())));
    assert_eq!(shown[0].broker_reason, None, "redrive put it there, and not the broker");
    counts(&*shelves, 3, 0).await;
}

/// Browsing shows no more entries than requested.
pub async fn browsing_keeps_to_its_limit<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    set_aside(case, &transport, &["a", "b", "c"], Shelf::Parking, "Broken").await;
    assert_eq!(browse(&*shelves, Shelf::Parking, 2).await.len(), 2);
    assert_eq!(browse(&*shelves, Shelf::Parking, 0).await.len(), 0);
    counts(&*shelves, 0, 3).await;
}

/// A scan passes on every entry of a shelf once, ends where it is told to, and leaves everything there.
pub async fn a_scan_passes_on_each_entry_once<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    set_aside(case, &transport, &["a", "b", "c"], Shelf::DeadLetter, "Broken").await;
    for (wanted, expected) in [(1, 1), (2, 2), (3, 3), (4, 3)] {
        let mut handles = HashSet::new();
        let mut passed = 0;
        let mut each = |entry: Shelved| {
            handles.insert(entry.handle);
            passed += 1;
            if passed == wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let scanned = shelves.scan(Shelf::DeadLetter, &mut each).await;
        scanned.unwrap_or_else(|error| panic!("scanning the shelf fails: {error}"));
        assert_eq!((passed, handles.len()), (expected, expected), "{handles:?}");
        let browsed = browse(&*shelves, Shelf::DeadLetter, 100).await;
        let browsed: HashSet<_> = browsed.into_iter().map(|entry| entry.handle).collect();
        assert!(handles.is_subset(&browsed), "{handles:?} of {browsed:?}");
    }
    counts(&*shelves, 3, 0).await;
}

/// A redrive of everything sends every message of the shelf back to the consumer, and empties the shelf.
pub async fn redrive_brings_everything_back<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    for shelf in [Shelf::DeadLetter, Shelf::Parking] {
        set_aside(case, &transport, &["a", "b", "c"], shelf, "Broken").await;
        assert_eq!(redrive(&*shelves, shelf, &Selection::All).await, 3);
        assert_eq!(case.complete_ids(&transport, 3).await, ["a", "b", "c"]);
        counts(&*shelves, 0, 0).await;
    }
    case.nothing_is_left(&transport).await;
}

/// A redrive by handle sends back those messages and leaves the others.
pub async fn redrive_by_handle_leaves_the_others<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    set_aside(case, &transport, &["a", "b", "c"], Shelf::DeadLetter, "Broken").await;
    let which = Selection::from(handle_of(&*shelves, Shelf::DeadLetter, "b").await);
    assert_eq!(redrive(&*shelves, Shelf::DeadLetter, &which).await, 1);
    case.complete_is(&transport, "b").await;
    case.nothing_is_left(&transport).await;
    let mut left = ids(&*shelves, Shelf::DeadLetter).await;
    left.sort();
    assert_eq!(left, ["a", "c"]);
}

/// A redrive by reason sends back the messages that failed for that reason and leaves the others.
pub async fn redrive_by_reason_leaves_the_others<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    set_aside(case, &transport, &["a"], Shelf::DeadLetter, "OutOfStock").await;
    set_aside(case, &transport, &["b"], Shelf::DeadLetter, "Broken").await;
    set_aside(case, &transport, &["c"], Shelf::DeadLetter, "OutOfStock").await;
    let which = Selection::Reason("OutOfStock".into());
    assert_eq!(redrive(&*shelves, Shelf::DeadLetter, &which).await, 2);
    assert_eq!(case.complete_ids(&transport, 2).await, ["a", "c"]);
    case.nothing_is_left(&transport).await;
    assert_eq!(ids(&*shelves, Shelf::DeadLetter).await, ["b"]);
}

/// A redriven message is a first attempt again; it carries how often it was redriven and its earlier history.
pub async fn redrive_starts_again_at_the_first_attempt<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    set_aside(case, &transport, &["a"], Shelf::DeadLetter, "Broken").await;
    for redrives in 1..=2 {
        assert_eq!(redrive(&*shelves, Shelf::DeadLetter, &Selection::All).await, 1);
        let received = case.next_is(&transport, "a").await;
        let history = received.delivery.history();
        assert_eq!((received.delivery.attempt(), received.delivery.broker_delivery_count()), (1, 1));
        assert_eq!(history.redrives, Count::Known(redrives));
        assert_eq!(history.past.len() as u32, redrives);
        move_to(case, &transport, received, Shelf::DeadLetter, "Broken").await;
        case.on_shelf(Shelf::DeadLetter, 1).await;
    }
}

/// A redriven message keeps its body, its properties, and its headers, each with its type.
pub async fn redrive_keeps_the_whole_message<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    case.publish(samples::full(&case.harness)).await;
    let received = case.next(&transport).await;
    move_to(case, &transport, received, Shelf::DeadLetter, "Broken").await;
    let shelved = case.on_shelf(Shelf::DeadLetter, 1).await;
    assert_eq!(redrive(&*shelves, Shelf::DeadLetter, &Selection::All).await, 1);
    let again = case.complete_next(&transport).await;
    samples::assert_same(again.message(), &redrive_core::transport::redriven(&shelved[0]));
}

/// A redrive reaches the consumer that failed, and no other subscriber of the original message.
pub async fn redrive_reaches_nobody_else<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    let Some(neighbour) = case.neighbour().await else {
        return case.does_not_apply("the harness has no other subscriber to offer");
    };
    set_aside(case, &transport, &["a"], Shelf::DeadLetter, "Broken").await;
    assert_eq!(redrive(&*shelves, Shelf::DeadLetter, &Selection::All).await, 1);
    case.complete_is(&transport, "a").await;
    // A message that the original publishing sent to the neighbour may arrive at any time: it was never redriven.
    while let Ok(received) = timeout(QUIET, neighbour.transport.receive()).await {
        let received = received.unwrap_or_else(|error| panic!("`receive` fails: {error}"));
        let received = received.unwrap_or_else(|| panic!("`receive` answers that there is no more"));
        let redrives = received.delivery.history().redrives;
        assert_eq!(redrives, Count::Known(0), "the redrive reached the neighbour too");
        case.settle(&neighbour.transport, received.receipt, Settlement::Complete).await;
    }
    neighbour.transport.close().await;
    neighbour.bench.tidy_up().await;
}

/// A redrive of nothing returns 0: from an empty shelf, and with an empty selection.
pub async fn redrive_of_nothing_answers_zero<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    assert_eq!(redrive(&*shelves, Shelf::DeadLetter, &Selection::All).await, 0);
    set_aside(case, &transport, &["a"], Shelf::DeadLetter, "Broken").await;
    for which in [Selection::handles([]), Selection::Reason("Other".into())] {
        assert_eq!(redrive(&*shelves, Shelf::DeadLetter, &which).await, 0, "{which:?}");
    }
    counts(&*shelves, 1, 0).await;
    case.nothing_is_left(&transport).await;
}

/// Parking moves the complete selected messages from the dead-letter shelf to the parking shelf.
pub async fn park_moves_to_the_parking_shelf<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    set_aside(case, &transport, &["a", "b"], Shelf::DeadLetter, "Broken").await;
    let before = case.on_shelf(Shelf::DeadLetter, 2).await;
    let which = Selection::from(handle_of(&*shelves, Shelf::DeadLetter, "a").await);
    assert_eq!(done(shelves.park(&which).await), 1);
    counts(&*shelves, 1, 1).await;
    let on_parking = case.on_shelf(Shelf::Parking, 1).await;
    let original = before.iter().find(|message| message.id() == Some("a"));
    samples::assert_same(&on_parking[0], original.expect("it was on the shelf"));
    case.nothing_is_left(&transport).await;
}

/// Discarding removes the selected messages for good and leaves the others.
pub async fn discard_removes_for_good<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    set_aside(case, &transport, &["a", "b", "c"], Shelf::DeadLetter, "Broken").await;
    let [a, c] = [
        handle_of(&*shelves, Shelf::DeadLetter, "a").await,
        handle_of(&*shelves, Shelf::DeadLetter, "c").await,
    ];
    assert_eq!(done(shelves.discard(Shelf::DeadLetter, &Selection::handles([a, c])).await), 2);
    counts(&*shelves, 1, 0).await;
    assert_eq!(ids(&*shelves, Shelf::DeadLetter).await, ["b"]);
    case.nothing_is_left(&transport).await;
}

pub(super) async fn with_shelves<H: Harness>(
    case: &Case<H>,
) -> Option<(Box<dyn Shelves>, Arc<StartedOf<H>>)> {
    let transport = case.started().await;
    let shelves = case.bench.shelves().await;
    let shelves = shelves.unwrap_or_else(|error| panic!("the harness makes no shelves: {error}"));
    if shelves.is_none() {
        case.does_not_apply("the harness has no `Shelves`");
    }
    Some((shelves?, transport))
}

/// Publishes messages and moves them onto a shelf, for this reason.
pub(super) async fn set_aside<H: Harness>(
    case: &Case<H>,
    transport: &StartedOf<H>,
    ids: &[&str],
    shelf: Shelf,
    reason: &str,
) {
    let before = case.read_shelf(shelf).await.len();
    case.publish_ids(ids).await;
    for id in ids {
        let received = case.next_is(transport, id).await;
        move_to(case, transport, received, shelf, reason).await;
    }
    case.on_shelf(shelf, before + ids.len()).await;
}

async fn move_to<H: Harness>(
    case: &Case<H>,
    transport: &StartedOf<H>,
    received: redrive_core::transport::Received<crate::ReceiptOf<H>>,
    shelf: Shelf,
    reason: &str,
) {
    let failure = Failure::custom(reason, "it does not work");
    let disposition = match shelf {
        Shelf::Parking => Disposition::Park(failure),
        _ => Disposition::DeadLetter(failure),
    };
    let settlement = transport.plan(&received.delivery, disposition);
    case.settle(transport, received.receipt, settlement).await;
}

async fn redrive(shelves: &dyn Shelves, shelf: Shelf, which: &Selection) -> u64 {
    done(shelves.redrive(shelf, which).await)
}

/// Returns how many entries were done; fails unless all were.
pub(super) fn done(report: Result<ShelfReport, TransportError>) -> u64 {
    report.and_then(ShelfReport::into_result).unwrap_or_else(|error| panic!("not all is done: {error}"))
}

pub(super) async fn browse(shelves: &dyn Shelves, shelf: Shelf, limit: usize) -> Vec<Shelved> {
    let shown = shelves.browse(shelf, None, limit).await;
    shown.unwrap_or_else(|error| panic!("browsing the {shelf} shelf fails: {error}")).entries
}

pub(super) async fn ids(shelves: &dyn Shelves, shelf: Shelf) -> Vec<String> {
    let shown = browse(shelves, shelf, 100).await;
    shown.iter().map(|entry| entry.message.id().unwrap_or_default().to_owned()).collect()
}

/// Returns the handle of the first entry whose message has this id.
pub(super) async fn handle_of(shelves: &dyn Shelves, shelf: Shelf, id: &str) -> EntryHandle {
    let shown = browse(shelves, shelf, 100).await;
    let found = shown.into_iter().find(|entry| entry.message.id() == Some(id));
    found.unwrap_or_else(|| panic!("`{id}` is not on the {shelf} shelf")).handle
}

async fn count(shelves: &dyn Shelves, shelf: Shelf) -> u64 {
    shelves.count(shelf).await.unwrap_or_else(|error| panic!("counting the {shelf} shelf fails: {error}"))
}

/// Checks the count of a shelf; a broker may update it with a short delay.
pub(super) async fn counts(shelves: &dyn Shelves, dead_letters: u64, parked: u64) {
    let what = format!("{dead_letters} dead letters and {parked} parked messages are counted");
    let expected = (dead_letters, parked);
    eventually(&what, async || {
        (count(shelves, Shelf::DeadLetter).await, count(shelves, Shelf::Parking).await) == expected
    })
    .await;
}
