//! Snapshots of a shelf in process.

use redrive_core::{BoxError, Delivery, Disposition, Failure, Message, Shelf, Shelves};
use redrive_memory::MemoryBroker;
use redrive_ops::{ShelfSnapshot, SnapshotOptions, snapshot};

/// Creates a shelf with this many entries.
async fn shelf(entries: u64) -> Result<impl Shelves, BoxError> {
    let broker = MemoryBroker::new();
    for order in 0..entries {
        broker.publish("orders", Message::new("body").with_id(order.to_string()))?;
    }
    let handler = |delivery: Delivery| async move {
        Disposition::DeadLetter(Failure::custom(
            "OutOfStock",
            format!("no stock for order {}", delivery.id()),
        ))
    };
    let done = async {
        while broker.depth("orders") > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    redrive_consumer::Consumer::new(broker.transport("orders")).handler(handler).run_until(done).await?;
    Ok(broker.shelves("orders"))
}

async fn taken(shelves: &dyn Shelves, limit: u64) -> Result<ShelfSnapshot, BoxError> {
    Ok(snapshot(shelves, Shelf::DeadLetter, &SnapshotOptions::new().limit(limit)).await?)
}

/// More entries than one page of a scan.
const ENTRIES: u64 = 600;

#[tokio::test(start_paused = true)]
async fn every_entry_is_in_a_snapshot_once() -> Result<(), BoxError> {
    let shelves = shelf(ENTRIES).await?;
    let snapshot = taken(&shelves, 100_000).await?;
    assert_eq!((snapshot.count, snapshot.truncated, snapshot.groups.len()), (ENTRIES, false, 1));
    assert_eq!(snapshot.by_reason["OutOfStock"], ENTRIES);
    assert_eq!(snapshot.groups[0].template.text(), "no stock for order <number>");
    assert_eq!(snapshot.groups[0].sample.message_id.as_deref(), Some("0"));
    assert_eq!(snapshot.oldest, shelves.oldest(Shelf::DeadLetter).await?);
    assert_eq!(shelves.count(Shelf::DeadLetter).await?, ENTRIES, "looking changes nothing");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_limit_is_kept_and_said_only_where_there_is_more() -> Result<(), BoxError> {
    let shelves = shelf(ENTRIES).await?;
    for limit in [0, 1, 250, ENTRIES - 1] {
        let snapshot = taken(&shelves, limit).await?;
        assert_eq!((snapshot.count, snapshot.truncated), (limit, true));
    }
    for limit in [ENTRIES, ENTRIES + 1] {
        let snapshot = taken(&shelves, limit).await?;
        assert_eq!((snapshot.count, snapshot.truncated), (ENTRIES, false));
    }
    let empty = snapshot(&shelves, Shelf::Parking, &SnapshotOptions::new().limit(0)).await?;
    assert_eq!((empty.count, empty.truncated, empty.oldest), (0, false, None));
    Ok(())
}
