//! Tests of dead-lettered and redriven messages of sessions.

use redrive_core::shelves::Selection;
use redrive_core::{BoxError, Disposition, Shelf, Shelves};
use redrive_servicebus_emulator::{Emulator, Settings};

use super::steps::{
    QUEUE, complete, complete_is, concurrent, emulator, failure, next_is, publish, sessions, settle, started,
    view,
};

#[tokio::test]
async fn a_redriven_message_is_in_its_session_again() -> Result<(), BoxError> {
    let emulator = emulator(sessions()).await?;
    let transport = started(&emulator, concurrent(1)).await?;
    publish(&transport, &["a1", "a2"]).await?;
    let received = next_is(&transport, "a1", 1).await;
    let again = transport.plan(&received.delivery, Disposition::Retry(std::time::Duration::ZERO, failure()));
    settle(&transport, received.receipt, again).await?;
    for disposition in [Disposition::DeadLetter(failure()), Disposition::Park(failure())] {
        let shelf =
            if matches!(disposition, Disposition::Park(_)) { Shelf::Parking } else { Shelf::DeadLetter };
        let id = if shelf == Shelf::Parking { "a2" } else { "a1" };
        let received = next_is(&transport, id, if id == "a1" { 2 } else { 1 }).await;
        let settlement = transport.plan(&received.delivery, disposition);
        settle(&transport, received.receipt, settlement).await?;
        let shelved = transport.shelves().browse(shelf, None, 10).await?.entries;
        assert_eq!(shelved.len(), 1);
        assert_eq!(shelved[0].message.properties().session_id.as_deref(), Some("a"));
    }
    for shelf in [Shelf::DeadLetter, Shelf::Parking] {
        assert_eq!(transport.shelves().redrive(shelf, &Selection::All).await?.into_result()?, 1);
    }
    for id in ["a1", "a2"] {
        let received = next_is(&transport, id, 1).await;
        assert_eq!(received.delivery.broker_delivery_count(), 1);
        assert_eq!(received.delivery.message().properties().session_id.as_deref(), Some("a"));
        complete(&transport, received).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_parked_message_goes_to_the_parking_queue_with_its_session() -> Result<(), BoxError> {
    let builder = Emulator::builder().queue(QUEUE, sessions()).queue("parked", Settings::default());
    let emulator = builder.start().await?;
    let transport = started(&emulator, concurrent(1).parking_queue("parked")).await?;
    publish(&transport, &["a1", "a2"]).await?;
    let received = next_is(&transport, "a1", 1).await;
    let settlement = transport.plan(&received.delivery, Disposition::Park(failure()));
    settle(&transport, received.receipt, settlement).await?;
    complete_is(&transport, "a2", 1).await?;
    assert!(view(&emulator).messages().is_empty());
    let shelved = transport.shelves().browse(Shelf::Parking, None, 10).await?.entries;
    assert_eq!(shelved[0].message.properties().session_id.as_deref(), Some("a"));
    assert_eq!(transport.shelves().redrive(Shelf::Parking, &Selection::All).await?.into_result()?, 1);
    complete_is(&transport, "a1", 1).await?;
    Ok(())
}
