//! Tests of pausing and resuming in quick succession on one thread: each change is made before the last one is noticed.

use std::time::Duration;

use redrive_contract::{Started, eventually};
use redrive_core::transport::{Needs, Settlement};
use redrive_core::{BoxError, Message, Shelf, Shelves, Transport as _};
use redrive_servicebus::{Entity, Options, ServiceBus, Sessions};
use redrive_servicebus_emulator::{Emulator, Settings, Topic};
use tokio::time::timeout;

const TIMEOUT: Duration = Duration::from_secs(120);

#[tokio::test]
async fn a_pause_right_after_a_resume_ends_on_every_kind_of_entity() -> Result<(), BoxError> {
    let mut in_sessions = Settings::default();
    in_sessions.requires_session = true;
    let topic = Topic::new("topic", Settings::default()).subscription("one", Settings::default());
    let emulator = Emulator::builder()
        .queue("queue", Settings::default())
        .queue("sessions", in_sessions)
        .queue("retry", Settings::default())
        .topic(topic)
        .start()
        .await?;
    for (options, session) in [
        (ServiceBus::options("queue"), None),
        (ServiceBus::options(Entity::subscription("topic", "one")).retry_queue("retry"), None),
        (sessions(), Some("a")),
    ] {
        let transport = options.connect(&emulator.connection_string()).await?;
        let mut needs = Needs::none();
        needs.prefetch = 4;
        let transport = Started::open(transport, &needs).await?;
        timeout(TIMEOUT, transport.pause()).await.expect("it pauses")?;
        for _ in 0..3 {
            transport.resume().await?;
            timeout(TIMEOUT, transport.pause()).await.expect("it pauses again")?;
            assert!(timeout(TIMEOUT, transport.receive()).await.expect("it says so")?.is_none());
        }
        transport.resume().await?;
        let mut message = Message::new("").with_id("a");
        message.properties_mut().session_id = session.map(str::to_owned);
        transport.publish(message).await?;
        let received =
            timeout(TIMEOUT, transport.receive()).await.expect("it goes on")?.expect("it is there");
        transport.settle(received.receipt, Settlement::Complete).await.map_err(|refused| refused.error)?;
    }
    Ok(())
}

fn sessions() -> Options {
    ServiceBus::options("sessions").sessions(Sessions::concurrent(2))
}

async fn with_one_message(settings: Settings) -> Result<(Emulator, Started<ServiceBus>), BoxError> {
    let emulator = Emulator::builder().queue("queue", settings).start().await?;
    let transport = ServiceBus::connect(&emulator.connection_string(), "queue").await?;
    let transport = Started::open(transport, &Needs::none()).await?;
    transport.publish(Message::new("").with_id("a")).await?;
    Ok((emulator, transport))
}

/// A release on a detached link would do nothing: the message would wait until its lock expires.
#[tokio::test]
async fn a_release_on_a_link_that_was_detached_in_a_pause_gives_the_message_back() -> Result<(), BoxError> {
    let mut settings = Settings::default();
    settings.lock_duration = Duration::from_secs(300);
    let (emulator, transport) = with_one_message(settings).await?;
    let held = transport.receive().await?.expect("it is there");
    timeout(TIMEOUT, transport.pause()).await.expect("it pauses")?;
    emulator.detach("queue");
    // Answered on the same connection, behind the detach.
    transport.shelves().browse(Shelf::DeadLetter, None, 1).await?;
    transport.settle(held.receipt, Settlement::Release).await.map_err(|refused| refused.error)?;
    let before = transport.interruptions();
    transport.resume().await?;
    let again =
        timeout(Duration::from_secs(60), transport.receive()).await.expect("long before its lock expires");
    assert_eq!(again?.expect("it is there").delivery.id(), "a");
    eventually("the counted delivery is no evidence", async || transport.interruptions() > before).await;
    Ok(())
}

/// The answer to a request in another session says nothing about it. A link that is closed gives nothing back: the message would wait
/// until its lock expires.
#[tokio::test]
async fn a_delivery_that_is_on_its_way_when_the_transport_closes_is_given_back() -> Result<(), BoxError> {
    const MARKER: &str = "on-its-way";
    let mut settings = Settings::default();
    settings.lock_duration = Duration::from_secs(300);
    let emulator = Emulator::builder().queue("queue", settings).start().await?;
    let direct = emulator.connection_string();
    let delay = Duration::from_millis(500);
    let port = crate::proxy::that_delays_sessions(emulator.address(), MARKER.as_bytes(), delay).await?;
    let through = direct.replace(&emulator.address().port().to_string(), &port.to_string());
    let first = ServiceBus::connect(&through, "queue").await?;
    let first = Started::open(first, &Needs::none()).await?;
    let queue = emulator.entity("queue")?;
    eventually("it receives", async || queue.waiting() > 0).await;
    let second = ServiceBus::connect(&direct, "queue").await?;
    second.publish(Message::new("").with_id(MARKER)).await?;
    let is_locked = async || queue.messages().iter().any(|message| message.lock_token.is_some());
    eventually("it is on its way", is_locked).await;
    first.close().await;
    let second = Started::open(second, &Needs::none()).await?;
    let again = second.next_within(TIMEOUT).await;
    assert_eq!((again.delivery.id(), again.delivery.broker_delivery_count()), (MARKER, 1));
    Ok(())
}

/// A message that is redelivered after the pause would be a suspect, however long the pause was.
#[tokio::test]
async fn a_lock_that_is_lost_in_a_pause_is_signalled_again_after_it() -> Result<(), BoxError> {
    let mut settings = Settings::default();
    // Renewed after half of it.
    settings.lock_duration = Duration::from_secs(4);
    let (emulator, transport) = with_one_message(settings).await?;
    let held = transport.receive().await?.expect("it is there");
    timeout(TIMEOUT, transport.pause()).await.expect("it pauses")?;
    emulator.entity("queue")?.expire_locks();
    timeout(TIMEOUT, transport.lost(&held.receipt)).await.expect("it is not renewed");
    let before = transport.interruptions();
    transport.resume().await?;
    eventually("it is signalled again", async || transport.interruptions() > before).await;
    Ok(())
}

/// What is on its way when a link is cut is redelivered, counted.
#[tokio::test]
async fn a_link_that_is_cut_by_a_pause_is_signalled_after_it() -> Result<(), BoxError> {
    let (emulator, transport) = with_one_message(Settings::default()).await?;
    let _held = transport.receive().await?.expect("it is there");
    // The pause drains the link before it sees that.
    emulator.detach("queue");
    timeout(TIMEOUT, transport.pause()).await.expect("it pauses")?;
    let before = transport.interruptions();
    transport.resume().await?;
    eventually("it is signalled", async || transport.interruptions() > before).await;
    Ok(())
}

#[tokio::test]
async fn a_pause_that_somebody_else_takes_back_ends() -> Result<(), BoxError> {
    let emulator = Emulator::builder().queue("queue", Settings::default()).start().await?;
    let transport = ServiceBus::connect(&emulator.connection_string(), "queue").await?;
    let transport = Started::open(transport, &Needs::none()).await?;
    let (paused, resumed) = tokio::join!(timeout(TIMEOUT, transport.pause()), transport.resume());
    paused.expect("nobody waits for a pause that is over")?;
    resumed?;
    Ok(())
}
