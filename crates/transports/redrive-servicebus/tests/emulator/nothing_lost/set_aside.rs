//! Shelves with messages that the broker does not deliver in their turn, and shelves whose numbers do not ascend: each message is read,
//! or the answer says why not.

use std::time::Duration;

use redrive_core::shelves::{EntryOutcome, Selection};
use redrive_core::{BoxError, Message, Shelf, Shelves as _, TransportErrorKind};
use redrive_servicebus::ServiceBus;
use redrive_servicebus_emulator::{Emulator, Settings};

use super::bench::QUEUE;

#[tokio::test]
async fn what_is_deferred_or_scheduled_stays_and_is_named() -> Result<(), BoxError> {
    let builder = Emulator::builder().queue(QUEUE, Settings::default()).queue("parked", Settings::default());
    let emulator = builder.start().await?;
    let options = ServiceBus::options(QUEUE).parking_queue("parked");
    let transport = options.connect(&emulator.connection_string()).await?;
    let parked = transport.publisher().to("parked");
    parked.publish(Message::new("").with_id("deferred")).await?;
    emulator.entity("parked")?.defer_next().ok_or("it is there")?;
    parked.publish_after(Message::new("").with_id("scheduled"), Duration::from_secs(3600)).await?;
    parked.publish(Message::new("").with_id("parked")).await?;
    let shelves = transport.shelves();
    assert_eq!(shelves.count(Shelf::Parking).await?, 3);
    let began = std::time::Instant::now();
    let report = shelves.redrive(Shelf::Parking, &Selection::All).await?;
    assert!(began.elapsed() < Duration::from_secs(4), "nothing is waited for: {:?}", began.elapsed());
    let outcome = |id: &str| {
        let result = report.entries.iter().find(|entry| entry.id.as_deref() == Some(id));
        result.map(|result| &result.outcome)
    };
    assert!(matches!(outcome("parked"), Some(EntryOutcome::Done)), "{report:?}");
    for (id, part) in [("deferred", "somebody deferred"), ("scheduled", "for a later time")] {
        let Some(EntryOutcome::Failed(error)) = outcome(id) else { panic!("{id}: {report:?}") };
        assert!(error.to_string().contains(part) && error.to_string().contains("`parked`"), "{error}");
    }
    assert_eq!(shelves.count(Shelf::Parking).await?, 2, "they stay");
    Ok(())
}

#[tokio::test]
async fn a_shelf_whose_numbers_do_not_ascend_is_refused_and_not_read_in_part() -> Result<(), BoxError> {
    let mut partitioned = Settings::default();
    partitioned.partitioned = true;
    let builder = Emulator::builder().queue(QUEUE, Settings::default()).queue("parked", partitioned);
    let emulator = builder.start().await?;
    let options = ServiceBus::options(QUEUE).parking_queue("parked");
    let transport = options.connect(&emulator.connection_string()).await?;
    let shelves = transport.shelves();
    assert_eq!(shelves.count(Shelf::Parking).await?, 0, "nothing can be missed");
    for id in ["a", "b", "c"] {
        transport.publisher().to("parked").publish(Message::new("").with_id(id)).await?;
    }
    let refused = [
        shelves.count(Shelf::Parking).await.map(drop),
        shelves.oldest(Shelf::Parking).await.map(drop),
        shelves.browse(Shelf::Parking, None, 10).await.map(drop),
        shelves.redrive(Shelf::Parking, &Selection::All).await.map(drop),
        shelves.discard(Shelf::Parking, &Selection::All).await.map(drop),
    ];
    for refused in refused {
        let error = refused.expect_err("it cannot be read by numbers");
        assert_eq!(error.kind(), TransportErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("`parked` is partitioned"), "{error}");
    }
    assert_eq!(emulator.entity("parked")?.messages().len(), 3, "nothing was done");
    Ok(())
}
