//! Views of a shelf in process.

use std::time::{Duration, SystemTime};

use redrive_core::shelves::{EntryHandle, Shelved};
use redrive_core::{BoxError, Message, Shelf, Shelves, header_names as names};
use redrive_memory::MemoryBroker;
use redrive_ops::{Filter, ShelfView, SnapshotOptions, TrendOptions, ViewOptions, snapshot};

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
}

/// Creates a shelf with this many orders that failed, each with a body of 1 KiB.
async fn shelf(entries: u64) -> Result<impl Shelves, BoxError> {
    use redrive_consumer::Consumer;
    use redrive_core::{Delivery, Disposition, Failure};

    let broker = MemoryBroker::new();
    for order in 0..entries {
        broker.publish("orders", Message::new(vec![b'x'; 1024]).with_id(order.to_string()))?;
    }
    let handler = |delivery: Delivery| async move {
        let text = format!("no stock for order {}", delivery.id());
        Disposition::DeadLetter(Failure::custom("OutOfStock", text))
    };
    let done = async {
        while broker.depth("orders") > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    Consumer::new(broker.transport("orders")).handler(handler).run_until(done).await?;
    Ok(broker.shelves("orders"))
}

/// Creates an entry that was shelved at this time.
fn entry(seconds: u64, error: &str) -> Shelved {
    let message = Message::new("").with_header(names::REASON, "Broken").with_header(names::ERROR, error);
    let mut entry = Shelved::new(EntryHandle::new(Shelf::DeadLetter, seconds.to_string()), message);
    entry.shelved_at = Some(at(seconds));
    entry
}

/// More entries than one page of a scan.
const ENTRIES: usize = 600;

#[tokio::test(start_paused = true)]
async fn a_view_has_every_entry_once_and_the_summary_of_a_snapshot() -> Result<(), BoxError> {
    let shelves = shelf(ENTRIES as u64).await?;
    let view = ShelfView::read(&shelves, Shelf::DeadLetter, &ViewOptions::new(), at(100)).await?;
    assert_eq!((view.shelf(), view.taken_at(), view.is_truncated()), (Shelf::DeadLetter, at(100), false));
    let ids: Vec<_> = view.entries().iter().map(|it| it.entry.message.id().map(str::to_owned)).collect();
    assert_eq!(ids, (0..ENTRIES).map(|id| Some(id.to_string())).collect::<Vec<_>>());
    let options = SnapshotOptions::new();
    assert_eq!(view.entries().summary(&options), snapshot(&shelves, Shelf::DeadLetter, &options).await?);
    assert_eq!(shelves.count(Shelf::DeadLetter).await?, ENTRIES as u64, "looking changes nothing");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_view_ends_at_its_limits_and_says_so() -> Result<(), BoxError> {
    let shelves = shelf(ENTRIES as u64).await?;
    let read = async |options: ViewOptions| {
        let view = ShelfView::read(&shelves, Shelf::DeadLetter, &options, at(0)).await?;
        let summary = view.entries().summary(&SnapshotOptions::new());
        assert_eq!(summary.truncated, view.is_truncated());
        Ok::<_, BoxError>((view.entries().len(), view.is_truncated()))
    };
    for limit in [0, 1, ENTRIES - 1] {
        assert_eq!(read(ViewOptions::new().limit(limit)).await?, (limit, true));
    }
    assert_eq!(read(ViewOptions::new().limit(ENTRIES)).await?, (ENTRIES, false));
    let (entries, truncated) = read(ViewOptions::new().max_bytes(100 * 1024)).await?;
    assert!(truncated && (10..40).contains(&entries), "{entries}");
    Ok(())
}

#[test]
fn a_page_is_a_part_of_the_entries() {
    let view = ShelfView::new(Shelf::DeadLetter, at(0), (0..10).map(|it| entry(it, "x")), false);
    let page = |offset, limit| {
        let page = view.entries().page(offset, limit);
        let times = page.entries.iter().map(|it| it.entry.handle.entry().to_owned()).collect::<String>();
        (times, page.offset, page.total)
    };
    assert_eq!(page(0, 4), ("0123".to_owned(), 0, 10));
    assert_eq!(page(8, 4), ("89".to_owned(), 8, 10));
    assert_eq!(page(99, usize::MAX), (String::new(), 10, 10));
}

#[test]
fn groups_are_new_if_all_of_their_entries_are() {
    let entries =
        [entry(10, "order 1"), entry(90, "order 2"), entry(50, "no address"), entry(60, "no address")];
    let mut untimed = entry(0, "late");
    untimed.shelved_at = None;
    let view = ShelfView::new(Shelf::DeadLetter, at(100), entries.into_iter().chain([untimed]), false);
    let groups = view.entries().summary(&SnapshotOptions::new()).groups;
    let new = |since| {
        let new = groups.iter().filter(|group| group.is_new_since(at(since)));
        new.map(|group| group.template.text().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(new(50), ["no address"]);
    assert!(new(51).is_empty());
    assert_eq!(new(0).len(), 2, "a group without a time is not called new");
}

#[test]
fn groups_have_their_own_trend_filter_and_selection() -> Result<(), BoxError> {
    let entries = [entry(10, "order 1"), entry(50, "no address"), entry(90, "order 2"), entry(95, "order 3")];
    let view = ShelfView::new(Shelf::DeadLetter, at(100), entries.clone(), false);
    assert_eq!((view.age(at(130)), view.age(at(0))), (Duration::from_secs(30), Duration::ZERO));
    let options = TrendOptions::until(view.taken_at()).span(Duration::from_secs(50)).spans(2);
    assert_eq!(view.entries().trend(&options).counts, [2, 2]);
    let by_group = view.entries().by_group();
    let id = redrive_ops::Template::of(&entries[0]).id();
    assert_eq!((by_group.len(), by_group[&id].trend(&options).counts.clone()), (2, vec![1, 2]));

    let matching = view.matching(&Filter::group(id), at(100)).matching(&"age>=10s".parse()?, at(100));
    assert_eq!(matching.len(), 2);
    let selection = matching.selection();
    let selected: Vec<_> = entries.iter().map(|entry| selection.includes(entry)).collect();
    assert_eq!(selected, [true, false, true, false]);
    Ok(())
}
