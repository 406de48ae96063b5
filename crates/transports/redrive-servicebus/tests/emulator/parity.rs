//! The behaviour of an ordinary Service Bus consumer, as a table: each message ends where the broker would put it. The emulator's
//! clock is advanced instead of waiting.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redrive_consumer::{Consumer, ConsumerError, ConsumerHandle, Report};
use redrive_contract::{Started, eventually};
use redrive_core::shelves::Selection;
use redrive_core::transport::Needs;
use redrive_core::{BoxError, Delivery, Disposition, Failure, Message, Permanent, Shelf, Shelves};
use redrive_servicebus::ServiceBus;
use redrive_servicebus_emulator::amqp::Value;
use redrive_servicebus_emulator::{Counts, Delivered, Emulator, Settings};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const QUEUE: &str = "orders";
const DEAD_LETTERS: &str = "orders/$DeadLetterQueue";
const TIMEOUT: Duration = Duration::from_secs(120);

/// Two retries, so far apart that only advancing the emulator's clock reaches them.
const HOUR: Duration = Duration::from_secs(3600);
const SCHEDULE: [Duration; 2] = [HOUR, Duration::from_secs(100 * 3600)];
/// The number of deliveries after which a message is rejected: the limit of the entity is 10, and redrive stays one below it.
const DEATHS: u32 = 9;

/// The reason and the description in the dead-letter queue.
type End = (&'static str, &'static str);

/// A message, the number of runs of its handler, and its reason and description if it ends in the dead-letter queue.
const TABLE: &[(&str, usize, Option<End>)] = &[
    ("succeeds", 1, None),
    ("kills", 0, Some(("PoisonMessage", "handed out 10 times, 9 allowed"))),
    ("permanent", 1, Some(("NonRetryableError", "no such item"))),
    ("transient-once", 2, None),
    ("transient", 3, Some(("MaxDeliveryCountExceeded", "the carrier does not answer"))),
    ("by-hand", 1, Some(("OutOfStock", "13 on stock, 14 wanted"))),
];

#[tokio::test]
async fn every_message_ends_where_it_should() -> Result<(), BoxError> {
    let mut settings = Settings::default();
    settings.lock_duration = Duration::from_secs(300);
    let emulator = Emulator::builder().queue(QUEUE, settings).virtual_clock().start().await?;
    let options = ServiceBus::options(QUEUE).max_wait_time(TIMEOUT);
    let publisher = options.connect(&emulator.connection_string()).await?;
    publisher.publish(Message::new("").with_id("kills")).await?;
    die_with_it(&emulator, DEATHS).await?;
    for (id, ..) in TABLE.iter().filter(|(id, ..)| *id != "kills") {
        publisher.publish(Message::new("").with_id(*id)).await?;
    }

    let orders = Orders::default();
    let consumer = Running::start(&emulator, &orders).await?;
    settled(&emulator, "the transient ones wait", |counts| counts.scheduled == 2).await;
    assert_eq!((orders.times("transient"), orders.times("transient-once")), (1, 1));
    emulator.advance(2 * HOUR);
    settled(&emulator, "one of them waits again", |counts| counts.scheduled == 1).await;
    assert_eq!((orders.times("transient"), orders.times("transient-once")), (2, 2));
    emulator.advance(SCHEDULE[1]);
    settled(&emulator, "nothing is left", |counts| counts.scheduled == 0).await;
    let report = consumer.stop().await?;
    assert_eq!(report.acknowledged, 2, "{report:?}");

    check_table(&emulator, &orders)?;
    let shelves = publisher.shelves();
    let shelved = shelves.browse(Shelf::DeadLetter, None, 10).await?.entries;
    let with = |reason: &str| {
        let reason = Selection::Reason(reason.to_owned());
        shelved.iter().filter(|shelved| reason.includes(shelved)).count()
    };
    for (_, _, end) in TABLE {
        assert!(end.is_none_or(|(reason, _)| with(reason) == 1), "asked for by its reason: {end:?}");
    }

    // Redriven after the fault is fixed.
    orders.mended.store(true, Ordering::SeqCst);
    let which = Selection::Reason("NonRetryableError".to_owned());
    assert_eq!(shelves.redrive(Shelf::DeadLetter, &which).await?.into_result()?, 1);
    let consumer = Running::start(&emulator, &orders).await?;
    settled(&emulator, "it is handled", |_| orders.times("permanent") == 2).await;
    assert_eq!(consumer.stop().await?.acknowledged, 1);
    assert_eq!(shelves.count(Shelf::DeadLetter).await?, 3);
    Ok(())
}

/// Delivers a message this often to a process that crashes each time.
async fn die_with_it(emulator: &Emulator, times: u32) -> Result<(), BoxError> {
    let queue = emulator.entity(QUEUE)?;
    let before = emulator.connections();
    let dying = ServiceBus::connect(&emulator.connection_string(), QUEUE).await?;
    let dying = Started::open(dying, &Needs::none()).await?;
    for time in 1..=times {
        let held = timeout(TIMEOUT, dying.receive()).await??.expect("it is handed out");
        assert_eq!(held.delivery.broker_delivery_count(), time);
        if time == times {
            dying.crash().await;
            // Until the broker notices, it may still deliver to the crashed process.
            eventually("the connection is gone", async || emulator.connections() == before).await;
        }
        assert_eq!(queue.expire_locks(), 1);
        drop(held);
    }
    Ok(())
}

fn check_table(emulator: &Emulator, orders: &Orders) -> Result<(), BoxError> {
    let dead = emulator.entity(DEAD_LETTERS)?.messages();
    for (id, times, end) in TABLE {
        assert_eq!(orders.times(id), *times, "how often `{id}` was handled");
        let found: Vec<_> = dead.iter().filter(|dead| text(dead, "redrive-message-id") == *id).collect();
        let Some((reason, description)) = end else {
            assert!(found.is_empty(), "`{id}` is in the dead-letter queue");
            continue;
        };
        assert_eq!(found.len(), 1, "`{id}` is in the dead-letter queue once");
        assert_eq!(text(found[0], "DeadLetterReason"), *reason, "of `{id}`");
        let described = text(found[0], "DeadLetterErrorDescription");
        assert!(described.contains(description), "of `{id}`: {described}");
    }
    Ok(())
}

fn text(dead: &Delivered, name: &str) -> String {
    match dead.message.application_properties.get(name) {
        Some(Value::String(text)) => text.to_string(),
        other => panic!("`{name}` is {other:?}"),
    }
}

#[derive(Clone, Default)]
struct Orders {
    handled: Arc<Mutex<Vec<String>>>,
    mended: Arc<AtomicBool>,
}

impl Orders {
    async fn handle(self, delivery: Delivery) -> Result<Disposition, BoxError> {
        let (id, attempt) = (delivery.id().to_owned(), delivery.attempt());
        self.handled.lock().unwrap_or_else(PoisonError::into_inner).push(id.clone());
        match id.as_str() {
            _ if self.mended.load(Ordering::SeqCst) => Ok(Disposition::Ack),
            "permanent" => Err(Permanent::new("no such item").into()),
            "transient-once" if attempt == 1 => Err("the carrier does not answer".into()),
            "transient" => Err("the carrier does not answer".into()),
            "by-hand" => Ok(Disposition::DeadLetter(Failure::custom("OutOfStock", "13 on stock, 14 wanted"))),
            _ => Ok(Disposition::Ack),
        }
    }

    fn times(&self, id: &str) -> usize {
        let handled = self.handled.lock().unwrap_or_else(PoisonError::into_inner);
        handled.iter().filter(|handled| *handled == id).count()
    }
}

/// A running consumer.
struct Running {
    handle: ConsumerHandle,
    ends: JoinHandle<Result<Report, ConsumerError>>,
}

impl Running {
    async fn start(emulator: &Emulator, orders: &Orders) -> Result<Self, BoxError> {
        let transport = ServiceBus::connect(&emulator.connection_string(), QUEUE).await?;
        let orders = orders.clone();
        let runner = Consumer::new(transport)
            .with_dead_letter_backoff(SCHEDULE)
            .handler(move |delivery: Delivery| orders.clone().handle(delivery));
        Ok(Self { handle: runner.handle(), ends: tokio::spawn(runner.run()) })
    }

    async fn stop(self) -> Result<Report, BoxError> {
        self.handle.stop();
        Ok(timeout(TIMEOUT, self.ends).await???)
    }
}

/// Waits until the condition holds and the queue contains only scheduled messages.
async fn settled(emulator: &Emulator, what: &str, so: impl Fn(&Counts) -> bool) {
    let queue = emulator.entity(QUEUE).expect("it is there");
    eventually(what, async || {
        let counts = queue.counts();
        (counts.active, counts.locked) == (0, 0) && so(&counts)
    })
    .await;
}
