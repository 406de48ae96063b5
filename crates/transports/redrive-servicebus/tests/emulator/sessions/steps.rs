//! The steps of the tests.

use std::time::Duration;

use redrive_contract::Started;
use redrive_core::transport::{Needs, Received, Settlement};
use redrive_core::{BoxError, Disposition, Failure, Message, TransportErrorKind};
use redrive_servicebus::{Options, Receipt, ServiceBus, Sessions};
use redrive_servicebus_emulator::{Emulator, EntityView, Settings};
use tokio::time::timeout;

pub(crate) const QUEUE: &str = "orders";
/// The longest time that a message may take to arrive.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);
/// The time in which no message may arrive. A shorter time can only hide a fault.
const QUIET: Duration = Duration::from_millis(200);
/// A wait that no test waits for.
pub(crate) const FAR: Duration = Duration::from_secs(240);

pub(crate) fn sessions() -> Settings {
    let mut settings = Settings::default();
    settings.requires_session = true;
    settings
}

pub(crate) async fn emulator(settings: Settings) -> Result<Emulator, BoxError> {
    Ok(Emulator::builder().queue(QUEUE, settings).start().await?)
}

/// Returns options for up to this many sessions, in the order of their oldest messages. Each session is kept, so that the order
/// does not depend on how long the machine takes to deliver the next message of a session.
pub(crate) fn concurrent(count: u32) -> Options {
    with(Sessions::concurrent(count).accepting(1).idle(FAR))
}

/// Returns the same options with a short idle time. If the machine stalls, a session that has more messages is released too.
pub(crate) fn in_turns(count: u32) -> Options {
    with(Sessions::concurrent(count).accepting(1).idle(Duration::from_millis(50)))
}

pub(crate) fn with(sessions: Sessions) -> Options {
    ServiceBus::options(QUEUE).sessions(sessions).max_wait_time(TIMEOUT)
}

pub(crate) async fn started(emulator: &Emulator, options: Options) -> Result<Started<ServiceBus>, BoxError> {
    let transport = options.connect(&emulator.connection_string()).await?;
    let mut needs = Needs::none();
    needs.prefetch = 10;
    Ok(Started::open(transport, &needs).await?)
}

/// Publishes messages in this order; the first letter of each id is its session.
pub(crate) async fn publish(transport: &ServiceBus, ids: &[&str]) -> Result<(), BoxError> {
    for id in ids {
        transport.publish(message(id)).await?;
    }
    Ok(())
}

pub(crate) fn message(id: &str) -> Message {
    let mut message = Message::new(format!("body of {id}")).with_id(id);
    message.properties_mut().session_id = Some(id[..1].to_owned());
    message
}

pub(crate) async fn next_is(transport: &Started<ServiceBus>, id: &str, attempt: u32) -> Received<Receipt> {
    let received = transport.next_within(TIMEOUT).await;
    assert_eq!((received.delivery.id(), received.delivery.attempt()), (id, attempt));
    received
}

/// Receives the next delivery, which must have this id, and completes it.
pub(crate) async fn complete_is(
    transport: &Started<ServiceBus>,
    id: &str,
    attempt: u32,
) -> Result<(), BoxError> {
    let received = next_is(transport, id, attempt).await;
    complete(transport, received).await
}

pub(crate) async fn nothing_comes(transport: &Started<ServiceBus>) {
    if let Ok(received) = timeout(QUIET, transport.receive()).await {
        let id = received.map(|received| received.map(|received| received.delivery.id().to_owned()));
        panic!("something came: {id:?}");
    }
}

pub(crate) async fn settle(
    transport: &Started<ServiceBus>,
    receipt: Receipt,
    settlement: Settlement,
) -> Result<(), BoxError> {
    Ok(transport.settle(receipt, settlement).await.map_err(|refused| refused.error)?)
}

/// Waits until the transport signals that this delivery is no longer in flight.
pub(crate) async fn until_lost(transport: &Started<ServiceBus>, receipt: &Receipt) {
    timeout(TIMEOUT, transport.lost(receipt)).await.expect("the loss is told in time");
}

/// Settles a delivery, which must fail because the delivery is lost.
pub(crate) async fn settle_is_lost(
    transport: &Started<ServiceBus>,
    receipt: Receipt,
    settlement: Settlement,
) {
    let refused = transport.settle(receipt, settlement).await.expect_err("the session is lost");
    assert_eq!(refused.error.kind(), TransportErrorKind::Lost, "{}", refused.error);
    assert!(refused.receipt.is_none(), "a lost delivery's receipt is given back");
}

pub(crate) async fn complete(
    transport: &Started<ServiceBus>,
    received: Received<Receipt>,
) -> Result<(), BoxError> {
    settle(transport, received.receipt, Settlement::Complete).await
}

/// Retries a delivery after this wait.
pub(crate) async fn retry(
    transport: &Started<ServiceBus>,
    received: Received<Receipt>,
    wait: Duration,
) -> Result<(), BoxError> {
    let settlement = transport.plan(&received.delivery, Disposition::Retry(wait, failure()));
    settle(transport, received.receipt, settlement).await
}

pub(crate) fn failure() -> Failure {
    Failure::custom("Broken", "it does not work")
}

pub(crate) fn view(emulator: &Emulator) -> EntityView {
    emulator.entity(QUEUE).expect("it is there")
}
