//! Tests of redriving a shelf: locks are renewed, a lost lock does not end the work, and one message that cannot be sent does not
//! stop the others.

use std::time::{Duration, Instant};

use redrive_contract::{Started, eventually};
use redrive_core::shelves::{EntryOutcome, Selection};
use redrive_core::transport::Settlement;
use redrive_core::{BoxError, Disposition, Message, Shelf, Shelves as _, TransportError, TransportErrorKind};
use redrive_servicebus::{Options, ServiceBus};
use redrive_servicebus_emulator::{Effect, Emulator, Fault, Settings, Step};

use crate::publishing::dropped_after;

use super::bench::{DEAD_LETTERS, QUEUE, TIMEOUT, broken, emulator, settle_next, started};

/// No lock in this file is shorter.
const SHORT_LOCK: Duration = Duration::from_secs(2);

async fn dead_lettered(
    address: &str,
    options: Options,
    count: usize,
) -> Result<Started<ServiceBus>, BoxError> {
    let transport = started(address, options).await?;
    for number in 0..count {
        let mut since = Instant::now();
        transport.publish(Message::new("").with_id(number.to_string())).await?;
        // On a machine that stalls for longer than a lock lasts, it ends before it is settled: the message comes again.
        while let Err(error) = settle_next(&transport, Disposition::DeadLetter(broken())).await {
            let failed = error.downcast::<TransportError>()?;
            let held = since.elapsed();
            if failed.kind() != TransportErrorKind::Lost || held < SHORT_LOCK {
                return Err(format!("after {held:?}: {failed}").into());
            }
            since = Instant::now();
        }
    }
    Ok(transport)
}

#[tokio::test]
async fn a_redrive_outlives_the_locks_of_what_it_holds() -> Result<(), BoxError> {
    let mut settings = Settings::default();
    settings.lock_duration = SHORT_LOCK;
    let emulator = emulator(settings).await?;
    let transport = dead_lettered(&emulator.connection_string(), ServiceBus::options(QUEUE), 30).await?;
    // Longer in total than a lock.
    let slow = Effect::DelayReply(Duration::from_millis(150));
    emulator.inject(Fault::new(Step::Commit, slow).times(u32::MAX));
    let redriven = transport.shelves().redrive(Shelf::DeadLetter, &Selection::All).await?.into_result()?;
    assert_eq!((redriven, emulator.entity(QUEUE)?.messages().len()), (30, 30));
    assert!(emulator.entity(DEAD_LETTERS)?.messages().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_redrive_goes_on_after_lost_locks() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = dead_lettered(&emulator.connection_string(), ServiceBus::options(QUEUE), 20).await?;
    let slow = Effect::DelayReply(Duration::from_millis(20));
    emulator.inject(Fault::new(Step::Commit, slow).times(u32::MAX));
    let (dead, queue) = (emulator.entity(DEAD_LETTERS)?, emulator.entity(QUEUE)?);
    let lose = async {
        for done in [3, 9] {
            eventually("some are redriven", async || queue.messages().len() >= done).await;
            dead.expire_locks();
        }
    };
    let shelves = transport.shelves();
    let (redriven, ()) = tokio::join!(shelves.redrive(Shelf::DeadLetter, &Selection::All), lose);
    assert_eq!((redriven?.into_result()?, queue.messages().len()), (20, 20));
    assert!(dead.messages().is_empty());
    Ok(())
}

/// A lock that seems lost may still be valid: it expired by the local clock, but not by the clock of the broker.
#[tokio::test]
async fn a_message_whose_lock_only_seemed_lost_is_not_removed() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = dead_lettered(&emulator.connection_string(), ServiceBus::options(QUEUE), 3).await?;
    let refused = Effect::Refuse { condition: "com.microsoft:message-lock-lost".to_owned() };
    emulator.inject(Fault::new(Step::Request, refused).on(DEAD_LETTERS).after(3));
    let redriven = transport.shelves().redrive(Shelf::DeadLetter, &Selection::All).await?.into_result()?;
    assert_eq!((redriven, emulator.entity(QUEUE)?.messages().len()), (3, 3));
    Ok(())
}

/// The same holds for a delivery that is retried.
#[tokio::test]
async fn a_delivery_whose_lock_only_seemed_lost_is_not_removed() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = started(&emulator.connection_string(), ServiceBus::options(QUEUE)).await?;
    transport.publish(Message::new("").with_id("a")).await?;
    let received = transport.next_within(TIMEOUT).await;
    let refused = Effect::Refuse { condition: "com.microsoft:message-lock-lost".to_owned() };
    emulator.inject(Fault::new(Step::Request, refused).on(QUEUE));
    let retry = transport.plan(&received.delivery, Disposition::Retry(Duration::ZERO, broken()));
    let lost = transport.settle(received.receipt, retry).await.expect_err("its lock is said to be lost");
    assert_eq!(lost.error.kind(), redrive_core::TransportErrorKind::Lost);
    assert_eq!(transport.next_within(TIMEOUT).await.delivery.id(), "a");
    Ok(())
}

#[tokio::test]
async fn one_that_cannot_be_carried_stops_no_others() -> Result<(), BoxError> {
    let mut small = Settings::default();
    small.max_message_size = 10_000;
    let emulator =
        Emulator::builder().queue(QUEUE, Settings::default()).queue("retry", small).start().await?;
    let options = ServiceBus::options(QUEUE).retry_queue("retry");
    let transport = started(&emulator.connection_string(), options).await?;
    for size in [1, 20_000, 2] {
        transport.publish(Message::new(vec![b'x'; size]).with_id(size.to_string())).await?;
        settle_next(&transport, Disposition::DeadLetter(broken())).await?;
    }
    let shelves = transport.shelves();
    let report = shelves.redrive(Shelf::DeadLetter, &Selection::All).await?;
    for entry in &report.entries {
        let is_done = matches!(entry.outcome, EntryOutcome::Done);
        assert_eq!(is_done, entry.id.as_deref() != Some("20000"), "{entry:?}");
    }
    assert_eq!((report.entries.len(), report.stopped.is_none()), (3, true));
    let error = report.into_result().expect_err("one is left");
    assert!(error.to_string().contains("done for 2 messages"), "{error}");
    let left = shelves.browse(Shelf::DeadLetter, None, 10).await?.entries;
    assert_eq!(left.iter().filter_map(|left| left.message.id()).collect::<Vec<_>>(), ["20000"]);
    Ok(())
}

#[cfg(feature = "rest")]
#[tokio::test]
async fn a_redrive_by_rest_outlives_the_locks_of_what_it_holds() -> Result<(), BoxError> {
    let mut short = Settings::default();
    short.lock_duration = Duration::from_secs(3);
    short.max_delivery_count = 1000;
    let builder = Emulator::builder().queue(QUEUE, Settings::default()).queue("dead", short);
    let emulator = builder.listen_http("127.0.0.1:0").start().await?;
    let options =
        ServiceBus::options(QUEUE).backend(redrive_servicebus::Backend::Rest).dead_letter_queue("dead");
    let address = emulator.http_connection_string().ok_or("no HTTP")?;
    let transport = dead_lettered(&address, options, 12).await?;
    let slow = Effect::DelayReply(Duration::from_millis(400));
    emulator.inject(Fault::new(Step::Send, slow).on(QUEUE).times(u32::MAX));
    let redriven = transport.shelves().redrive(Shelf::DeadLetter, &Selection::All).await?.into_result()?;
    assert_eq!((redriven, emulator.entity("dead")?.messages().len()), (12, 0));
    Ok(())
}

#[tokio::test]
async fn the_description_of_what_others_dead_lettered_is_shown() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = started(&emulator.connection_string(), ServiceBus::options(QUEUE)).await?;
    transport.publish(Message::new("").with_id("a")).await?;
    let rejected =
        transport.settle(transport.next_within(TIMEOUT).await.receipt, Settlement::NativeDeadLetter).await;
    rejected.map_err(|refused| refused.error)?;
    let shelved = transport.shelves().browse(Shelf::DeadLetter, None, 10).await?.entries;
    let said = shelved[0].broker_description.as_deref().unwrap_or_default();
    assert!(said.contains("could not be stored"), "{said:?}");
    assert_eq!(shelved[0].broker_reason.as_deref(), Some("Rejected"));
    assert_eq!(transport.shelves().redrive(Shelf::DeadLetter, &Selection::All).await?.into_result()?, 1);
    let again = transport.next_within(TIMEOUT).await;
    assert_eq!(again.delivery.history().error, None, "it is shown, not written on the message");
    Ok(())
}

/// The broker's words about a dead letter stay with it when an operator parks it: as a mark, or in a queue, from which it goes back.
#[tokio::test]
async fn what_others_said_of_a_dead_letter_stays_when_it_is_parked() -> Result<(), BoxError> {
    for parking_queue in [false, true] {
        let builder =
            Emulator::builder().queue(QUEUE, Settings::default()).queue("parked", Settings::default());
        let emulator = builder.start().await?;
        let options = ServiceBus::options(QUEUE);
        let options = if parking_queue { options.parking_queue("parked") } else { options };
        let transport = started(&emulator.connection_string(), options).await?;
        transport.publish(Message::new("").with_id("a")).await?;
        let rejected = transport
            .settle(transport.next_within(TIMEOUT).await.receipt, Settlement::NativeDeadLetter)
            .await;
        rejected.map_err(|refused| refused.error)?;
        let shelves = transport.shelves();
        let before = shelves.browse(Shelf::DeadLetter, None, 10).await?.entries.remove(0);
        assert_eq!(shelves.park(&Selection::Reason("Rejected".to_owned())).await?.into_result()?, 1);
        let parked = shelves.browse(Shelf::Parking, None, 10).await?.entries.remove(0);
        assert_eq!(parked.broker_reason.as_deref(), Some("Rejected"), "{parking_queue}");
        assert_eq!(parked.broker_description, before.broker_description, "{parking_queue}");
        if parking_queue {
            // As an undo does, with what an export has.
            let again = shelves.as_restored(&parked.message);
            shelves.discard(Shelf::Parking, &parked.handle.clone().into()).await?.into_result()?;
            shelves.restore(Shelf::Parking, parked.message.clone()).await?;
            let restored = shelves.browse(Shelf::Parking, None, 10).await?.entries.remove(0);
            assert_eq!((&restored.message, &again), (&parked.message, &parked.message));
            assert_eq!(restored.broker_reason, parked.broker_reason);
            assert_eq!(restored.broker_description, parked.broker_description);
        }
        let which = Selection::Reason("Rejected".to_owned());
        assert_eq!(shelves.redrive(Shelf::Parking, &which).await?.into_result()?, 1);
        let headers = transport.next_within(TIMEOUT).await.delivery.message().headers().clone();
        assert!(!headers.iter().any(|(name, _)| name.to_lowercase().contains("dead")), "{headers:?}");
    }
    Ok(())
}

/// Whoever publishes a header by the name of those that redrive writes on a parked message is neither believed nor robbed of it.
#[tokio::test]
async fn a_reason_that_a_publisher_wrote_is_foreign_and_stays() -> Result<(), BoxError> {
    const HEADER: &str = "x-servicebus-dead-letter-reason";
    const FOREIGN: &str = "foreign:x-servicebus-dead-letter-reason";
    let builder = Emulator::builder().queue(QUEUE, Settings::default()).queue("parked", Settings::default());
    let emulator = builder.start().await?;
    let options = ServiceBus::options(QUEUE).parking_queue("parked");
    let transport = started(&emulator.connection_string(), options).await?;
    let foreign = |message: &Message| {
        assert_eq!(message.headers().get(FOREIGN), Some(&"mine".into()), "{:?}", message.headers());
        message.headers().contains(HEADER)
    };
    transport.publish(Message::new("").with_id("a").with_header(HEADER, "mine")).await?;
    let received = transport.next_within(TIMEOUT).await;
    assert!(!foreign(received.delivery.message()));
    let retry = transport.plan(&received.delivery, Disposition::Retry(Duration::ZERO, broken()));
    transport.settle(received.receipt, retry).await.map_err(|refused| refused.error)?;
    let received = transport.next_within(TIMEOUT).await;
    assert!(!foreign(received.delivery.message()), "a retry");
    let rejected = transport.settle(received.receipt, Settlement::NativeDeadLetter).await;
    rejected.map_err(|refused| refused.error)?;
    let shelves = transport.shelves();
    for (shelf, is_kept) in [(Shelf::DeadLetter, false), (Shelf::Parking, true)] {
        let entry = shelves.browse(shelf, None, 10).await?.entries.remove(0);
        assert_eq!(entry.broker_reason.as_deref(), Some("Rejected"), "{shelf}");
        assert_eq!(foreign(&entry.message), is_kept, "{shelf}");
        if shelf == Shelf::DeadLetter {
            assert_eq!(shelves.park(&Selection::All).await?.into_result()?, 1);
            continue;
        }
        // An editor shows the headers of the entry, and saves them again.
        let edited = entry.message.clone().with_header("currency", "EUR");
        shelves.redrive_as(&entry.handle, edited).await?;
    }
    let redriven = transport.next_within(TIMEOUT).await.delivery.message().clone();
    assert!(!foreign(&redriven), "a redrive");
    assert_eq!(redriven.headers().get("currency"), Some(&"EUR".into()));
    Ok(())
}

/// An application may carry the reason of a former life, which a queue with `ForwardDeadLetteredMessagesTo` shows it.
#[tokio::test]
async fn the_reason_of_a_former_life_is_not_that_of_now() -> Result<(), BoxError> {
    let builder = Emulator::builder().queue(QUEUE, Settings::default()).queue("parked", Settings::default());
    let emulator = builder.start().await?;
    let transport =
        started(&emulator.connection_string(), ServiceBus::options(QUEUE).parking_queue("parked")).await?;
    let former = Message::new("").with_id("a").with_header("DeadLetterReason", "CardExpired");
    transport
        .publisher()
        .to("parked")
        .publish(former.with_header("DeadLetterErrorDescription", "4711"))
        .await?;
    let shelves = transport.shelves();
    let parked = shelves.browse(Shelf::Parking, None, 10).await?.entries.remove(0);
    assert_eq!((&parked.broker_reason, &parked.broker_description), (&None, &None));
    let edited = parked.message.clone().with_header("currency", "EUR");
    shelves.replace(&parked.handle, edited).await?;
    assert_eq!(shelves.redrive(Shelf::Parking, &Selection::All).await?.into_result()?, 1);
    let headers = transport.next_within(TIMEOUT).await.delivery.message().headers().clone();
    assert_eq!(headers.get("DeadLetterReason").and_then(|reason| reason.as_str()), Some("CardExpired"));
    Ok(())
}

#[tokio::test]
async fn a_parking_queue_that_forwards_its_messages_is_not_an_empty_shelf() -> Result<(), BoxError> {
    let mut forwarding = Settings::default();
    forwarding.forward_to = Some(QUEUE.to_owned());
    let emulator =
        Emulator::builder().queue(QUEUE, Settings::default()).queue("parked", forwarding).start().await?;
    let transport =
        ServiceBus::options(QUEUE).parking_queue("parked").connect(&emulator.connection_string()).await?;
    let shelves = transport.shelves();
    for refused in [
        shelves.count(Shelf::Parking).await.map(drop),
        shelves.browse(Shelf::Parking, None, 10).await.map(drop),
        shelves.redrive(Shelf::Parking, &Selection::All).await.map(drop),
    ] {
        let said = refused.expect_err("it has no messages, whatever is parked").to_string();
        assert!(said.contains("`parked`") && said.contains("`ForwardTo`"), "{said}");
    }
    assert_eq!(shelves.count(Shelf::DeadLetter).await?, 0);
    Ok(())
}

/// Messages that are on their way to a link whose reader stopped waiting end no other link.
#[tokio::test]
async fn a_cancelled_run_over_a_shelf_ends_no_other_link() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = started(&emulator.connection_string(), ServiceBus::options(QUEUE)).await?;
    for _ in 0..30 {
        // Large: they take a while.
        transport.publish(Message::new(vec![b'x'; 100 * 1024])).await?;
        settle_next(&transport, Disposition::DeadLetter(broken())).await?;
    }
    let (queue, shelf) = (emulator.entity(QUEUE)?, emulator.entity(DEAD_LETTERS)?);
    let shelves = transport.shelves();
    for polls in 0..20 {
        dropped_after(polls, shelves.redrive(Shelf::DeadLetter, &Selection::All)).await;
        eventually("the link is closed", async || shelf.waiting() == 0).await;
        // The next run need not wait for what this one held.
        shelf.expire_locks();
        assert_eq!((queue.senders(), emulator.connections()), (1, 1), "after {polls} polls");
        transport.publish(Message::new("")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_empty_shelf_that_is_read_again_costs_no_link() -> Result<(), BoxError> {
    let builder = Emulator::builder().queue(QUEUE, Settings::default()).queue("parked", Settings::default());
    let emulator = builder.start().await?;
    let transport =
        ServiceBus::options(QUEUE).parking_queue("parked").connect(&emulator.connection_string()).await?;
    let shelves = transport.shelves();
    assert_eq!(shelves.count(Shelf::Parking).await?, 0);
    // Meets the next link.
    emulator.inject(Fault::new(Step::Attach, Effect::unauthorized()).on("parked"));
    assert_eq!(shelves.count(Shelf::Parking).await?, 0);
    assert!(shelves.browse(Shelf::Parking, None, 10).await?.entries.is_empty());
    let published = transport.publisher().to("parked").publish(Message::new("")).await;
    assert!(published.is_err_and(|error| error.kind() == TransportErrorKind::Unauthorized));
    Ok(())
}

/// Nobody can send to a dead-letter queue. An edited message is sent back at once; only a separate queue can be written to.
#[tokio::test]
async fn an_edited_message_rests_only_where_one_can_send() -> Result<(), BoxError> {
    let builder = Emulator::builder().queue(QUEUE, Settings::default()).queue("parked", Settings::default());
    let emulator = builder.start().await?;
    let options = ServiceBus::options(QUEUE).parking_queue("parked");
    let transport = started(&emulator.connection_string(), options).await?;
    for (id, disposition) in [
        ("a", Disposition::DeadLetter(broken())),
        ("b", Disposition::Park(broken())),
        ("b", Disposition::Park(broken())),
    ] {
        transport.publish(Message::new("").with_id(id)).await?;
        settle_next(&transport, disposition).await?;
    }
    let shelves = transport.shelves();
    let edited = Message::new("edited").with_id("b");
    let entry = shelves.browse(Shelf::DeadLetter, None, 1).await?.entries.remove(0);
    let error = shelves.replace(&entry.handle, edited.clone()).await.expect_err("nobody can");
    assert_eq!(error.kind(), TransportErrorKind::Unsupported, "{error}");
    assert_eq!(shelves.count(Shelf::DeadLetter).await?, 1);
    let entry = shelves.browse(Shelf::Parking, None, 1).await?.entries.remove(0);
    shelves.replace(&entry.handle, edited).await?;
    let parked = shelves.browse(Shelf::Parking, None, 10).await?.entries;
    let bodies: Vec<_> = parked.iter().map(|entry| &entry.message.body()[..]).collect();
    assert_eq!(bodies, [&b""[..], b"edited"]);
    assert!(parked.iter().all(|left| left.handle != entry.handle), "exactly the entry is replaced");
    Ok(())
}
