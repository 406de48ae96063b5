//! The publisher's expiration, applied to all copies.

use redrive::memory::MemoryBroker;
use redrive::prelude::*;
use redrive::shelves::Selection;
use redrive::{Expired, Handler, Timestamp, header_names};
use redrive_system_tests::rabbit::Rabbit;
use redrive_system_tests::{Combination, Diary, QUEUE, header, memory_with, on_both_versions, place, reason};
use tokio::time::sleep;

async fn fail() -> Result<(), BoxError> {
    Err("no answer".into())
}

async fn must_not_run() {
    panic!("the handler must not run")
}

fn expiring(expiration: std::time::Duration) -> Message {
    let mut message = Message::new("x").with_id("m");
    message.properties_mut().expiration = Some(expiration);
    message
}

#[tokio::test(start_paused = true)]
async fn the_publishers_expiration_holds_over_all_hops() {
    let (broker, transport) = memory_with([expiring(secs(100))]);
    let began = broker.now();
    let diary = Diary::new();
    let consumer = Consumer::new(transport)
        .with_dead_letter_backoff(Fixed::from(secs(40)).attempts(50))
        .observer(diary.observer())
        .handler(fail);
    consumer.run_until(diary.ended(1)).await.unwrap();
    // The third attempt is at 80 s; the fourth would be at 120 s.
    assert_eq!(diary.names(), ["retry", "retry", "dead-letter"]);
    let lasted = broker.now().duration_since(began).unwrap();
    assert!(lasted >= secs(80) && lasted < secs(100), "{lasted:?}");
    let shelved = broker.shelf(QUEUE, Shelf::DeadLetter).remove(0);
    assert_eq!(
        (reason(&shelved), header(&shelved, header_names::EXPIRATION)),
        ("Expired".into(), "100000".into())
    );
    assert_eq!(shelved.properties().expiration, None, "on the shelf nothing expires");
}

#[tokio::test(start_paused = true)]
async fn what_expired_while_nobody_consumed_is_not_handled_again() {
    let (broker, transport) = memory_with([expiring(secs(100))]);
    let diary = Diary::new();
    let consumer = Consumer::new(transport)
        .with_dead_letter_backoff(Fixed::from(secs(40)).attempts(50))
        .observer(diary.observer())
        .handler(fail);
    consumer.run_until(diary.settled(1)).await.unwrap();
    sleep(secs(500)).await;
    assert_eq!(discarding(&broker, must_not_run).await, ["dead-letter"], "of a copy only a header tells");
    assert_eq!(reason(&broker.shelf(QUEUE, Shelf::DeadLetter)[0]), "Expired");
}

/// Returns the fate of the only message, with `Expired::Discard`.
async fn discarding<A: 'static>(broker: &MemoryBroker, handler: impl Handler<A, ()>) -> Vec<&'static str> {
    let diary = Diary::new();
    let consumer = Consumer::new(broker.transport(QUEUE))
        .with_dead_letter_backoff(
            DeadLetterBackoff::new(Fixed::from(secs(40)).attempts(50)).expired(Expired::Discard),
        )
        .observer(diary.observer())
        .handler(handler);
    consumer.run_until(diary.ended(1)).await.unwrap();
    diary.names()
}

#[tokio::test(start_paused = true)]
async fn what_expires_is_discarded_where_the_user_says_so() {
    let (broker, _transport) = memory_with([expiring(secs(30))]);
    assert_eq!((discarding(&broker, fail).await, place(&broker)), (vec!["discard"], "gone"));
}

#[tokio::test(start_paused = true)]
async fn a_header_that_anybody_can_write_discards_nothing() {
    let long_ago = "2001-01-01T00:00:00Z";
    let forged = [
        Message::new("x").with_header(header_names::DEADLINE, long_ago),
        expiring(secs(3600)).with_header(header_names::DEADLINE, long_ago),
        Message::new("x").with_header(header_names::EXPIRATION, 0_i64),
    ];
    for message in forged {
        let (broker, _transport) = memory_with([message.clone()]);
        assert_eq!(discarding(&broker, fail).await, ["dead-letter"], "{message:?}");
        assert_eq!(reason(&broker.shelf(QUEUE, Shelf::DeadLetter)[0]), "Expired");
    }
}

#[tokio::test(start_paused = true)]
async fn a_redriven_message_has_its_expiration_anew() {
    let (broker, transport) = memory_with([expiring(secs(100))]);
    let diary = Diary::new();
    let consumer = || {
        Consumer::new(broker.transport(QUEUE))
            .with_dead_letter_backoff(Fixed::from(secs(60)).attempts(50))
            .observer(diary.observer())
            .handler(fail)
    };
    drop(transport);
    consumer().run_until(diary.ended(1)).await.unwrap();
    assert_eq!(diary.names(), ["retry", "dead-letter"]);
    sleep(secs(500)).await;
    broker.shelves(QUEUE).redrive(Shelf::DeadLetter, &Selection::All).await.unwrap().into_result().unwrap();
    consumer().run_until(diary.ended(2)).await.unwrap();
    assert_eq!(diary.names(), ["retry", "dead-letter", "retry", "dead-letter"]);
}

on_both_versions!(emulator: 600; an_expired_message_is_not_retried);

async fn an_expired_message_is_not_retried(on: Combination, url: &str) {
    let queue = on.unique("expiration");
    let transport = on.options(&queue).connect(url).await.unwrap();
    let operator = on.options(&queue).connect(url).await.unwrap();
    // Made 58 s ago, says its publisher: 3 s are left, and the rest of this second.
    let mut message = expiring(secs(61));
    let made = std::time::SystemTime::now() - secs(58);
    message.properties_mut().timestamp = Some(Timestamp::from(made));
    operator.publish(message).await.unwrap();
    let diary = Diary::new();
    let consumer = Consumer::new(transport)
        .with_dead_letter_backoff(Fixed::from(millis(1000)).attempts(1000))
        .observer(diary.observer())
        .handler(fail);
    consumer.run_until(diary.ended(1)).await.unwrap();
    let names = diary.names();
    assert!(names.len() <= 5 && names.last() == Some(&"dead-letter"), "{names:?}");
    let shelved = operator.shelves().browse(Shelf::DeadLetter, None, 2).await.unwrap().entries;
    let [shelved] = &shelved[..] else { panic!("{shelved:?}") };
    assert_eq!(reason(&shelved.message), "Expired");
    assert_eq!(header(&shelved.message, header_names::EXPIRATION), "61000");
    let rung = format!("{queue}--retry-1000ms");
    let spare = [60_000, 600_000].map(|wait| format!("{queue}--retry-{wait}ms"));
    let queues = [queue.clone(), rung, format!("{queue}--dead-letters"), format!("{queue}--parking-lot")];
    Rabbit::connect(url).await.delete(queues.into_iter().chain(spare)).await;
}
