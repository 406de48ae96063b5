//! Tests of situations in which the transport must not hang.

use redrive_contract::{Started, eventually};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fe2o3_amqp::Sendable;
use fe2o3_amqp_types::messaging::{Body, Data, Message as Wire};
use fe2o3_amqp_types::primitives::Value;
use redrive_core::transport::{Needs, Received, Receiver, Settlement, Signal, Signals};
use redrive_core::{BoxError, Message, Shelf, Shelves, Transport, TransportErrorKind};
use redrive_servicebus::{ServiceBus, Sessions};
use redrive_servicebus_emulator::{Effect, Emulator, Fault, Settings, Step};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::TcpStream;
use tokio::time::timeout;

const QUEUE: &str = "orders";
const TIMEOUT: Duration = Duration::from_secs(120);
/// The message format of a batch: each section contains an encoded message.
const BATCH: u32 = 0x8001_3700;
/// A message with an empty body whose property `a` is a list, which no client library accepts.
const UNREADABLE: &[u8] = b"\x00\x53\x74\xc1\x05\x02\xa1\x01a\x45\x00\x53\x75\xa0\x00";

async fn start(transport: ServiceBus, prefetch: u32) -> Result<Started<ServiceBus>, BoxError> {
    let mut needs = Needs::none();
    needs.prefetch = prefetch;
    Ok(Started::open(transport, &needs).await?)
}

async fn send_unreadable(emulator: &Emulator) -> Result<(), BoxError> {
    let batch: Wire<Body<Value>> = Wire::from(Body::Data(vec![Data(UNREADABLE.to_vec().into())].into()));
    let batch = Sendable::builder().message_format(BATCH).message(batch).build();
    crate::raw::send(emulator, QUEUE, batch).await
}

#[tokio::test]
async fn messages_that_cannot_be_read_use_up_no_credit_and_hide_no_others() -> Result<(), BoxError> {
    let emulator = Emulator::builder().queue(QUEUE, Settings::default()).start().await?;
    let transport = ServiceBus::connect(&emulator.connection_string(), QUEUE).await?;
    for _ in 0..3 {
        send_unreadable(&emulator).await?;
    }
    transport.publish(Message::new("").with_id("readable")).await?;
    let transport = start(transport, 1).await?;
    let received = transport.next_within(TIMEOUT).await;
    assert_eq!(received.delivery.id(), "readable");
    let rejected = transport.settle(received.receipt, Settlement::NativeDeadLetter).await;
    rejected.map_err(|refused| refused.error)?;
    let dead = emulator.entity("orders/$DeadLetterQueue")?;
    assert_eq!(dead.messages().len(), 4);
    let shelved = transport.shelves().browse(Shelf::DeadLetter, None, 10).await?.entries;
    assert_eq!(shelved.len(), 1, "what cannot be read hides no others");
    Ok(())
}

#[tokio::test]
async fn a_copy_that_is_refused_is_not_said_to_be_interrupted() -> Result<(), BoxError> {
    let emulator = Emulator::builder().queue(QUEUE, Settings::default()).start().await?;
    let transport = ServiceBus::connect(&emulator.connection_string(), QUEUE).await?;
    let transport = start(transport, 1).await?;
    transport.publish(Message::new("").with_id("a")).await?;
    let received = transport.next_within(TIMEOUT).await;
    let refusal = Effect::Refuse { condition: "amqp:not-allowed".to_owned() };
    emulator.inject(Fault::new(Step::Send, refusal).on(QUEUE));
    let again = Settlement::Reschedule { wait: Duration::ZERO, copy: received.delivery.message().clone() };
    let refused = transport.settle(received.receipt, again).await.expect_err("it is refused").error;
    assert_eq!(refused.kind(), TransportErrorKind::Unconfirmed);
    assert!(refused.to_string().contains("refused"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn a_session_is_not_let_go_before_its_first_message_is_here() -> Result<(), BoxError> {
    let mut settings = Settings::default();
    settings.requires_session = true;
    let emulator = Emulator::builder().queue(QUEUE, settings).start().await?;
    let sessions = Sessions::concurrent(1).idle(Duration::ZERO);
    let transport = ServiceBus::options(QUEUE).sessions(sessions);
    let transport = transport.connect(&emulator.connection_string()).await?;
    let mut message = Message::new("").with_id("a");
    message.properties_mut().session_id = Some("s".to_owned());
    transport.publish(message).await?;
    let transport = start(transport, 1).await?;
    assert_eq!(transport.next_within(TIMEOUT).await.delivery.id(), "a");
    Ok(())
}

#[tokio::test]
async fn locks_may_be_renewed_and_sessions_held_without_an_end() -> Result<(), BoxError> {
    let mut in_sessions = Settings::default();
    in_sessions.requires_session = true;
    let emulator = Emulator::builder().queue(QUEUE, Settings::default()).queue("sessions", in_sessions);
    let emulator = emulator.start().await?;
    let options = ServiceBus::options(QUEUE).max_lock_renewal(Duration::MAX);
    let sessions = ServiceBus::options("sessions").max_lock_renewal(Duration::MAX);
    let sessions = sessions.sessions(Sessions::concurrent(1).idle(Duration::MAX));
    for options in [options, sessions] {
        let transport = options.connect(&emulator.connection_string()).await?;
        for id in ["first", "second"] {
            let mut message = Message::new("").with_id(id);
            message.properties_mut().session_id = Some("s".into());
            transport.publish(message).await?;
        }
        let transport = start(transport, 1).await?;
        for id in ["first", "second"] {
            let received = transport.next_within(TIMEOUT).await;
            assert_eq!(received.delivery.id(), id);
            let done = transport.settle(received.receipt, Settlement::Complete).await;
            done.map_err(|error| error.error)?;
        }
        transport.close().await;
    }
    Ok(())
}

fn panics_when_interrupted() -> Signals {
    Signals::to(|signal| assert!(!matches!(signal, Signal::Interrupted { .. }), "as the test asks"))
}

/// A listener of the application panics in the task that receives deliveries.
#[tokio::test]
async fn a_panic_while_deliveries_are_taken_is_an_error_for_who_waits() -> Result<(), BoxError> {
    let mut in_sessions = Settings::default();
    in_sessions.requires_session = true;
    let emulator = Emulator::builder().queue(QUEUE, Settings::default()).queue("sessions", in_sessions);
    let emulator = emulator.start().await?;
    let sessions = ServiceBus::options("sessions").sessions(Sessions::concurrent(2));
    for options in [ServiceBus::options(QUEUE), sessions] {
        let transport = options.connect(&emulator.connection_string()).await?;
        let mut message = Message::new("").with_id("a");
        message.properties_mut().session_id = Some("s".to_owned());
        transport.publish(message).await?;
        let signals = panics_when_interrupted();
        let (receiver, _) = transport.open(&Needs::none(), signals).await?;
        receiver.set_limit(1).await?;
        let _held = timeout(TIMEOUT, receiver.receive()).await??.expect("it is there");
        emulator.restart().await?;
        for _ in 0..2 {
            let told = timeout(TIMEOUT, receiver.receive()).await.expect("nobody waits for ever");
            let error = told.expect_err("nothing is taken any more").to_string();
            assert!(error.contains("panicked") && error.contains("connect another transport"), "{error}");
            receiver.set_limit(1).await.expect_err("nothing can be taken any more");
        }
        timeout(TIMEOUT, receiver.set_limit(0)).await.expect("nothing comes")?;
        timeout(TIMEOUT, transport.close()).await.expect("it ends");
    }
    Ok(())
}

/// A listener panics in the task that renews locks: the locks of deliveries in flight expire.
#[tokio::test]
async fn a_panic_while_locks_are_renewed_is_an_error_for_who_waits() -> Result<(), BoxError> {
    let mut settings = Settings::default();
    settings.lock_duration = Duration::from_secs(5);
    let emulator = Emulator::builder().queue(QUEUE, settings).start().await?;
    let options = ServiceBus::options(QUEUE).max_lock_renewal(Duration::ZERO);
    let transport = options.connect(&emulator.connection_string()).await?;
    transport.publish(Message::new("").with_id("a")).await?;
    let signals = panics_when_interrupted();
    let (receiver, _) = transport.open(&Needs::none(), signals).await?;
    receiver.set_limit(1).await?;
    let _held = timeout(TIMEOUT, receiver.receive()).await??.expect("it is there");
    let told = timeout(TIMEOUT, receiver.receive()).await.expect("nobody waits for ever");
    let error = told.expect_err("no lock is renewed any more").to_string();
    assert!(error.contains("panicked"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_wait_without_an_end_is_scheduled() -> Result<(), BoxError> {
    let emulator = Emulator::builder().queue(QUEUE, Settings::default()).start().await?;
    let transport = ServiceBus::connect(&emulator.connection_string(), QUEUE).await?;
    transport.publish(Message::new("").with_id("later")).await?;
    let transport = start(transport, 1).await?;
    let received = transport.next_within(TIMEOUT).await;
    let copy = received.delivery.message().clone();
    let waits = Settlement::Reschedule { wait: Duration::MAX, copy };
    transport.settle(received.receipt, waits).await.map_err(|error| error.error)?;
    let waiting = emulator.entity(QUEUE)?.messages();
    assert_eq!(waiting.len(), 1);
    Ok(())
}

/// Forwards everything to `target` until `deaf` is set. From then on it drops what the first client sends, and still forwards
/// what the broker sends. Returns the port to connect to.
async fn a_wire(target: SocketAddr, deaf: Arc<AtomicBool>) -> std::io::Result<u16> {
    let mut deaf = Some(deaf);
    crate::proxy::accepting(move |client| {
        let deaf = deaf.take();
        async move {
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_broker, mut to_broker) = TcpStream::connect(target).await?.into_split();
            tokio::spawn(async move { copy(&mut from_broker, &mut to_client).await });
            let mut buffer = vec![0; 64 * 1024];
            loop {
                let read = from_client.read(&mut buffer).await?;
                if read == 0 {
                    return Ok(());
                }
                if !deaf.as_ref().is_some_and(|deaf| deaf.load(Ordering::Acquire)) {
                    to_broker.write_all(&buffer[..read]).await?;
                }
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_connection_that_is_dead_in_one_direction_is_given_up() -> Result<(), BoxError> {
    // A message that the broker delivers on the dead connection is redelivered after this time.
    let mut settings = Settings::default();
    settings.lock_duration = Duration::from_secs(5);
    let emulator = Emulator::builder().queue(QUEUE, settings).start().await?;
    let deaf = Arc::new(AtomicBool::new(false));
    let port = a_wire(emulator.address(), Arc::clone(&deaf)).await?.to_string();
    let address = emulator.connection_string().replace(&emulator.address().port().to_string(), &port);
    let transport = ServiceBus::connect(&address, QUEUE).await?;
    transport.publish(Message::new("").with_id("a")).await?;
    // Only "a" and "b": any other arrival would be a sign of life of the connection.
    let transport = start(transport, 2).await?;
    let held = transport.next_within(TIMEOUT).await;
    deaf.store(true, Ordering::Release);
    // Each attempt times out, the last one on the new connection.
    let stored = async { while transport.publish(Message::new("").with_id("c")).await.is_err() {} };
    let (unanswered, stored) =
        tokio::join!(transport.settle(held.receipt, Settlement::Complete), timeout(TIMEOUT, stored));
    stored?;
    drop(unanswered.expect_err("nobody heard it"));
    eventually("the last message is settled", async || {
        let Received { delivery, receipt } = transport.next_within(TIMEOUT).await;
        // The settlement of an expired lock is refused.
        transport.settle(receipt, Settlement::Complete).await.is_ok() && delivery.id() == "c"
    })
    .await;
    Ok(())
}
