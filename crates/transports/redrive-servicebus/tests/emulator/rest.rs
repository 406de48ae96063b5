//! Tests of the REST API on the emulator: faults, and both protocols on the same entities.

use std::collections::BTreeSet;
use std::time::Duration;

use redrive_contract::{Started, eventually};
use redrive_core::shelves::Selection;
use redrive_core::transport::{Needs, Received, Settlement, Signals};
use redrive_core::{BoxError, Disposition, Failure, Message, Shelf, Shelves, Transport, TransportErrorKind};
use redrive_servicebus::{Backend, Options, Receipt, ServiceBus};
use redrive_servicebus_emulator::{Effect, Emulator, Fault, Settings, Step};
use tokio::time::timeout;

const QUEUE: &str = "orders";
const DEAD: &str = "orders-dead";
const TIMEOUT: Duration = Duration::from_secs(120);

async fn emulator(settings: Settings) -> Result<Emulator, BoxError> {
    let builder = Emulator::builder().queue(QUEUE, settings).queue(DEAD, Settings::default());
    Ok(builder.listen_http("127.0.0.1:0").start().await?)
}

fn address(emulator: &Emulator) -> Result<String, BoxError> {
    emulator.http_connection_string().ok_or_else(|| "the emulator does not listen for HTTP".into())
}

fn options() -> Options {
    let options = ServiceBus::options(QUEUE).backend(Backend::Rest).dead_letter_queue(DEAD);
    options.poll_wait(Duration::from_secs(1))
}

async fn started(emulator: &Emulator) -> Result<Started<ServiceBus>, BoxError> {
    let transport = options().connect(&address(emulator)?).await?;
    let mut needs = Needs::none();
    needs.prefetch = 100;
    Ok(Started::open(transport, &needs).await?)
}

fn retry(transport: &Started<ServiceBus>, received: &Received<Receipt>) -> Settlement {
    let failure = Failure::custom("Broken", "it does not work");
    transport.plan(&received.delivery, Disposition::Retry(Duration::ZERO, failure))
}

async fn complete(transport: &Started<ServiceBus>, receipt: Receipt) {
    let settled = transport.settle(receipt, Settlement::Complete).await;
    settled.unwrap_or_else(|refused| panic!("{}", refused.error));
}

#[tokio::test]
async fn both_protocols_carry_the_same_message() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let by_amqp = ServiceBus::connect(&emulator.connection_string(), QUEUE).await?;
    let mut message = Message::new(vec![0_u8, 159, 255]).with_id("a").with_content_type("image/x");
    message.headers_mut().insert("Mixed-Case", "over AMQP names keep their case");
    by_amqp.publish(message).await?;

    let by_rest = started(&emulator).await?;
    let received = by_rest.next_within(TIMEOUT).await;
    assert_eq!(&received.delivery.message().body()[..], [0, 159, 255]);
    assert_eq!(received.delivery.message().properties().content_type.as_deref(), Some("image/x"));
    assert!(received.delivery.message().headers().contains("mixed-case"), "HTTP knows no upper case");
    let settlement = retry(&by_rest, &received);
    let Settlement::Reschedule { copy, .. } = &settlement else { panic!("{settlement:?}") };
    let copy = copy.clone();
    by_rest.settle(received.receipt, settlement).await.map_err(|refused| refused.error)?;
    by_rest.close().await;

    let mut needs = Needs::none();
    needs.prefetch = 10;
    let by_amqp = Started::open(by_amqp, &needs).await?;
    let again = by_amqp.next_within(TIMEOUT).await;
    assert_eq!((again.delivery.attempt(), again.delivery.id()), (2, "a"));
    assert_eq!(again.delivery.message().headers(), copy.headers());
    assert_eq!(again.delivery.message().body(), copy.body());
    complete(&by_amqp, again.receipt).await;
    Ok(())
}

#[tokio::test]
async fn requests_at_once_take_every_message_once() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = started(&emulator).await?;
    for n in 0..100 {
        transport.publish(Message::new("").with_id(format!("m{n}"))).await?;
    }
    let mut seen = BTreeSet::new();
    for _ in 0..100 {
        let received = transport.next_within(TIMEOUT).await;
        assert!(seen.insert(received.delivery.id().to_owned()), "twice: {}", received.delivery.id());
        complete(&transport, received.receipt).await;
    }
    assert_eq!(emulator.entity(QUEUE)?.messages().len(), 0);
    transport.close().await;
    Ok(())
}

#[tokio::test]
async fn no_request_waits_longer_than_the_consumer_asks() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = options().poll_wait(Duration::from_secs(60)).connect(&address(&emulator)?).await?;
    let mut needs = Needs::none();
    needs.prefetch = 2;
    needs.max_wait_time = Some(Duration::from_secs(1));
    let transport = Started::open(transport, &needs).await?;
    transport.publish(Message::new("")).await?;
    let received = transport.next_within(TIMEOUT).await;
    complete(&transport, received.receipt).await;
    // The next request already waits, and the close waits for it.
    timeout(Duration::from_secs(20), transport.close()).await?;
    Ok(())
}

#[tokio::test]
async fn a_lock_is_renewed_for_as_long_as_its_delivery_is_in_hand() -> Result<(), BoxError> {
    let mut settings = Settings::default();
    settings.lock_duration = Duration::from_secs(20);
    let emulator = emulator(settings).await?;
    let transport = started(&emulator).await?;
    transport.publish(Message::new("").with_id("a")).await?;
    let held = transport.next_within(TIMEOUT).await;
    let locked_until = || -> Result<_, BoxError> { Ok(emulator.entity(QUEUE)?.messages()[0].locked_until) };
    let at_first = locked_until()?;
    eventually("the lock is renewed", async || locked_until().is_ok_and(|until| until != at_first)).await;
    complete(&transport, held.receipt).await;
    Ok(())
}

#[tokio::test]
async fn what_is_no_longer_locked_is_lost_and_comes_again() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = started(&emulator).await?;
    transport.publish(Message::new("").with_id("a")).await?;
    let held = transport.next_within(TIMEOUT).await;
    emulator.entity(QUEUE)?.expire_locks();
    let refused = transport.settle(held.receipt, Settlement::Complete).await.expect_err("it is lost");
    assert_eq!(refused.error.kind(), TransportErrorKind::Lost);
    let again = transport.next_within(TIMEOUT).await;
    assert_eq!((again.delivery.id(), again.delivery.broker_delivery_count()), ("a", 2));
    Ok(())
}

#[tokio::test]
async fn where_the_original_is_not_deleted_both_are_left() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = started(&emulator).await?;
    transport.publish(Message::new("").with_id("a")).await?;
    let received = transport.next_within(TIMEOUT).await;
    let settlement = retry(&transport, &received);
    emulator.inject(
        Fault::new(Step::Settle, Effect::Refuse { condition: "amqp:internal-error".into() }).on(QUEUE),
    );
    let refused = transport.settle(received.receipt, settlement).await.expect_err("it is not deleted");
    assert!(refused.copy_stored);
    // Only the lock of the original: the copy may already be in flight.
    emulator.entity(QUEUE)?.expire_lock(1)?;
    let mut hops: Vec<u32> = Vec::new();
    for _ in 0..2 {
        let received = transport.next_within(TIMEOUT).await;
        hops.push(received.delivery.history().copy_number);
        complete(&transport, received.receipt).await;
    }
    hops.sort_unstable();
    assert_eq!(hops, [0, 1], "the original and its copy");
    Ok(())
}

#[tokio::test]
async fn where_the_copy_is_not_stored_the_original_stays_in_flight() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = started(&emulator).await?;
    transport.publish(Message::new("").with_id("a")).await?;
    let received = transport.next_within(TIMEOUT).await;
    emulator.inject(Fault::new(Step::Send, Effect::server_busy()).on(DEAD));
    let settlement =
        transport.plan(&received.delivery, Disposition::DeadLetter(Failure::custom("Broken", "for good")));
    let refused = transport.settle(received.receipt, settlement.clone()).await.expect_err("it is busy");
    let receipt = refused.receipt.expect("it is still in flight");
    transport.settle(receipt, settlement).await.map_err(|refused| refused.error)?;
    assert_eq!(emulator.entity(QUEUE)?.messages().len(), 0);
    let shelved = transport.shelves().browse(Shelf::DeadLetter, None, 10).await?.entries;
    assert_eq!(shelved.len(), 1);
    Ok(())
}

#[tokio::test]
async fn it_goes_on_after_the_service_was_gone() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = started(&emulator).await?;
    emulator.restart().await?;
    // This request may be the first to notice the dead connection.
    let published = async || transport.publish(Message::new("").with_id("a")).await.is_ok();
    eventually("it can publish again", published).await;
    let received = transport.next_within(TIMEOUT).await;
    assert_eq!(received.delivery.id(), "a");
    let mut receipt = received.receipt;
    let completed = async {
        while let Err(refused) = transport.settle(receipt, Settlement::Complete).await {
            receipt = refused.receipt.ok_or("it is lost")?;
        }
        Ok::<_, BoxError>(())
    };
    timeout(TIMEOUT, completed).await??;
    Ok(())
}

#[tokio::test]
async fn what_the_broker_dead_lettered_is_read_and_redriven() -> Result<(), BoxError> {
    let mut settings = Settings::default();
    settings.max_delivery_count = 1;
    let emulator = emulator(settings).await?;
    let transport = started(&emulator).await?;
    transport.publish(Message::new("").with_id("a")).await?;
    let held = transport.next_within(TIMEOUT).await;
    emulator.entity(QUEUE)?.expire_locks();
    drop(held);
    let reason = Selection::Reason("MaxDeliveryCountExceeded".into());
    assert_eq!(transport.shelves().redrive(Shelf::DeadLetter, &reason).await?.into_result()?, 1);
    assert_eq!(transport.next_within(TIMEOUT).await.delivery.id(), "a");
    assert_eq!(emulator.entity(&format!("{QUEUE}/$DeadLetterQueue"))?.messages().len(), 0);
    Ok(())
}

/// Nobody can send to the dead-letter queue of the broker: a message of it is put back into the queue for dead letters.
#[tokio::test]
async fn what_the_broker_dead_lettered_is_put_back_with_its_reason() -> Result<(), BoxError> {
    let mut settings = Settings::default();
    settings.max_delivery_count = 1;
    let emulator = emulator(settings).await?;
    let transport = options().connect(&address(&emulator)?).await?;
    transport.publish(Message::new("").with_id("a")).await?;
    let transport = started(&emulator).await?;
    drop(transport.next_within(TIMEOUT).await);
    let shelves = transport.shelves();
    eventually("it is dead-lettered", async || shelves.count(Shelf::DeadLetter).await.is_ok_and(|n| n == 1))
        .await;
    let dead = shelves.browse(Shelf::DeadLetter, None, 10).await?.entries.remove(0);
    assert_eq!(dead.broker_reason.as_deref(), Some("MaxDeliveryCountExceeded"));
    shelves.discard(Shelf::DeadLetter, &dead.handle.clone().into()).await?.into_result()?;
    shelves.restore(Shelf::DeadLetter, dead.message.clone()).await?;
    let restored = shelves.browse(Shelf::DeadLetter, None, 10).await?.entries.remove(0);
    assert_eq!((&restored.message, &restored.broker_reason), (&dead.message, &dead.broker_reason));
    assert_eq!(restored.broker_description, dead.broker_description);
    assert_eq!(shelves.redrive(Shelf::DeadLetter, &Selection::All).await?.into_result()?, 1);
    let headers = transport.next_within(TIMEOUT).await.delivery.message().headers().clone();
    assert!(!headers.iter().any(|(name, _)| name.contains("dead-letter")), "{headers:?}");
    Ok(())
}

#[tokio::test]
async fn what_is_missing_or_not_allowed_is_missed_at_the_start() -> Result<(), BoxError> {
    let builder = Emulator::builder().key("root", "right").queue(QUEUE, Settings::default());
    let emulator = builder.listen_http("127.0.0.1:0").start().await?;
    let good = address(&emulator)?;
    let wrong = good.replace("SharedAccessKey=right", "SharedAccessKey=wrong");
    let transport = options().connect(&wrong).await?;
    let error = transport.open(&Needs::none(), Signals::ignored()).await.expect_err("the key is wrong");
    assert_eq!(error.kind(), TransportErrorKind::Unauthorized, "{error}");
    assert!(!error.to_string().contains("wrong"), "{error}");
    let options = ServiceBus::options("nowhere").backend(Backend::Rest).dead_letter_queue(DEAD);
    let error = options
        .connect(&good)
        .await?
        .open(&Needs::none(), Signals::ignored())
        .await
        .expect_err("there is none");
    assert_eq!(error.kind(), TransportErrorKind::Topology, "{error}");
    let transport = ServiceBus::options(QUEUE).backend(Backend::Rest).connect(&good).await?;
    let error =
        transport.open(&Needs::none(), Signals::ignored()).await.expect_err("dead letters have no place");
    assert_eq!(error.kind(), TransportErrorKind::Unsupported, "{error}");
    Ok(())
}

/// Requests of a receiver that has ended still wait at the broker, before those of the next one.
#[tokio::test]
async fn what_a_late_request_locks_is_handed_out_at_once() -> Result<(), BoxError> {
    let mut settings = Settings::default();
    settings.lock_duration = Duration::from_secs(20);
    let emulator = emulator(settings).await?;
    let options = options().poll_wait(Duration::from_secs(3)).concurrent_polls(8);
    let transport = options.connect(&address(&emulator)?).await?;
    let mut needs = Needs::none();
    needs.prefetch = 100;
    let transport = Started::open(transport, &needs).await?;
    // So that more than one request waits.
    for id in ["a", "b", "c"] {
        transport.publish(Message::new("").with_id(id)).await?;
        let received = transport.next_within(TIMEOUT).await;
        complete(&transport, received.receipt).await;
    }
    emulator.inject(Fault::new(Step::Receive, Effect::server_busy()));
    for id in ["d", "e", "f"] {
        transport.publish(Message::new("").with_id(id)).await?;
        let received = transport.next_within(TIMEOUT).await;
        assert_eq!(received.delivery.broker_delivery_count(), 1, "{id} waited for its lock to expire");
        complete(&transport, received.receipt).await;
        // A request has failed, and the next receiver is there.
        eventually("it is back", async || transport.interruptions() > 1).await;
    }
    transport.close().await;
    Ok(())
}

/// A pause waits for a request that is answered late, but not for as long as the request itself.
#[tokio::test]
async fn what_a_request_locks_beyond_a_pause_is_handed_out() -> Result<(), BoxError> {
    // Longer than a pause waits for a request (`poll_wait` and 10 s), and shorter than the request waits (30 s).
    const LATE: Duration = Duration::from_secs(16);
    let mut settings = Settings::default();
    settings.lock_duration = Duration::from_secs(300);
    let emulator = emulator(settings).await?;
    let transport = options().concurrent_polls(1).connect(&address(&emulator)?).await?;
    let mut needs = Needs::none();
    needs.prefetch = 100;
    let transport = Started::open_only(transport, &needs).await?;
    for id in ["a", "b"] {
        transport.publish(Message::new("").with_id(id)).await?;
    }
    emulator.inject(Fault::new(Step::Receive, Effect::DelayReply(LATE)).after(1));
    transport.resume().await?;
    // Its link is not closed while it is in flight.
    let held = transport.next_within(TIMEOUT).await;
    let messages = || emulator.entity(QUEUE).expect("it is there").messages();
    let locked = || messages().iter().all(|message| message.locked_until.is_some());
    eventually("the second one is locked too", async || locked()).await;
    timeout(TIMEOUT, transport.pause()).await??;
    transport.resume().await?;
    let late = transport.next_within(TIMEOUT).await;
    assert_eq!((late.delivery.id(), late.delivery.broker_delivery_count()), ("b", 1));
    for receipt in [held.receipt, late.receipt] {
        complete(&transport, receipt).await;
    }
    transport.close().await;
    Ok(())
}

/// What others send with any name comes in a copy, too, beside the headers of HTTP with the same names.
#[tokio::test]
async fn a_copy_has_the_properties_that_are_named_like_headers_of_http() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let by_amqp = ServiceBus::options(QUEUE).connect(&emulator.connection_string()).await?;
    let mut message = Message::new("body").with_id("a");
    let names = ["link", "age", "server", "date", "location", "via", "x-ms-kind", "content-type", "etag"];
    for name in names {
        message.headers_mut().insert(name, format!("our {name}"));
    }
    by_amqp.publish(message).await?;
    let transport = started(&emulator).await?;
    let received = transport.next_within(TIMEOUT).await;
    let settlement = retry(&transport, &received);
    transport.settle(received.receipt, settlement).await.map_err(|refused| refused.error)?;
    transport.close().await;
    let by_amqp = Started::open(by_amqp, &Needs::none()).await?;
    let copy = by_amqp.next_within(TIMEOUT).await;
    assert_eq!(copy.delivery.attempt(), 2);
    for name in names {
        let value = copy.delivery.message().headers().get(name).and_then(|value| value.as_str());
        assert_eq!(value, Some(&*format!("our {name}")), "{name}");
    }
    Ok(())
}
