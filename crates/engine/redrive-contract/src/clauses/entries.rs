//! For operators: entries by their handles, with a result for each.

use std::collections::HashSet;

use redrive_core::shelves::{EntryHandle, EntryOutcome, ReportRequest, Selection, ShelfReport, Shelved};
use redrive_core::transport::Settlement;
use redrive_core::{Count, Message, Reason, Shelf, Transport, TransportError, TransportErrorKind};

use super::operating::{browse, counts, done, handle_of, ids, set_aside, with_shelves};
use crate::case::Case;
use crate::eventually::eventually;
use crate::harness::{Bench, Harness, Place, StartedOf};

/// If several entries have messages with the same id, an action affects exactly the named entry: not none, and not two.
pub async fn entries_of_one_id_are_acted_on_one_at_a_time<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    for id in ["a", "a", "b", "a"] {
        set_aside(case, &transport, &[id], Shelf::DeadLetter, "Broken").await;
    }
    let entries = browse(&*shelves, Shelf::DeadLetter, 10).await;
    let mut same = entries.iter().filter(|entry| entry.message.id() == Some("a"));
    let mut next = || Selection::from(same.next().expect("there are three").handle.clone());
    for _ in 0..2 {
        assert_eq!(done(shelves.redrive(Shelf::DeadLetter, &next()).await), 1);
        case.complete_is(&transport, "a").await;
        case.nothing_is_left(&transport).await;
    }
    assert_eq!(done(shelves.discard(Shelf::DeadLetter, &next()).await), 1);
    assert_eq!(ids(&*shelves, Shelf::DeadLetter).await, ["b"]);
}

/// A message without an id is an entry like any other.
pub async fn entries_without_an_id_have_handles<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    set_aside_as_they_are(case, &transport, &["one", "two", "three"]).await;
    let entries = browse(&*shelves, Shelf::DeadLetter, 10).await;
    let two = entries.iter().find(|entry| &entry.message.body()[..] == b"two").expect("it is there");
    assert_eq!(done(shelves.discard(Shelf::DeadLetter, &two.handle.clone().into()).await), 1);
    let mut left = bodies(&browse(&*shelves, Shelf::DeadLetter, 10).await);
    left.sort();
    assert_eq!(left, ["one", "three"]);
}

/// Each of several identical entries has its own handle. An action by that handle takes one of them, once.
pub async fn entries_alike_in_everything_are_acted_on_one_at_a_time<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    set_aside_as_they_are(case, &transport, &["same", "same", "same"]).await;
    let entries = browse(&*shelves, Shelf::DeadLetter, 10).await;
    let handles: Vec<_> = entries.iter().map(|entry| entry.handle.clone()).collect();
    assert_eq!(handles.iter().collect::<HashSet<_>>().len(), 3, "each has its own: {handles:?}");
    for (taken, handle) in handles.iter().enumerate() {
        let which = Selection::from(handle.clone());
        assert_eq!(done(shelves.discard(Shelf::DeadLetter, &which).await), 1, "{handle}");
        let again = only(shelves.discard(Shelf::DeadLetter, &which).await);
        assert!(matches!(again, EntryOutcome::NotFound), "{handle} takes another one: {again:?}");
        counts(&*shelves, 2 - taken as u64, 0).await;
    }
}

/// A handle that is printed and parsed names the same entry for another operator.
pub async fn a_handle_means_the_same_to_another_operator<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    set_aside(case, &transport, &["a", "b", "c"], Shelf::DeadLetter, "Broken").await;
    let printed = handle_of(&*shelves, Shelf::DeadLetter, "b").await.to_string();
    drop(shelves);
    let another = case.bench.shelves().await.expect("as before").expect("as before");
    let handle: EntryHandle = printed.parse().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(done(another.discard(Shelf::DeadLetter, &handle.into()).await), 1);
    let mut left = ids(&*another, Shelf::DeadLetter).await;
    left.sort();
    assert_eq!(left, ["a", "c"]);
}

/// A handle whose entry is gone is not found, and no other entry is affected instead.
pub async fn a_handle_of_an_entry_that_is_gone_is_not_found<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    for _ in 0..3 {
        set_aside(case, &transport, &["a"], Shelf::DeadLetter, "Broken").await;
    }
    let gone = handle_of(&*shelves, Shelf::DeadLetter, "a").await;
    assert_eq!(done(shelves.park(&gone.clone().into()).await), 1);
    counts(&*shelves, 2, 1).await;
    let made_up = EntryHandle::new(Shelf::DeadLetter, "made-up");
    let other = handle_of(&*shelves, Shelf::DeadLetter, "a").await;
    assert_ne!(other, gone);
    let which = Selection::handles([gone.clone(), other.clone(), made_up.clone()]);
    let report = shelves.discard(Shelf::DeadLetter, &which).await;
    let report = report.unwrap_or_else(|error| panic!("discarding fails: {error}"));
    assert_eq!((report.done(), report.entries.len()), (1, 3));
    for entry in &report.entries {
        match &entry.outcome {
            EntryOutcome::Done => assert_eq!(entry.handle, other),
            EntryOutcome::NotFound => assert!(entry.handle == gone || entry.handle == made_up),
            else_what => panic!("{}: {else_what:?}", entry.handle),
        }
    }
    let error = shelves.redrive_as(&gone, Message::new("edited")).await.expect_err("it is gone");
    assert_eq!(error.kind(), TransportErrorKind::NotFound, "{error}");
    counts(&*shelves, 1, 1).await;
    case.nothing_is_left(&transport).await;
}

/// A report names every entry that was done.
pub async fn a_report_names_every_entry<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    set_aside(case, &transport, &["a", "b", "c"], Shelf::DeadLetter, "Broken").await;
    let entries = browse(&*shelves, Shelf::DeadLetter, 10).await;
    let report = shelves.redrive(Shelf::DeadLetter, &Selection::All).await;
    let report = report.unwrap_or_else(|error| panic!("redriving fails: {error}"));
    assert!(report.stopped.is_none(), "{:?}", report.stopped);
    let named: HashSet<_> = report.entries.iter().map(|entry| (&entry.handle, entry.id.as_deref())).collect();
    let shown: HashSet<_> = entries.iter().map(|entry| (&entry.handle, entry.message.id())).collect();
    assert_eq!(named, shown);
    assert_eq!(report.done(), 3);
    assert_eq!(case.complete_ids(&transport, 3).await, ["a", "b", "c"]);
}

/// A message that a shelf refuses stays where it was, and the report says so.
pub async fn what_is_refused_stays_and_is_reported<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    set_aside(case, &transport, &["a", "b"], Shelf::DeadLetter, "Broken").await;
    if !case.set_writable(Place::Shelf(Shelf::Parking), false).await {
        return;
    }
    let report = shelves.park(&Selection::All).await;
    let report = report.unwrap_or_else(|error| panic!("the work does not begin: {error}"));
    assert_eq!(report.done(), 0);
    let failed = report.entries.iter().filter(|entry| matches!(entry.outcome, EntryOutcome::Failed(_)));
    assert!(failed.count() > 0 && report.into_result().is_err());
    let mut left = ids(&*shelves, Shelf::DeadLetter).await;
    left.sort();
    assert_eq!(left, ["a", "b"]);
    case.set_writable(Place::Shelf(Shelf::Parking), true).await;
    // Another operator: a channel that was refused once may keep being refused (RabbitMQ 3.10).
    let another = case.bench.shelves().await.expect("as before").expect("as before");
    eventually("both are parked", async || {
        let _ = another.park(&Selection::All).await;
        browse(&*another, Shelf::Parking, 10).await.len() == 2
    })
    .await;
}

/// A message that the queue refuses stays on the shelf when it is redriven, and the report says so: it is stored first, and only
/// then removed.
pub async fn a_redrive_that_is_refused_leaves_the_entry<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    set_aside(case, &transport, &["a", "b"], Shelf::DeadLetter, "Broken").await;
    transport.close().await;
    if !case.set_writable(Place::Queue, false).await {
        return;
    }
    let report = shelves.redrive(Shelf::DeadLetter, &Selection::All).await;
    let is_refused = report.map(|report| report.into_result().is_err()).unwrap_or(true);
    assert!(is_refused, "a redrive into a queue that refuses everything is said to be done");
    let mut left = ids(&*shelves, Shelf::DeadLetter).await;
    left.sort();
    assert_eq!(left, ["a", "b"], "what the queue refused is gone from the shelf");
    case.set_writable(Place::Queue, true).await;
    let after = case.started().await;
    // Another operator: a channel that was refused once may keep being refused (RabbitMQ 3.10).
    let another = case.bench.shelves().await.expect("as before").expect("as before");
    assert_eq!(done(another.redrive(Shelf::DeadLetter, &Selection::All).await), 2);
    assert_eq!(case.complete_ids(&after, 2).await, ["a", "b"]);
    case.nothing_is_left(&after).await;
}

/// A handle names no entry of a shelf that was deleted and created again, even if the broker counts from the beginning there.
pub async fn a_handle_of_a_shelf_that_was_recreated_is_not_found<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    set_aside(case, &transport, &["before"], Shelf::DeadLetter, "Broken").await;
    let before = handle_of(&*shelves, Shelf::DeadLetter, "before").await;
    let recreated = case.bench.recreate_shelf(Shelf::DeadLetter).await;
    let recreated =
        recreated.unwrap_or_else(|error| panic!("the harness does not create the shelf again: {error}"));
    if !case.applies_if(recreated, || "the harness cannot delete a shelf".to_owned()) {
        return;
    }
    set_aside(case, &transport, &["after"], Shelf::DeadLetter, "Broken").await;
    let another = case.bench.shelves().await.expect("as before").expect("as before");
    assert_eq!(ids(&*another, Shelf::DeadLetter).await, ["after"]);
    let outcome = only(another.discard(Shelf::DeadLetter, &before.clone().into()).await);
    assert!(matches!(outcome, EntryOutcome::NotFound), "{before} names another entry: {outcome:?}");
    assert_eq!(ids(&*another, Shelf::DeadLetter).await, ["after"]);
}

/// A handle of one shelf fails on the other, and is not reported as not found: its entry is where it was.
pub async fn a_handle_of_the_other_shelf_fails<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    for shelf in [Shelf::DeadLetter, Shelf::Parking] {
        set_aside(case, &transport, &["a"], shelf, "Broken").await;
    }
    let dead = Selection::from(handle_of(&*shelves, Shelf::DeadLetter, "a").await);
    let parked = Selection::from(handle_of(&*shelves, Shelf::Parking, "a").await);
    let outcomes = [
        only(shelves.redrive(Shelf::DeadLetter, &parked).await),
        only(shelves.redrive(Shelf::Parking, &dead).await),
        only(shelves.discard(Shelf::DeadLetter, &parked).await),
        only(shelves.discard(Shelf::Parking, &dead).await),
        only(shelves.park(&parked).await),
    ];
    for outcome in outcomes {
        let EntryOutcome::Failed(error) = outcome else { panic!("{outcome:?}") };
        assert_eq!(error.kind(), TransportErrorKind::Unsupported, "{error}");
    }
    counts(&*shelves, 1, 1).await;
    case.nothing_is_left(&transport).await;
}

/// The time of the oldest entry is that entry's time; an empty shelf has none.
pub async fn the_oldest_entry_tells_since_when_it_rests<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    let oldest = async || shelves.oldest(Shelf::DeadLetter).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(oldest().await, None);
    set_aside(case, &transport, &["a", "b"], Shelf::DeadLetter, "Broken").await;
    let entries = browse(&*shelves, Shelf::DeadLetter, 10).await;
    let times: Vec<_> = entries.iter().map(|entry| entry.shelved_at.expect("it is told")).collect();
    assert_eq!(oldest().await, times.into_iter().min());
}

/// An edited message replaces exactly its entry, keeps the entry's history, and can be redriven by its own handle.
pub async fn replace_removes_exactly_its_entry<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    for id in ["a", "a", "b"] {
        set_aside(case, &transport, &[id], Shelf::DeadLetter, "Broken").await;
    }
    let entry = handle_of(&*shelves, Shelf::DeadLetter, "a").await;
    let edited = edited(case);
    let replaced = shelves.replace(&entry, edited.clone()).await;
    let replaced = replaced.unwrap_or_else(|error| panic!("replacing fails: {error}"));
    let entries = browse(&*shelves, Shelf::DeadLetter, 10).await;
    let mut all = bodies(&entries);
    all.sort();
    assert_eq!(all, ["body of a", "body of b", "edited"], "exactly the entry is replaced");
    let stored = entries.iter().find(|entry| &entry.message.body()[..] == b"edited").expect("it is there");
    assert!(replaced.is_none_or(|handle| handle == stored.handle), "the handle is that of another entry");
    assert_eq!(stored.history.reason.as_ref().map(Reason::as_str), Some("Broken"), "its history is kept");
    let error = shelves.replace(&entry, edited).await.expect_err("it is gone");
    assert_eq!(error.kind(), TransportErrorKind::NotFound, "{error}");
    counts(&*shelves, 3, 0).await;
    assert_eq!(done(shelves.redrive(Shelf::DeadLetter, &stored.handle.clone().into()).await), 1);
    is_sent_back_as_edited(case, &transport).await;
    counts(&*shelves, 2, 0).await;
}

/// An edited message is sent back in place of exactly its entry, as a redrive of that entry.
pub async fn redrive_as_sends_the_edited_message<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    for id in ["a", "a", "b"] {
        set_aside(case, &transport, &[id], Shelf::DeadLetter, "Broken").await;
    }
    let entry = handle_of(&*shelves, Shelf::DeadLetter, "a").await;
    let edited = edited(case);
    shelves.redrive_as(&entry, edited).await.unwrap_or_else(|error| panic!("redriving fails: {error}"));
    is_sent_back_as_edited(case, &transport).await;
    let mut left = ids(&*shelves, Shelf::DeadLetter).await;
    left.sort();
    assert_eq!(left, ["a", "b"]);
}

/// A discarded message that is restored is on its shelf again, as it was; a broker that lets nobody write to the shelf says so.
pub async fn restore_undoes_a_discard<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    set_aside(case, &transport, &["a", "b"], Shelf::DeadLetter, "Broken").await;
    let entry = browse(&*shelves, Shelf::DeadLetter, 10).await.swap_remove(0);
    assert_eq!(done(shelves.discard(Shelf::DeadLetter, &entry.handle.clone().into()).await), 1);
    match shelves.restore(Shelf::DeadLetter, entry.message.clone()).await {
        Err(error) if error.kind() == TransportErrorKind::Unsupported => {
            return counts(&*shelves, 1, 0).await;
        }
        restored => restored.unwrap_or_else(|error| panic!("restoring fails: {error}")),
    }
    counts(&*shelves, 2, 0).await;
    let entries = browse(&*shelves, Shelf::DeadLetter, 10).await;
    let restored =
        entries.iter().find(|restored| restored.message.id() == entry.message.id()).expect("it is there");
    assert_eq!(restored.message.body(), entry.message.body());
    assert_eq!(restored.history, entry.history, "its history is kept");
    assert_eq!(done(shelves.redrive(Shelf::DeadLetter, &restored.handle.clone().into()).await), 1);
    case.complete_is(&transport, entry.message.id().expect("an id")).await;
}

/// What is told of the work queue is so: a consumer is counted, and messages that nobody receives.
pub async fn the_work_queue_is_told_as_it_is<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    case.publish_ids(&["a"]).await;
    case.complete_is(&transport, "a").await;
    let look = || async { shelves.work_queue().await.expect("the work queue is there") };
    eventually("one consumer", || async { matches!(look().await.consumers, None | Some(1)) }).await;
    transport.close().await;
    case.publish_ids(&["b", "c"]).await;
    eventually("two messages wait", || async { matches!(look().await.depth, None | Some(2)) }).await;
    eventually("no consumer", || async { matches!(look().await.consumers, None | Some(0)) }).await;
}

/// A redriven message asks for a report only where reports are collected; a report reaches the one who collects it, once.
pub async fn what_was_handled_is_reported<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    let reported =
        shelves.reported().await.unwrap_or_else(|error| panic!("collecting reports fails: {error}"));
    let Some(mut reported) = reported else {
        return case.does_not_apply("the shelves collect no reports");
    };
    let set_aside_is = async |id| {
        set_aside(case, &transport, &[id], Shelf::DeadLetter, "Broken").await;
        handle_of(&*shelves, Shelf::DeadLetter, id).await
    };
    let (a, b, c) = (set_aside_is("a").await, set_aside_is("b").await, set_aside_is("c").await);
    assert_eq!(done(shelves.redrive(Shelf::DeadLetter, &a.into()).await), 1);
    let received = case.complete_is(&transport, "a").await;
    assert_eq!(ReportRequest::of(received.message()), None, "nobody collects it");

    assert_eq!(done(reported.shelves.redrive(Shelf::DeadLetter, &b.clone().into()).await), 1);
    reported.shelves.redrive_as(&c, edited(case).with_id("c")).await.expect("it is redriven");
    assert_eq!(reported.reports.take().await.expect("reports"), []);
    for (id, entry) in [("b", b), ("c", c)] {
        let received = case.complete_is(&transport, id).await;
        let request = ReportRequest::of(received.message()).expect("it asks for a report");
        assert_eq!(request.entry(), &entry);
        request.report(&transport.publisher()).await.expect("it is reported");
        assert_eq!(reported.reports.take().await.expect("reports"), [entry]);
    }
    assert_eq!(reported.reports.take().await.expect("reports"), [], "each is told once");
}

fn edited<H: Harness>(case: &Case<H>) -> Message {
    let message = Message::new("edited").with_id("a").with_header("edited-by", "an operator");
    case.harness.as_published(message)
}

async fn is_sent_back_as_edited<H: Harness>(case: &Case<H>, transport: &StartedOf<H>) {
    let received = case.complete_is(transport, "a").await;
    assert_eq!(&received.message().body()[..], b"edited");
    assert!(received.message().headers().contains("edited-by"));
    assert_eq!((received.attempt(), received.history().redrives), (1, Count::Known(1)));
    assert_eq!(received.history().past.len(), 1, "what happened before is told");
    case.nothing_is_left(transport).await;
}

/// Puts messages onto the dead-letter shelf that have only a body.
pub(super) async fn set_aside_as_they_are<H: Harness>(
    case: &Case<H>,
    transport: &StartedOf<H>,
    bodies: &[&str],
) {
    let before = case.read_shelf(Shelf::DeadLetter).await.len();
    for body in bodies {
        let message = case.harness.as_published(Message::new(body.to_string()));
        case.publish(message.clone()).await;
        let received = case.next(transport).await;
        let settlement = Settlement::Shelve { shelf: Shelf::DeadLetter, copy: message };
        case.settle(transport, received.receipt, settlement).await;
    }
    case.on_shelf(Shelf::DeadLetter, before + bodies.len()).await;
}

pub(super) fn bodies(entries: &[Shelved]) -> Vec<String> {
    entries.iter().map(|entry| String::from_utf8_lossy(entry.message.body()).into_owned()).collect()
}

pub(super) fn only(report: Result<ShelfReport, TransportError>) -> EntryOutcome {
    let mut report = report.unwrap_or_else(|error| panic!("the work does not begin: {error}"));
    assert_eq!(report.entries.len(), 1);
    report.entries.remove(0).outcome
}
