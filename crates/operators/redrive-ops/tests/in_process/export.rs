//! A discard that is undone from its export.

use std::time::SystemTime;

use redrive_consumer::Consumer;
use redrive_core::shelves::Selection;
use redrive_core::{BoxError, Delivery, Disposition, Failure, FailureHistory, Message, Shelf, Shelves};
use redrive_memory::MemoryBroker;
use redrive_ops::{ExportError, ExportLines, export};

/// More entries than one page of a scan.
const ENTRIES: u64 = 300;

async fn broker() -> Result<MemoryBroker, BoxError> {
    let broker = MemoryBroker::new();
    for order in 0..ENTRIES {
        let message = Message::new(vec![0xff, 0]).with_id(order.to_string()).with_header("order", order);
        broker.publish("orders", message)?;
    }
    let handler = |_: Delivery| async { Disposition::DeadLetter(Failure::custom("OutOfStock", "no stock")) };
    let done = async {
        while broker.depth("orders") > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    Consumer::new(broker.transport("orders")).handler(handler).run_until(done).await?;
    Ok(broker)
}

#[tokio::test(start_paused = true)]
async fn a_discard_is_undone_from_its_export() -> Result<(), BoxError> {
    let broker = broker().await?;
    let shelves = broker.shelves("orders");
    let before = shelves.browse(Shelf::DeadLetter, None, 1000).await?.entries;
    let kept = &before[7];
    let which =
        Selection::handles(before.iter().map(|entry| entry.handle.clone()).filter(|h| *h != kept.handle));

    let mut file = Vec::new();
    let written = export(&shelves, Shelf::DeadLetter, &which, "orders", SystemTime::now(), &mut file).await?;
    assert_eq!(
        (written, shelves.count(Shelf::DeadLetter).await?),
        (ENTRIES - 1, ENTRIES),
        "looking changes nothing"
    );
    assert_eq!(shelves.discard(Shelf::DeadLetter, &which).await?.into_result()?, written);

    let read = ExportLines::new(file.as_slice()).collect::<Result<Vec<_>, _>>()?;
    for (exported, entry) in read.iter().zip(before.iter().filter(|entry| entry.handle != kept.handle)) {
        assert_eq!((&exported.message, &exported.handle), (&entry.message, &entry.handle));
        assert_eq!((exported.for_shelf(), exported.queue.as_str()), (entry.message.clone(), "orders"));
        let again = exported.for_work_queue();
        assert_eq!(FailureHistory::read(&again).redrives, redrive_core::Count::Known(1));
        broker.publish("orders", again)?;
    }
    assert_eq!(broker.depth("orders") as u64, written);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_ends_an_export_and_is_said() -> Result<(), BoxError> {
    let broker = broker().await?;
    let shelves = broker.shelves("orders");
    let mut room = [0; 1000];
    let mut file = room.as_mut_slice();
    let error =
        export(&shelves, Shelf::DeadLetter, &Selection::All, "orders", SystemTime::now(), &mut file).await;
    let error = error.unwrap_err();
    assert!(matches!(&error, ExportError::Write { written, .. } if *written < 4), "{error}");
    assert_eq!(shelves.count(Shelf::DeadLetter).await?, ENTRIES);
    Ok(())
}
