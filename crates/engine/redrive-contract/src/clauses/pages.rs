//! For operators: a shelf page by page.

use std::collections::HashSet;
use std::ops::ControlFlow;

use redrive_core::shelves::{Selection, ShelfCursor, Shelved};
use redrive_core::{Shelf, Shelves, TransportErrorKind};

use super::entries::{bodies, set_aside_as_they_are};
use super::operating::{browse, counts, done, set_aside, with_shelves};
use crate::case::Case;
use crate::harness::Harness;

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
