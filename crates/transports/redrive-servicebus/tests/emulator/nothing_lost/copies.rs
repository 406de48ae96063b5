//! Tests of copies with duplicate detection: a copy must not be dropped as a duplicate of another one, neither of a message with
//! the same id and sequence number in another entity, nor of another edit of the same entry.

use redrive_core::shelves::Selection;
use redrive_core::{BoxError, Disposition, Message, Shelf, Shelves as _, Transport as _};
use redrive_servicebus::{Entity, Options, ServiceBus, Transactions};
use redrive_servicebus_emulator::{Effect, Emulator, Fault, Settings, Step, Topic};

use super::bench::{DEAD_LETTERS, QUEUE, broken, detecting_duplicates, emulator, settle_next, started};

#[tokio::test]
async fn a_redrive_of_twins_in_subscription_and_retry_queue_loses_none() -> Result<(), BoxError> {
    let topic = Topic::new("topic", Settings::default()).subscription("billing", Settings::default());
    let emulator = Emulator::builder().topic(topic).queue("retry", detecting_duplicates()).start().await?;
    let options = ServiceBus::options(Entity::subscription("topic", "billing")).retry_queue("retry");
    let transport = started(&emulator.connection_string(), options).await?;
    transport.publish(Message::new("one").with_id("a")).await?;
    let to_retry = ServiceBus::connect(&emulator.connection_string(), "retry").await?;
    to_retry.publish(Message::new("two").with_id("a")).await?;
    for _ in 0..2 {
        settle_next(&transport, Disposition::DeadLetter(broken())).await?;
    }
    assert_eq!(transport.shelves().redrive(Shelf::DeadLetter, &Selection::All).await?.into_result()?, 2);
    assert_eq!(emulator.entity("retry")?.messages().len(), 2, "a copy was swallowed");
    Ok(())
}

#[tokio::test]
async fn twins_of_two_queues_are_parked_in_one() -> Result<(), BoxError> {
    let builder = Emulator::builder().queue("one", Settings::default()).queue("two", Settings::default());
    let emulator = builder.queue("parked", detecting_duplicates()).start().await?;
    for queue in ["one", "two"] {
        let options = ServiceBus::options(queue).parking_queue("parked");
        let transport = started(&emulator.connection_string(), options).await?;
        transport.publish(Message::new(queue).with_id("a")).await?;
        settle_next(&transport, Disposition::Park(broken())).await?;
    }
    assert_eq!(emulator.entity("parked")?.messages().len(), 2, "a copy was swallowed");
    Ok(())
}

#[cfg(feature = "rest")]
#[tokio::test]
async fn twins_of_two_queues_share_a_dead_letter_queue_by_rest() -> Result<(), BoxError> {
    use redrive_servicebus::Backend;
    let builder = Emulator::builder().queue("one", Settings::default()).queue("two", Settings::default());
    let builder = builder.queue("dead", detecting_duplicates()).listen_http("127.0.0.1:0");
    let emulator = builder.start().await?;
    let address = emulator.http_connection_string().ok_or("the emulator does not listen for HTTP")?;
    for queue in ["one", "two"] {
        let options = ServiceBus::options(queue).backend(Backend::Rest).dead_letter_queue("dead");
        let transport = started(&address, options).await?;
        transport.publish(Message::new(queue).with_id("a")).await?;
        settle_next(&transport, Disposition::DeadLetter(broken())).await?;
    }
    assert_eq!(emulator.entity("dead")?.messages().len(), 2, "a copy was swallowed");
    Ok(())
}

/// Edits an entry again whose copy was stored, but which was not removed: both edits must be stored once. The entry is completed
/// in `step`, after that many others of its kind.
async fn both_edits_are_stored(
    (emulator, step, requests_before): (&Emulator, Step, u32),
    (address, options): (&str, Options),
    (rests_in, copied_to): (&str, &str),
    action: Action,
) -> Result<(), BoxError> {
    let shelf = if action == Action::Replace { Shelf::Parking } else { Shelf::DeadLetter };
    let transport = started(address, options.clone()).await?;
    transport.publish(Message::new("as published").with_id("a")).await?;
    let disposition = if action == Action::Replace { Disposition::Park } else { Disposition::DeadLetter };
    settle_next(&transport, disposition(broken())).await?;
    transport.close().await;
    let shelves = options.connect(address).await?.shelves();
    let entry = shelves.browse(shelf, None, 1).await?.entries.remove(0).handle;
    let edit_as = async |body: &'static str| {
        let edited = Message::new(body).with_id("a");
        match action {
            Action::RedriveAs => shelves.redrive_as(&entry, edited).await,
            Action::Replace => shelves.replace(&entry, edited).await.map(drop),
        }
    };
    let place = emulator.entity(rests_in)?;
    let bodies = || -> Result<Vec<_>, BoxError> {
        let stored =
            emulator.entity(copied_to)?.messages().into_iter().map(|stored| stored.message.body.clone());
        let edits = stored.filter(|body| body.ends_with(b" edit"));
        Ok(edits.map(|body| String::from_utf8_lossy(&body).into_owned()).collect())
    };
    for _ in 0..2 {
        let refused = Effect::Refuse { condition: "amqp:internal-error".to_owned() };
        emulator.inject(Fault::new(step, refused).on(rests_in).after(requests_before));
        edit_as("the first edit").await.expect_err("the entry is not removed");
        place.expire_locks();
    }
    assert_eq!(bodies()?.len(), 1, "the same edit is stored once: {:?}", bodies()?);
    edit_as("another edit").await?;
    let stored = bodies()?;
    let has = |edit: &str| stored.iter().any(|body| body.ends_with(edit));
    assert!(stored.len() == 2 && has("the first edit") && has("another edit"), "{stored:?}");
    assert!(
        place.messages().iter().all(|left| !left.message.body.ends_with(b"published")),
        "the entry is left"
    );
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Action {
    RedriveAs,
    Replace,
}

#[tokio::test]
async fn another_edit_after_an_error_is_sent_back_too() -> Result<(), BoxError> {
    let emulator = emulator(detecting_duplicates()).await?;
    let options = ServiceBus::options(QUEUE).transactions(Transactions::Off);
    let address = emulator.connection_string();
    let places = (DEAD_LETTERS, QUEUE);
    both_edits_are_stored((&emulator, Step::Request, 1), (&address, options), places, Action::RedriveAs).await
}

#[tokio::test]
async fn another_edit_after_an_error_rests_on_the_shelf_too() -> Result<(), BoxError> {
    let builder = Emulator::builder().queue(QUEUE, Settings::default());
    let emulator = builder.queue("parked", detecting_duplicates()).start().await?;
    let options = ServiceBus::options(QUEUE).transactions(Transactions::Off).parking_queue("parked");
    let address = emulator.connection_string();
    let places = ("parked", "parked");
    both_edits_are_stored((&emulator, Step::Request, 1), (&address, options), places, Action::Replace).await
}

#[cfg(feature = "rest")]
#[tokio::test]
async fn another_edit_after_an_error_is_sent_back_by_rest_too() -> Result<(), BoxError> {
    use redrive_servicebus::Backend;
    let mut dead = Settings::default();
    dead.max_delivery_count = 100;
    let builder = Emulator::builder().queue(QUEUE, detecting_duplicates()).queue("dead", dead);
    let emulator = builder.listen_http("127.0.0.1:0").start().await?;
    let options = ServiceBus::options(QUEUE).backend(Backend::Rest).dead_letter_queue("dead");
    let options = options.poll_wait(std::time::Duration::from_secs(1));
    let address = emulator.http_connection_string().ok_or("the emulator does not listen for HTTP")?;
    let places = ("dead", QUEUE);
    both_edits_are_stored((&emulator, Step::Settle, 0), (&address, options), places, Action::RedriveAs).await
}
