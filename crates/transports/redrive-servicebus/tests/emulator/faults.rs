//! Tests of faults: connections, locks, answers, and configuration.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive_consumer::Consumer;
use redrive_contract::{Started, eventually};
use redrive_core::transport::{Needs, Received, Receiver, Settlement, Signal, Signals};
use redrive_core::{
    BoxError, Delivery, Disposition, Failure, Message, Shelf, Shelves, Transport, TransportErrorKind,
};
use redrive_servicebus::ServiceBus;
use redrive_servicebus_emulator::{Effect, Emulator, EntityView, Fault, Settings, Step};
use tokio::time::timeout;

const QUEUE: &str = "orders";
const TIMEOUT: Duration = Duration::from_secs(120);
/// The duration of locks that must not expire while a stalled machine does not renew them.
const LONGER_THAN_A_STALL: Duration = Duration::from_secs(20);

async fn emulator(settings: Settings) -> Result<Emulator, BoxError> {
    Ok(Emulator::builder().queue(QUEUE, settings).start().await?)
}

async fn started(emulator: &Emulator) -> Result<Started<ServiceBus>, BoxError> {
    let options = ServiceBus::options(QUEUE).max_wait_time(TIMEOUT);
    let transport = options.connect(&emulator.connection_string()).await?;
    let mut needs = Needs::none();
    needs.prefetch = 10;
    Ok(Started::open(transport, &needs).await?)
}

fn retry(transport: &Started<ServiceBus>, delivery: &Delivery) -> Settlement {
    transport
        .plan(delivery, Disposition::Retry(Duration::ZERO, Failure::custom("Broken", "it does not work")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_whose_broker_is_killed_is_interrupted_until_it_is_back() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = ServiceBus::options(QUEUE).connect(&emulator.connection_string()).await?;
    let runner = Consumer::new(transport).handler(async || ());
    let handle = runner.handle();
    let running = tokio::spawn(runner.run());
    eventually("it runs", async || handle.health().is_ready()).await;
    emulator.crash().await;
    eventually("it is interrupted", async || handle.health().interrupted_for.is_some()).await;
    let health = handle.health();
    assert!(health.is_live() && !health.is_ready() && health.error.is_some(), "{health}");
    emulator.restart().await?;
    eventually("it has recovered", async || handle.health().is_ready()).await;
    handle.stop();
    running.await??;
    Ok(())
}

/// What was lost is redelivered when the connection is back, which may be long after it was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interruption_is_signalled_again_before_redeliveries() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = ServiceBus::options(QUEUE).connect(&emulator.connection_string()).await?;
    let seen = Arc::<Mutex<Vec<&str>>>::default();
    let record = Arc::clone(&seen);
    let signals = Signals::to(move |signal| {
        record.lock().expect("no panic").push(match signal {
            Signal::Interrupted { .. } => "interrupted",
            Signal::Disconnected(_) => "disconnected",
            Signal::Connected => "connected",
            _ => "other",
        });
    });
    let (receiver, _) = transport.open(&Needs::none(), signals).await?;
    receiver.set_limit(1).await?;
    let last = || seen.lock().expect("no panic").last().copied();
    eventually("it is attached", async || last() == Some("connected")).await;
    emulator.crash().await;
    eventually("it is cut", async || last() == Some("disconnected")).await;
    emulator.restart().await?;
    eventually("it is attached again", async || last() == Some("connected")).await;
    let seen = seen.lock().expect("no panic").clone();
    assert!(seen.ends_with(&["disconnected", "interrupted", "connected"]), "{seen:?}");
    Ok(())
}

fn view(emulator: &Emulator) -> EntityView {
    emulator.entity(QUEUE).expect("it is there")
}

#[tokio::test]
async fn a_delivery_in_hand_outlives_its_connection() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = started(&emulator).await?;
    transport.publish(Message::new("").with_id("a")).await?;
    let held = transport.next_within(TIMEOUT).await;
    emulator.drop_connections();
    eventually("it connects again", async || transport.interruptions() > 0 && emulator.connections() == 1)
        .await;
    transport.settle(held.receipt, Settlement::Complete).await.map_err(|refused| refused.error)?;
    assert!(view(&emulator).messages().is_empty());
    transport.publish(Message::new("").with_id("b")).await?;
    assert_eq!(transport.next_within(TIMEOUT).await.delivery.id(), "b");
    Ok(())
}

#[tokio::test]
async fn a_link_that_is_detached_is_attached_again() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = started(&emulator).await?;
    transport.publish(Message::new("").with_id("a")).await?;
    let held = transport.next_within(TIMEOUT).await;
    emulator.detach(QUEUE);
    transport.publish(Message::new("").with_id("b")).await.ok();
    eventually("it noticed", async || transport.interruptions() > 0).await;
    transport.settle(held.receipt, Settlement::Complete).await.map_err(|refused| refused.error)?;
    transport.publish(Message::new("").with_id("c")).await?;
    while transport.next_within(TIMEOUT).await.delivery.id() != "c" {}
    Ok(())
}

/// Azure detaches links that are idle for ten minutes. Here it is one minute, less than a lock lasts.
#[tokio::test]
async fn the_first_message_after_idle_minutes_is_sent() -> Result<(), BoxError> {
    let idle = Duration::from_secs(60);
    let mut settings = Settings::default();
    settings.lock_duration = 5 * idle;
    let emulator = Emulator::builder().queue(QUEUE, settings).virtual_clock().detach_idle_links(idle);
    let emulator = emulator.start().await?;
    let transport = started(&emulator).await?;
    let detached = async || {
        let before = transport.interruptions();
        emulator.advance(idle);
        // The receiving link is detached at the same time.
        eventually("its links are detached", async || transport.interruptions() > before).await;
        // Answered on the same connection, behind the detaches.
        transport.shelves().browse(Shelf::DeadLetter, None, 1).await.expect("answered");
    };
    transport.publish(Message::new("").with_id("a")).await?;
    let first = transport.next_within(TIMEOUT).await;
    transport.settle(first.receipt, Settlement::Complete).await.map_err(|refused| refused.error)?;
    detached().await;
    transport.publish(Message::new("").with_id("b")).await?;
    let retried = transport.next_within(TIMEOUT).await;
    assert_eq!(retried.delivery.id(), "b");
    detached().await;
    let settlement = retry(&transport, &retried.delivery);
    transport.settle(retried.receipt, settlement).await.map_err(|refused| refused.error)?;
    assert_eq!(transport.next_within(TIMEOUT).await.delivery.attempt(), 2);
    Ok(())
}

#[tokio::test]
async fn a_lost_lock_is_lost_and_costs_no_attempt() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = started(&emulator).await?;
    for way in ["complete", "retry", "dead-letter"] {
        transport.publish(Message::new("").with_id(way)).await?;
        let held = transport.next_within(TIMEOUT).await;
        assert_eq!(view(&emulator).expire_locks(), 1);
        let settlement = match way {
            "complete" => Settlement::Complete,
            "retry" => retry(&transport, &held.delivery),
            _ => transport.plan(&held.delivery, Disposition::DeadLetter(Failure::custom("Broken", "text"))),
        };
        let refused = transport.settle(held.receipt, settlement).await.expect_err("the lock is lost");
        assert_eq!(refused.error.kind(), TransportErrorKind::Lost, "{way}: {}", refused.error);
        let again = transport.next_within(TIMEOUT).await;
        assert_eq!(
            (again.delivery.id(), again.delivery.attempt(), again.delivery.broker_delivery_count()),
            (way, 1, 2)
        );
        transport.settle(again.receipt, Settlement::Complete).await.map_err(|refused| refused.error)?;
        assert!(view(&emulator).messages().is_empty(), "{way}: a copy was left");
    }
    Ok(())
}

/// Messages that are retried at the same time share one transaction, which is refused because of one of them.
#[tokio::test]
async fn a_copy_that_is_too_large_holds_up_no_other() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = started(&emulator).await?;
    for number in 0..10 {
        // Together with the history, more than 256 KiB.
        let body = if number == 5 { vec![b'x'; 256 * 1024 - 150] } else { Vec::new() };
        transport.publish(Message::new(body).with_id(number.to_string())).await?;
    }
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(transport.next_within(TIMEOUT).await);
    }
    let settled = held.into_iter().map(|Received { delivery, receipt, .. }| {
        let settlement = retry(&transport, &delivery);
        let transport = &transport;
        async move { (delivery.id().to_owned(), transport.settle(receipt, settlement).await) }
    });
    let mut kept = Vec::new();
    for (id, settled) in futures::future::join_all(settled).await {
        match settled {
            Ok(()) => assert_ne!(id, "5"),
            Err(refused) => {
                assert_eq!(id, "5", "{}", refused.error);
                kept.extend(refused.receipt);
            }
        }
    }
    assert_eq!(kept.len(), 1, "it stays in flight");
    for _ in 0..9 {
        let again = transport.next_within(TIMEOUT).await;
        assert_eq!(again.delivery.attempt(), 2);
        transport.settle(again.receipt, Settlement::Complete).await.map_err(|refused| refused.error)?;
    }
    Ok(())
}

#[tokio::test]
async fn locks_are_renewed_for_as_long_as_it_takes() -> Result<(), BoxError> {
    let mut settings = Settings::default();
    settings.lock_duration = LONGER_THAN_A_STALL;
    let emulator = emulator(settings).await?;
    let transport = started(&emulator).await?;
    for id in ["a", "b", "c"] {
        transport.publish(Message::new("").with_id(id)).await?;
    }
    let held = [
        transport.next_within(TIMEOUT).await,
        transport.next_within(TIMEOUT).await,
        transport.next_within(TIMEOUT).await,
    ];
    let until = || view(&emulator).messages().iter().filter_map(|message| message.locked_until).min();
    let first = until();
    for _ in 0..2 {
        let before = until();
        eventually("the locks are renewed", async || until() > before).await;
    }
    assert!(until() > first);
    for received in held {
        assert_eq!(received.delivery.broker_delivery_count(), 1);
        transport.settle(received.receipt, Settlement::Complete).await.map_err(|refused| refused.error)?;
    }
    assert!(view(&emulator).messages().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_lock_is_renewed_no_longer_than_allowed() -> Result<(), BoxError> {
    let mut settings = Settings::default();
    settings.lock_duration = Duration::from_secs(1);
    let emulator = emulator(settings).await?;
    let options = ServiceBus::options(QUEUE).max_lock_renewal(Duration::from_millis(100));
    let transport = options.connect(&emulator.connection_string()).await?;
    let transport = Started::open(transport, &Needs::none()).await?;
    transport.publish(Message::new("").with_id("a")).await?;
    let held = transport.next_within(TIMEOUT).await;
    timeout(TIMEOUT, transport.lost(&held.receipt)).await.expect("the lock runs out");
    let refused = transport.settle(held.receipt, Settlement::Complete).await.expect_err("the lock is lost");
    assert_eq!(refused.error.kind(), TransportErrorKind::Lost);
    Ok(())
}

#[tokio::test]
async fn duplicate_detection_swallows_no_retry_and_no_redrive() -> Result<(), BoxError> {
    let mut settings = Settings::default();
    settings.duplicate_detection = Some(Duration::from_secs(600));
    let emulator = emulator(settings).await?;
    let transport = started(&emulator).await?;
    transport.publish(Message::new("").with_id("a")).await?;
    for attempt in 1..4 {
        let received = transport.next_within(TIMEOUT).await;
        assert_eq!((received.delivery.id(), received.delivery.attempt()), ("a", attempt));
        let settlement = retry(&transport, &received.delivery);
        transport.settle(received.receipt, settlement).await.map_err(|refused| refused.error)?;
    }
    let received = transport.next_within(TIMEOUT).await;
    let settlement =
        transport.plan(&received.delivery, Disposition::DeadLetter(Failure::custom("Broken", "text")));
    transport.settle(received.receipt, settlement).await.map_err(|refused| refused.error)?;
    let all = redrive_core::shelves::Selection::All;
    assert_eq!(transport.shelves().redrive(Shelf::DeadLetter, &all).await?.into_result()?, 1);
    let again = transport.next_within(TIMEOUT).await;
    assert_eq!((again.delivery.id(), again.delivery.attempt()), ("a", 1));
    Ok(())
}

#[tokio::test]
async fn a_commit_that_is_not_answered_leaves_one_message() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = started(&emulator).await?;
    transport.publish(Message::new("").with_id("a")).await?;
    let received = transport.next_within(TIMEOUT).await;
    emulator.inject(Fault::new(Step::Commit, Effect::DropConnection));
    let settlement = retry(&transport, &received.delivery);
    let refused = transport.settle(received.receipt, settlement.clone()).await.expect_err("no answer came");
    // The settlement was carried out without an answer: another attempt finds the lock lost, and stores nothing.
    let mut receipt = refused.receipt.expect("it may still be in flight");
    let refused = timeout(TIMEOUT, async {
        loop {
            let tried = transport.settle(receipt, settlement.clone()).await;
            let refused = tried.expect_err("it was done already");
            match refused.receipt {
                // The connection ended before an answer came.
                Some(again) => receipt = again,
                None => break refused,
            }
        }
    });
    let refused = refused.await.expect("it is said in the end");
    assert_eq!(refused.error.kind(), TransportErrorKind::Lost, "{}", refused.error);
    assert_eq!(view(&emulator).messages().len(), 1);
    assert_eq!(transport.next_within(TIMEOUT).await.delivery.attempt(), 2);
    Ok(())
}

#[tokio::test]
async fn a_copy_that_is_refused_leaves_the_delivery_in_hand() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = started(&emulator).await?;
    transport.publish(Message::new("").with_id("a")).await?;
    let received = transport.next_within(TIMEOUT).await;
    let settlement = retry(&transport, &received.delivery);
    let mut receipt = received.receipt;
    for (step, effect) in [
        (Step::Send, Effect::server_busy()),
        (Step::Request, Effect::server_busy()),
        (Step::Commit, Effect::Refuse { condition: "amqp:transaction:rollback".to_owned() }),
    ] {
        emulator.inject(Fault::new(step, effect));
        let refused = transport.settle(receipt, settlement.clone()).await.expect_err("it was refused");
        assert_eq!(refused.error.kind(), TransportErrorKind::Unconfirmed, "{step:?}: {}", refused.error);
        receipt = refused.receipt.expect("it is still in flight");
        assert_eq!(
            view(&emulator).messages().len(),
            1,
            "{step:?}: a copy was left of what was not committed"
        );
    }
    transport.settle(receipt, settlement).await.map_err(|refused| refused.error)?;
    assert_eq!(transport.next_within(TIMEOUT).await.delivery.attempt(), 2);
    Ok(())
}

#[tokio::test]
async fn a_description_is_as_long_as_it_may_be() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = started(&emulator).await?;
    transport.publish(Message::new("").with_id("a")).await?;
    let received = transport.next_within(TIMEOUT).await;
    let failure = Failure::custom("Reason 👋".repeat(1000), "text 👋".repeat(5000));
    let settlement = transport.plan(&received.delivery, Disposition::DeadLetter(failure));
    transport.settle(received.receipt, settlement).await.map_err(|refused| refused.error)?;
    let shelved = transport.shelves().browse(Shelf::DeadLetter, None, 10).await?.entries;
    assert!(shelved[0].history.error.as_ref().is_some_and(|error| error.contains("👋")));
    Ok(())
}

#[tokio::test]
async fn what_the_broker_dead_lettered_itself_is_told_and_found_by_its_reason() -> Result<(), BoxError> {
    let mut settings = Settings::default();
    settings.max_delivery_count = 1;
    let emulator = emulator(settings).await?;
    let transport = started(&emulator).await?;
    transport.publish(Message::new("").with_id("a")).await?;
    drop(transport.next_within(TIMEOUT).await);
    let dead = emulator.entity("orders/$DeadLetterQueue")?;
    eventually("it is dead-lettered", async || !dead.messages().is_empty()).await;
    let shelves = transport.shelves();
    let shelved = shelves.browse(Shelf::DeadLetter, None, 10).await?.entries;
    assert_eq!(shelved[0].broker_reason.as_deref(), Some("MaxDeliveryCountExceeded"));
    let which = redrive_core::shelves::Selection::Reason("MaxDeliveryCountExceeded".to_owned());
    assert_eq!(shelves.redrive(Shelf::DeadLetter, &which).await?.into_result()?, 1);
    let again = transport.next_within(TIMEOUT).await;
    assert_eq!((again.delivery.id(), again.delivery.broker_delivery_count()), ("a", 1));
    Ok(())
}

#[tokio::test]
async fn an_unknown_entity_is_named_at_the_start() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = ServiceBus::connect(&emulator.connection_string(), "nobody").await?;
    let error = transport.open(&Needs::none(), Signals::ignored()).await.expect_err("there is none");
    assert_eq!(error.kind(), TransportErrorKind::Topology, "{error}");
    assert!(error.to_string().contains("`nobody`"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_wrong_key_is_refused_and_not_shown() -> Result<(), BoxError> {
    let emulator =
        Emulator::builder().queue(QUEUE, Settings::default()).key("Root", "the-right-one").start().await?;
    let wrong = emulator.connection_string().replace("the-right-one", "hunter2");
    let transport = ServiceBus::connect(&wrong, QUEUE).await?;
    let error = transport.open(&Needs::none(), Signals::ignored()).await.expect_err("the key is wrong");
    assert_eq!(error.kind(), TransportErrorKind::Unauthorized, "{error}");
    assert!(!format!("{error} {transport:?}").contains("hunter2"), "{error}");
    let right = ServiceBus::connect(&emulator.connection_string(), QUEUE).await?;
    Started::open(right, &Needs::none()).await?;
    Ok(())
}

#[tokio::test]
async fn a_held_lock_keeps_the_place_of_a_message() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let options = ServiceBus::options(QUEUE).hold_lock_up_to(Duration::from_secs(1));
    let transport = options.connect(&emulator.connection_string()).await?;
    let mut needs = Needs::none();
    needs.prefetch = 1;
    let transport = Started::open(transport, &needs).await?;
    for id in ["a", "b"] {
        transport.publish(Message::new("").with_id(id)).await?;
    }
    for attempt in 1..4 {
        let received = transport.next_within(TIMEOUT).await;
        assert_eq!((received.delivery.id(), received.delivery.attempt()), ("a", attempt));
        let settlement = transport.plan(
            &received.delivery,
            Disposition::Retry(Duration::from_millis(20), Failure::custom("Broken", "text")),
        );
        assert!(matches!(settlement, Settlement::RetryInPlace { .. }), "{settlement:?}");
        transport.settle(received.receipt, settlement).await.map_err(|refused| refused.error)?;
    }
    let received = transport.next_within(TIMEOUT).await;
    assert_eq!(received.delivery.id(), "a");
    transport.settle(received.receipt, Settlement::Complete).await.map_err(|refused| refused.error)?;
    assert_eq!(transport.next_within(TIMEOUT).await.delivery.id(), "b");
    Ok(())
}

#[tokio::test]
async fn an_entity_that_does_not_answer_holds_up_no_settlement_of_another() -> Result<(), BoxError> {
    let builder = Emulator::builder().queue(QUEUE, Settings::default());
    let emulator = builder.queue("parked", Settings::default()).start().await?;
    let options = ServiceBus::options(QUEUE).parking_queue("parked").max_wait_time(TIMEOUT);
    let transport = options.connect(&emulator.connection_string()).await?;
    let shelves = transport.shelves();
    let transport = Started::open(transport, &Needs::none()).await?;
    transport.publish(Message::new("").with_id("a")).await?;
    let delivery = transport.next_within(TIMEOUT).await;
    // The first use of the parking queue needs a token for it.
    emulator.inject(Fault::new(Step::Cbs, Effect::DelayReply(LONGER_THAN_A_STALL)));
    let mut browsing = std::pin::pin!(shelves.browse(Shelf::Parking, None, 10));
    tokio::select! {
        page = &mut browsing => panic!("not held up: {page:?}"),
        () = tokio::time::sleep(Duration::from_millis(100)) => {}
    }
    tokio::select! {
        biased;
        page = &mut browsing => panic!("answered before the settlement: {page:?}"),
        settled = transport.settle(delivery.receipt, Settlement::Complete) => settled.expect("settled"),
    }
    transport.close().await;
    Ok(())
}

/// The handler takes most of the time for which the lock is renewed, and then the wait begins.
#[tokio::test]
async fn a_lock_is_held_for_a_whole_wait() -> Result<(), BoxError> {
    let lock = LONGER_THAN_A_STALL;
    let mut settings = Settings::default();
    settings.lock_duration = lock;
    let emulator = emulator(settings).await?;
    let options = ServiceBus::options(QUEUE).hold_lock_up_to(lock).max_lock_renewal(lock);
    let transport = options.connect(&emulator.connection_string()).await?;
    let transport = Started::open(transport, &Needs::none()).await?;
    transport.publish(Message::new("").with_id("a")).await?;
    let received = transport.next_within(TIMEOUT).await;
    tokio::time::sleep(lock * 3 / 4).await;
    let settlement =
        transport.plan(&received.delivery, Disposition::Retry(lock, Failure::custom("Broken", "text")));
    assert!(matches!(settlement, Settlement::RetryInPlace { .. }), "{settlement:?}");
    transport.settle(received.receipt, settlement).await.map_err(|refused| refused.error)?;
    assert_eq!(transport.next_within(TIMEOUT).await.delivery.attempt(), 2);
    assert_eq!(transport.interruptions(), 0, "the lock expired before the wait was over");
    Ok(())
}
