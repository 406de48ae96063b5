//! Two messages of one id and equal sequence numbers in two entities: no copy of one swallows that of the other.

use redrive_core::{BoxError, Disposition, Message, Selection, Shelf, Shelves as _};
use redrive_servicebus::{Entity, ServiceBus};
use redrive_servicebus_emulator::{Emulator, Settings, Topic};

use crate::bench::{broken, detecting_duplicates, settle_next, started};

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
