//! A retry that finds no room waits in flight: the intake goes on, and is what makes room.

use std::sync::Arc;
use std::time::Duration;

use redrive::prelude::*;
use redrive::rabbitmq::QueueType;
use redrive::transport::Settlement;
use redrive::{Event, TransportErrorKind};
use redrive_contract::{Fault, Faulty, eventually};
use redrive_system_tests::rabbit::Rabbit;
use redrive_system_tests::{Combination, Diary, QUEUE, memory_with, numbered, on_both_versions, reason};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};
use tower::limit::ConcurrencyLimitLayer;

on_both_versions!(emulator: 60; what_fails_in_a_full_queue_is_handled_again);

/// Fails until it was handled three times, where its id is below 20.
async fn handle(Attempt(attempt): Attempt, delivery: Delivery) -> Result<(), BoxError> {
    let number: u32 = delivery.id().parse()?;
    if number < 20 && attempt < 3 { Err("no answer".into()) } else { Ok(()) }
}

fn without_room_to_come_back<T: redrive::Transport>(transport: T) -> Faulty<T> {
    Faulty::new(transport).on_settle(|attempted| match attempted.settlement {
        Settlement::Reschedule { .. } => Fault::Refused(TransportErrorKind::Full),
        _ => Fault::None,
    })
}

#[tokio::test(start_paused = true)]
async fn the_others_go_on_and_what_failed_is_handled_from_the_hand() {
    let (broker, transport) = memory_with(numbered(60));
    let (diary, began) = (Diary::new(), Instant::now());
    let consumer = Consumer::new(without_room_to_come_back(transport))
        .concurrency(4)
        .with_dead_letter_backoff([secs(1), secs(10)])
        .observer(diary.observer())
        .observer(|event: &Event<'_>| assert!(!matches!(event, Event::IntakePaused { .. })))
        .handler(handle);
    let report = consumer.run_until(diary.ended(60)).await.unwrap();
    assert_eq!((report.acknowledged, report.retried, report.dead_lettered), (60, 40, 0));
    assert_eq!(broker.depth(QUEUE), 0);
    // Five rounds of four, of eleven seconds each: no wait is cut short, and none is much longer.
    assert!((secs(55)..secs(60)).contains(&began.elapsed()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn its_attempts_are_counted_in_hand_and_on_its_shelf() {
    let (broker, transport) = memory_with(numbered(1));
    let diary = Diary::new();
    let consumer = Consumer::new(without_room_to_come_back(transport))
        .with_dead_letter_backoff([secs(1)])
        .observer(diary.observer())
        .handler(handle);
    consumer.run_until(diary.ended(1)).await.unwrap();
    let shelf = broker.shelf(QUEUE, Shelf::DeadLetter);
    assert_eq!(reason(&shelf[0]), "MaxDeliveryCountExceeded");
    assert_eq!(redrive::FailureHistory::read(&shelf[0]).past.len(), 2);
    assert_eq!(broker.depth(QUEUE), 0);
}

#[tokio::test(start_paused = true)]
async fn what_waits_in_hand_is_given_back_at_the_shutdown() {
    let (broker, transport) = memory_with(numbered(1));
    let consumer = Consumer::new(without_room_to_come_back(transport))
        .grace(secs(1))
        .with_dead_letter_backoff([mins(10)])
        .handler(handle);
    let report = consumer.run_until(sleep(secs(5))).await.unwrap();
    assert_eq!(report.released, 1);
    assert_eq!(broker.depth(QUEUE), 1);
}

#[tokio::test(start_paused = true)]
async fn an_idle_intake_does_not_hold_the_only_place_of_a_layer() {
    let (broker, transport) = memory_with(numbered(1));
    let diary = Diary::new();
    let consumer = Consumer::new(without_room_to_come_back(transport))
        .concurrency(2)
        .layer(ConcurrencyLimitLayer::new(1))
        .with_dead_letter_backoff([secs(1), secs(10)])
        .observer(diary.observer())
        .handler(handle);
    let ended = async { tokio::time::timeout(mins(1), diary.ended(1)).await.expect("it gets the place") };
    let report = consumer.run_until(ended).await.unwrap();
    assert_eq!((report.acknowledged, report.retried), (1, 2));
    assert_eq!(broker.depth(QUEUE), 0);
}

/// Every message fails the first time, the queue is full, and as many as can be are in flight: nothing but handling them makes
/// room.
async fn what_fails_in_a_full_queue_is_handled_again(on: Combination, url: &str) {
    const ROOM: i64 = 10;
    let queue = on.unique("full");
    let options = || {
        let full = on.options(&queue).argument("x-max-length", ROOM);
        full.argument("x-overflow", "reject-publish").queue_type(QueueType::Quorum)
    };
    let operator = options().connect(url).await.unwrap();
    let mut published = 0;
    let fill = async |published: &mut usize| {
        loop {
            match operator.publish(Message::new("x").with_id(published.to_string())).await {
                Ok(()) => *published += 1,
                Err(error) if error.kind() == TransportErrorKind::Full => return,
                Err(error) => panic!("{error}"),
            }
        }
    };
    fill(&mut published).await;
    let gate = Arc::new(Semaphore::new(0));
    let diary = Diary::new();
    let passes = Arc::clone(&gate);
    let runner = Consumer::new(options().connect(url).await.unwrap())
        .concurrency(2)
        .prefetch(4)
        .with_dead_letter_backoff(|attempt: u32| (attempt < 3).then_some(Duration::ZERO))
        .observer(diary.observer())
        .handler(move |Attempt(attempt): Attempt| {
            let passes = Arc::clone(&passes);
            async move {
                drop(passes.acquire().await?);
                if attempt == 1 { Err(BoxError::from("no answer")) } else { Ok(()) }
            }
        });
    let test = async {
        let rabbit = Rabbit::connect(url).await;
        let before = u32::try_from(published).unwrap();
        // One more than the prefetch: the first delivery came alone, on a channel of its own.
        eventually("five are in flight", async || rabbit.ready(&queue).await == Some(before - 5)).await;
        fill(&mut published).await;
        gate.add_permits(1);
        diary.ended(published).await;
        rabbit.delete(["", "--dead-letters", "--parking-lot"].map(|end| format!("{queue}{end}"))).await;
    };
    let report = runner.run_until(test).await.unwrap();
    assert_eq!((report.acknowledged as usize, report.dead_lettered), (published, 0), "{report:?}");
}
