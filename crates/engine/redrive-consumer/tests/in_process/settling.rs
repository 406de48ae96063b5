//! Every delivery is settled, as its handler and its layers decide.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redrive_consumer::{Attempt, Consumer, Report, Runner};
use redrive_core::{BoxError, Message, Permanent, Shelf, header_names, secs};
use redrive_memory::{Memory, MemoryBroker};
use tokio::time::sleep;

const QUEUE: &str = "orders";
const MESSAGES: usize = 20;

/// Runs a consumer of `MESSAGES` messages until it must have handled them. A message that is not settled is left on the broker.
async fn run(consumer: impl FnOnce(Memory) -> Runner<Memory>) -> Result<(MemoryBroker, Report), BoxError> {
    let orders = Memory::new(QUEUE);
    for number in 0..MESSAGES {
        orders.publish(Message::new("a lamp").with_id(number.to_string())).await?;
    }
    let broker = orders.broker().clone();
    let report = consumer(orders).run_until(sleep(secs(60))).await?;
    Ok((broker, report))
}

fn left(broker: &MemoryBroker) -> [usize; 4] {
    let shelf = |shelf| broker.shelf(QUEUE, shelf).len();
    [broker.depth(QUEUE), broker.held(QUEUE), shelf(Shelf::DeadLetter), shelf(Shelf::Parking)]
}

#[tokio::test(start_paused = true)]
async fn a_handled_message_is_acknowledged_and_not_handled_again() -> Result<(), BoxError> {
    let handled = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&handled);
    let handler = move || {
        count.fetch_add(1, Ordering::SeqCst);
        async {}
    };
    let (broker, report) = run(|orders| Consumer::new(orders).handler(handler)).await?;
    assert_eq!(left(&broker), [0; 4]);
    assert_eq!(report.acknowledged, MESSAGES as u64);
    assert_eq!(handled.load(Ordering::SeqCst), MESSAGES as u32);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_failed_message_is_retried_until_it_succeeds() -> Result<(), BoxError> {
    async fn third_time(Attempt(attempt): Attempt) -> Result<(), BoxError> {
        if attempt < 3 { Err("no answer".into()) } else { Ok(()) }
    }
    let consumer =
        |orders| Consumer::new(orders).with_dead_letter_backoff([secs(1), secs(2)]).handler(third_time);
    let (broker, report) = run(consumer).await?;
    assert_eq!(left(&broker), [0; 4]);
    assert_eq!((report.acknowledged, report.retried), (MESSAGES as u64, 2 * MESSAGES as u64));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_message_that_keeps_failing_rests_on_the_shelf_with_its_reason() -> Result<(), BoxError> {
    async fn never() -> Result<(), BoxError> {
        Err(Permanent::new("no such item").into())
    }
    let consumer = |orders| Consumer::new(orders).with_dead_letter_backoff([secs(1)]).handler(never);
    let (broker, report) = run(consumer).await?;
    assert_eq!(left(&broker), [0, 0, MESSAGES, 0]);
    assert_eq!((report.dead_lettered, report.acknowledged), (MESSAGES as u64, 0));
    let reason = |message: &Message| {
        message.headers().get(header_names::REASON).and_then(|reason| reason.as_str().map(str::to_owned))
    };
    let shelf = broker.shelf(QUEUE, Shelf::DeadLetter);
    assert!(shelf.iter().all(|message| reason(message).as_deref() == Some("NonRetryableError")), "{shelf:?}");
    Ok(())
}
