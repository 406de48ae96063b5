//! What an ordinary Service Bus consumer does with its messages, as a table: each ends where it should, natively.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redrive_core::{
    BoxError, Consumer, Delivery, Disposition, Failure, Message, Needs, Permanent, Selection, Shelf, Shelves,
    Transport,
};
use redrive_servicebus::ServiceBus;
use redrive_servicebus_emulator::amqp::Value;
use redrive_servicebus_emulator::{Emulator, Settings};

const QUEUE: &str = "orders";
const DEAD_LETTERS: &str = "orders/$DeadLetterQueue";
const WAIT: Duration = Duration::from_millis(50);

/// Reason and description in the dead-letter queue.
type DeadLetter = (&'static str, &'static str);

/// Message, how often its handler runs, and as what it ends in the dead-letter queue, where it ends there.
const TABLE: &[(&str, u32, Option<DeadLetter>)] = &[
    ("succeeds", 1, None),
    ("kills", 0, Some(("PoisonMessage", "handed out"))),
    ("permanent", 1, Some(("NonRetryableError", "no such item"))),
    ("transient-once", 2, None),
    ("transient", 3, Some(("MaxDeliveryCountExceeded", "the carrier does not answer"))),
    ("by-hand", 1, Some(("OutOfStock", "13 on stock"))),
];

#[derive(Clone, Default)]
struct Orders {
    handled: Arc<Mutex<Vec<(String, u32)>>>,
    fixed: Arc<AtomicBool>,
}

impl Orders {
    async fn handle(self, delivery: Delivery) -> Result<Disposition, BoxError> {
        let (id, attempt) = (delivery.id().to_owned(), delivery.attempt());
        self.handled.lock().unwrap_or_else(PoisonError::into_inner).push((id.clone(), attempt));
        match id.as_str() {
            _ if self.fixed.load(Ordering::SeqCst) => Ok(Disposition::Ack),
            "permanent" => Err(Permanent::new("no such item").into()),
            "transient-once" if attempt == 1 => Err("the carrier does not answer".into()),
            "transient" => Err("the carrier does not answer".into()),
            "by-hand" => Ok(Disposition::DeadLetter(Failure::custom("OutOfStock", "13 on stock"))),
            _ => Ok(Disposition::Ack),
        }
    }

    fn times(&self, id: &str) -> usize {
        let handled = self.handled.lock().unwrap_or_else(PoisonError::into_inner);
        handled.iter().filter(|(handled, _)| handled == id).count()
    }
}

async fn consume(emulator: &Emulator, orders: &Orders) -> Result<(), BoxError> {
    let transport = ServiceBus::connect(&emulator.connection_string(), QUEUE).await?;
    let empty = async {
        while !emulator.entity(QUEUE).expect("it is there").messages().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let orders = orders.clone();
    Consumer::new(transport)
        .with_dead_letter_backoff_and([WAIT, WAIT], |preset| preset.poison_after(3))
        .handler(move |delivery: Delivery| orders.clone().handle(delivery))
        .run_until(async {
            tokio::time::timeout(Duration::from_secs(60), empty).await.expect("all come to rest");
        })
        .await?;
    Ok(())
}

#[tokio::test]
async fn every_message_ends_where_it_should() -> Result<(), BoxError> {
    let emulator = Emulator::builder().queue(QUEUE, Settings::default()).start().await?;
    let publisher = ServiceBus::connect(&emulator.connection_string(), QUEUE).await?;

    // Handed out three times to somebody who never came to an end with it.
    publisher.publish(Message::new("").with_id("kills")).await?;
    for _ in 0..3 {
        let dying = ServiceBus::connect(&emulator.connection_string(), QUEUE).await?;
        dying.start(&Needs::none()).await?;
        let held = dying.receive().await?.expect("it is handed out");
        dying.crash().await;
        drop(held);
        emulator.entity(QUEUE)?.expire_locks();
    }
    for (id, ..) in TABLE.iter().filter(|(id, ..)| *id != "kills") {
        publisher.publish(Message::new("").with_id(*id)).await?;
    }

    let orders = Orders::default();
    consume(&emulator, &orders).await?;

    let dead = emulator.entity(DEAD_LETTERS)?.messages();
    let text = |message: &redrive_servicebus_emulator::Delivered, name: &str| match message
        .message
        .application_properties
        .get(name)
    {
        Some(Value::String(text)) => text.to_string(),
        other => panic!("`{name}` is {other:?}"),
    };
    for (id, times, end) in TABLE {
        assert_eq!(orders.times(id), *times as usize, "how often `{id}` was handled");
        let found: Vec<_> =
            dead.iter().filter(|message| text(message, "redrive-message-id") == *id).collect();
        match end {
            None => assert!(found.is_empty(), "`{id}` is in the dead-letter queue"),
            Some((reason, description)) => {
                assert_eq!(found.len(), 1, "`{id}` is in the dead-letter queue once");
                assert_eq!(text(found[0], "DeadLetterReason"), *reason, "of `{id}`");
                let described = text(found[0], "DeadLetterErrorDescription");
                assert!(described.contains(description), "of `{id}`: {described}");
            }
        }
    }

    // Asked for by reason, and sent back once the fault is mended.
    let shelves = publisher.shelves();
    let which = Selection::Reason("NonRetryableError".to_owned());
    orders.fixed.store(true, Ordering::SeqCst);
    assert_eq!(shelves.redrive(Shelf::DeadLetter, &which).await?, 1);
    consume(&emulator, &orders).await?;
    assert_eq!(orders.times("permanent"), 2);
    assert_eq!(shelves.count(Shelf::DeadLetter).await?, 3);
    Ok(())
}
