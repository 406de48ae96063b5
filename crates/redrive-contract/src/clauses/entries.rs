//! For operators: entries by their handles, page by page, with a result for each.

use std::collections::HashSet;
use std::ops::ControlFlow;

use redrive_core::{
    Count, EntryHandle, EntryOutcome, Message, Reason, ReportRequest, Selection, Settlement, Shelf,
    ShelfCursor, ShelfReport, Shelved, Shelves, Transport, TransportError, TransportErrorKind,
};

use super::operating::{browse, counts, done, handle_of, ids, set_aside, with_shelves};
use crate::case::Case;
use crate::eventually::eventually;
use crate::harness::{Bench, Harness, StartedOf};

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
    if !case.set_shelf_writable(Shelf::Parking, false).await {
        return case.does_not_apply("the harness cannot make a shelf unwritable");
    }
    let report = shelves.park(&Selection::All).await;
    let report = report.unwrap_or_else(|error| panic!("the work does not begin: {error}"));
    assert_eq!(report.done(), 0);
    let failed = report.entries.iter().filter(|entry| matches!(entry.outcome, EntryOutcome::Failed(_)));
    assert!(failed.count() > 0 && report.into_result().is_err());
    let mut left = ids(&*shelves, Shelf::DeadLetter).await;
    left.sort();
    assert_eq!(left, ["a", "b"]);
    case.set_shelf_writable(Shelf::Parking, true).await;
    // Another operator: a channel that was refused once may keep being refused (RabbitMQ 3.10).
    let another = case.bench.shelves().await.expect("as before").expect("as before");
    eventually("both are parked", async || {
        let _ = another.park(&Selection::All).await;
        browse(&*another, Shelf::Parking, 10).await.len() == 2
    })
    .await;
}

/// Entries of a shelf that everybody looks at keep their order, their handles and their content, whether a look ends early or not.
pub async fn browsing_many_times_changes_nothing<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    let bodies: Vec<_> = (0..100).map(|number| number.to_string()).collect();
    set_aside_as_they_are(case, &transport, &bodies.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let shown =
        |entries: Vec<Shelved>| entries.into_iter().map(|entry| (entry.handle, entry.message.body().clone()));
    let before: Vec<_> = shown(browse(&*shelves, Shelf::DeadLetter, 200).await).collect();
    let looks = std::env::var("REDRIVE_TEST_LOOKS").map_or(5, |looks| looks.parse().expect("a number"));
    for look in 0..looks {
        let limit = [1, 7, 99, 100, 101][look % 5];
        let first: Vec<_> = shown(browse(&*shelves, Shelf::DeadLetter, limit).await).collect();
        assert_eq!(first, before[..limit.min(100)], "look {look} at {limit}");
        let mut left = 3 + look % 4;
        let stop_early = &mut |_| {
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        shelves.scan(Shelf::DeadLetter, stop_early).await.expect("it can be read");
    }
    let after: Vec<_> = shown(browse(&*shelves, Shelf::DeadLetter, 200).await).collect();
    assert_eq!(after, before);
    counts(&*shelves, 100, 0).await;
}

/// Paging shows every entry once.
pub async fn pages_show_every_entry_once<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    set_aside(case, &transport, &["a", "b", "c", "d", "a"], Shelf::DeadLetter, "Broken").await;
    set_aside_as_they_are(case, &transport, &["same", "same"]).await;
    for limit in [1, 3, 7, 8] {
        let pages = pages(&*shelves, limit, async |_| {}).await;
        let last = pages.len() - 1;
        assert!(pages[..last].iter().all(|page| page.len() == limit), "only the last one is shorter");
        let handles: HashSet<_> = pages.iter().flatten().map(|entry| &entry.handle).collect();
        assert_eq!((handles.len(), pages.concat().len()), (7, 7), "in pages of {limit}");
    }
    let mut all = bodies(&pages(&*shelves, 2, async |_| {}).await.concat());
    all.sort();
    let of = ["body of a", "body of a", "body of b", "body of c", "body of d", "same", "same"];
    assert_eq!(all, of);
}

/// Entries that are removed during paging hide no other entry.
pub async fn pages_leave_nothing_out_when_entries_go<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    set_aside(case, &transport, &["a", "b", "c", "d", "e"], Shelf::DeadLetter, "Broken").await;
    let pages = pages(&*shelves, 2, async |page: &[Shelved]| {
        let which = Selection::handles(page.iter().map(|entry| entry.handle.clone()));
        assert_eq!(done(shelves.discard(Shelf::DeadLetter, &which).await), page.len() as u64);
    });
    let pages = pages.await;
    let mut all: Vec<_> =
        pages.iter().flatten().map(|entry| entry.message.id().unwrap_or_default()).collect();
    all.sort_unstable();
    assert_eq!(all, ["a", "b", "c", "d", "e"]);
    counts(&*shelves, 0, 0).await;
}

/// A cursor of one shelf is refused on the other, whatever is on that shelf.
pub async fn a_cursor_of_the_other_shelf_is_refused<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    for shelf in [Shelf::DeadLetter, Shelf::Parking] {
        set_aside(case, &transport, &["a", "b"], shelf, "Broken").await;
    }
    for (shelf, other) in [(Shelf::DeadLetter, Shelf::Parking), (Shelf::Parking, Shelf::DeadLetter)] {
        let page = shelves.browse(shelf, None, 1).await.unwrap_or_else(|error| panic!("{error}"));
        let cursor = page.next.expect("there is another entry");
        let cursor: ShelfCursor = cursor.to_string().parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(cursor.shelf(), shelf);
        for limit in [0, 1] {
            let refused =
                shelves.browse(other, Some(&cursor), limit).await.expect_err("it is of the other shelf");
            assert_eq!(refused.kind(), TransportErrorKind::Unsupported, "{refused}");
        }
        let rest = shelves.browse(shelf, Some(&cursor), 2).await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((rest.entries.len(), rest.next.is_some()), (1, false));
    }
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

/// A page with a limit of 0 is empty, and the next one begins at the same position: nothing is skipped.
pub async fn an_empty_page_skips_nothing<H: Harness>(case: &Case<H>) {
    let Some((shelves, transport)) = with_shelves(case).await else { return };
    set_aside(case, &transport, &["a", "b", "c"], Shelf::DeadLetter, "Broken").await;
    let all = browse(&*shelves, Shelf::DeadLetter, 10).await;
    let (mut shown, mut after) = (Vec::new(), None);
    while shown.len() < all.len() {
        let page = async |after: Option<&ShelfCursor>, limit| {
            let page = shelves.browse(Shelf::DeadLetter, after, limit).await;
            page.unwrap_or_else(|error| panic!("browsing fails: {error}"))
        };
        let empty = page(after.as_ref(), 0).await;
        assert!(empty.entries.is_empty());
        let next = empty.next.expect("the page after an empty one").to_string().parse().expect("a cursor");
        let one = page(Some(&next), 1).await;
        assert_eq!(one.entries.len(), 1);
        shown.extend(one.entries.into_iter().map(|entry| entry.handle));
        assert!(one.next.is_some() || shown.len() == all.len(), "the pages end before the shelf does");
        after = one.next;
    }
    let mut all: Vec<_> = all.into_iter().map(|entry| entry.handle).collect();
    all.sort();
    shown.sort();
    assert_eq!(shown, all);
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
async fn set_aside_as_they_are<H: Harness>(case: &Case<H>, transport: &StartedOf<H>, bodies: &[&str]) {
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

/// Returns all pages of the dead-letter shelf, and calls `then` with each. Prints and parses the cursor in between.
async fn pages(shelves: &dyn Shelves, limit: usize, then: impl AsyncFn(&[Shelved])) -> Vec<Vec<Shelved>> {
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let page = shelves.browse(Shelf::DeadLetter, after.as_ref(), limit).await;
        let page = page.unwrap_or_else(|error| panic!("browsing fails: {error}"));
        assert!(page.entries.len() <= limit);
        then(&page.entries).await;
        pages.push(page.entries);
        assert!(pages.len() < 100, "there is no last page");
        let Some(next) = page.next else { return pages };
        after = Some(next.to_string().parse().expect("a cursor"));
    }
}

fn bodies(entries: &[Shelved]) -> Vec<String> {
    entries.iter().map(|entry| String::from_utf8_lossy(entry.message.body()).into_owned()).collect()
}

fn only(report: Result<ShelfReport, TransportError>) -> EntryOutcome {
    let mut report = report.unwrap_or_else(|error| panic!("the work does not begin: {error}"));
    assert_eq!(report.entries.len(), 1);
    report.entries.remove(0).outcome
}
