//! The fate of a message: every case in one table.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redrive::prelude::*;
use redrive::{MarkError, header_names};
use redrive_system_tests::{Diary, QUEUE, header, memory_with, place, reason};
use serde::Deserialize;

/// What the handler does with the message.
#[derive(Clone, Copy, Debug, Deserialize)]
enum Does {
    Succeed,
    FailForGood,
    FailOnce,
    FailAlways,
    Panic,
    PanicOnce,
    Throttle,
    SnoozeOnce,
    Hang,
    DeadLetter,
    Park,
    Discard,
}

struct Case {
    name: &'static str,
    body: &'static str,
    deliveries_before: u32,
    redrives: u32,
    preset: fn(DeadLetterBackoff) -> DeadLetterBackoff,
    ends: &'static str,
    reason: &'static str,
    runs: u32,
    attempts: &'static str,
}

const CASE: Case = Case {
    name: "",
    body: "",
    deliveries_before: 0,
    redrives: 0,
    preset: |preset| preset,
    ends: "gone",
    reason: "",
    runs: 1,
    attempts: "",
};

const SHELF: &str = "dead-letter shelf";
const PARKED: &str = "parking shelf";

fn cases() -> Vec<Case> {
    vec![
        Case { name: "success completes", body: "\"Succeed\"", ..CASE },
        Case {
            name: "handed out more often than allowed: the handler does not run",
            body: "\"Succeed\"",
            deliveries_before: 10,
            ends: SHELF,
            reason: "PoisonMessage",
            runs: 0,
            attempts: "1",
            ..CASE
        },
        Case { name: "handed out as often as allowed", body: "\"Succeed\"", deliveries_before: 9, ..CASE },
        Case {
            name: "a permanent error",
            body: "\"FailForGood\"",
            ends: SHELF,
            reason: "NonRetryableError",
            attempts: "1",
            ..CASE
        },
        Case { name: "a transient error, attempts left", body: "\"FailOnce\"", runs: 2, ..CASE },
        Case {
            name: "a transient error, exhausted",
            body: "\"FailAlways\"",
            ends: SHELF,
            reason: "MaxDeliveryCountExceeded",
            runs: 3,
            attempts: "3",
            ..CASE
        },
        Case {
            name: "an undecodable body: the handler does not run",
            body: "{ not json",
            ends: SHELF,
            reason: "NonRetryableError",
            runs: 0,
            attempts: "1",
            ..CASE
        },
        Case { name: "a panic counts as transient", body: "\"PanicOnce\"", runs: 2, ..CASE },
        Case {
            name: "panics exhaust",
            body: "\"Panic\"",
            ends: SHELF,
            reason: "MaxDeliveryCountExceeded",
            runs: 3,
            attempts: "3",
            ..CASE
        },
        Case {
            name: "a panic, configured as permanent",
            body: "\"Panic\"",
            preset: |preset| preset.panics(ErrorClass::Permanent),
            ends: SHELF,
            reason: "NonRetryableError",
            attempts: "1",
            ..CASE
        },
        Case {
            name: "a throttled error exhausts the same policy",
            body: "\"Throttle\"",
            ends: SHELF,
            reason: "MaxDeliveryCountExceeded",
            runs: 3,
            attempts: "3",
            ..CASE
        },
        Case {
            name: "a throttled error has a policy of its own",
            body: "\"Throttle\"",
            preset: |preset| preset.throttled(Fixed::from(secs(1)).attempts(7)),
            ends: SHELF,
            reason: "MaxDeliveryCountExceeded",
            runs: 7,
            attempts: "7",
            ..CASE
        },
        Case { name: "a snooze costs no attempt", body: "\"SnoozeOnce\"", runs: 2, ..CASE },
        Case {
            name: "the handler's own dead letter",
            body: "\"DeadLetter\"",
            ends: SHELF,
            reason: "OutOfStock",
            attempts: "1",
            ..CASE
        },
        Case {
            name: "the handler parks",
            body: "\"Park\"",
            ends: PARKED,
            reason: "OutOfStock",
            attempts: "1",
            ..CASE
        },
        Case { name: "the handler discards", body: "\"Discard\"", ..CASE },
        Case {
            name: "exhausted after too many redrives: parked",
            body: "\"FailAlways\"",
            redrives: 3,
            ends: PARKED,
            reason: "MaxDeliveryCountExceeded",
            runs: 3,
            attempts: "3",
            ..CASE
        },
        Case {
            name: "poison after too many redrives: parked",
            body: "\"Succeed\"",
            redrives: 3,
            deliveries_before: 10,
            ends: PARKED,
            reason: "PoisonMessage",
            runs: 0,
            attempts: "1",
            ..CASE
        },
        Case {
            name: "exhausted, configured to be parked",
            body: "\"FailAlways\"",
            preset: DeadLetterBackoff::park_exhausted,
            ends: PARKED,
            reason: "MaxDeliveryCountExceeded",
            runs: 3,
            attempts: "3",
            ..CASE
        },
    ]
}

#[derive(Debug)]
struct CarrierDown;
impl std::fmt::Display for CarrierDown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the carrier is down")
    }
}
impl std::error::Error for CarrierDown {}

async fn handle(State(runs): State<Arc<AtomicU32>>, Json(does): Json<Does>) -> Result<Disposition, BoxError> {
    let first = runs.fetch_add(1, Ordering::SeqCst) == 0;
    match does {
        Does::FailForGood => Err(Err::<(), _>(CarrierDown).permanent().unwrap_err().into()),
        Does::FailOnce if first => Err(CarrierDown.into()),
        Does::FailAlways => Err(CarrierDown.into()),
        Does::PanicOnce if first => panic!("dropped it"),
        Does::Panic => panic!("dropped it"),
        Does::Throttle => Err(Err::<(), _>(CarrierDown).throttled(secs(5)).unwrap_err().into()),
        Does::SnoozeOnce if first => Ok(Disposition::snooze(secs(30))),
        Does::Hang => std::future::pending().await,
        Does::DeadLetter => Ok(Disposition::DeadLetter(Failure::custom("OutOfStock", "none left"))),
        Does::Park => Ok(Disposition::Park(Failure::custom("OutOfStock", "none left"))),
        Does::Discard => Ok(Disposition::Discard(Failure::custom("OutOfStock", "none left"))),
        Does::Succeed | Does::FailOnce | Does::PanicOnce | Does::SnoozeOnce => Ok(Disposition::Ack),
    }
}

#[tokio::test(start_paused = true)]
async fn every_message_ends_where_the_table_says() {
    for case in cases() {
        let mut message = Message::new(case.body).with_id("m");
        if case.deliveries_before > 0 {
            message = message.with_header(header_names::HANDED_OUT, case.deliveries_before);
        }
        if case.redrives > 0 {
            message = message.with_header(header_names::REDRIVES, case.redrives);
        }
        let (broker, transport) = memory_with([message]);
        let runs = Arc::new(AtomicU32::new(0));
        let diary = Diary::new();
        let consumer = Consumer::new(transport)
            .with_dead_letter_backoff((case.preset)(DeadLetterBackoff::new([secs(1), secs(2)])))
            .observer(diary.observer())
            .handler_with(Arc::clone(&runs), handle);
        consumer.run_until(diary.ended(1)).await.unwrap();

        let name = case.name;
        assert_eq!(place(&broker), case.ends, "{name}");
        assert_eq!(runs.load(Ordering::SeqCst), case.runs, "{name}: how often the handler ran");
        let shelves = [Shelf::DeadLetter, Shelf::Parking];
        let shelved = shelves.iter().flat_map(|&shelf| broker.shelf(QUEUE, shelf)).next();
        if let Some(shelved) = shelved {
            assert_eq!(reason(&shelved), case.reason, "{name}");
            assert_eq!(header(&shelved, header_names::ATTEMPT), case.attempts, "{name}");
            assert_eq!(header(&shelved, header_names::SOURCE_QUEUE), QUEUE, "{name}");
            assert_eq!(shelved.body(), case.body, "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_cut_off_by_the_shutdown_is_charged_nothing() {
    let (broker, transport) = memory_with([Message::new("\"Hang\"").with_id("m")]);
    let runs = Arc::new(AtomicU32::new(0));
    let consumer = Consumer::new(transport)
        .with_dead_letter_backoff([secs(1)])
        .grace(secs(3))
        .handler_with(Arc::clone(&runs), handle);
    let report = consumer.run_until(tokio::time::sleep(Duration::from_secs(60))).await.unwrap();
    assert_eq!((runs.load(Ordering::SeqCst), report.released, report.retried), (1, 1, 0));
    assert_eq!(place(&broker), "ready");

    let diary = Diary::new();
    let succeed = |attempt: Attempt| async move { assert_eq!(attempt, Attempt(1)) };
    let again = Consumer::new(broker.transport(QUEUE)).observer(diary.observer()).handler(succeed);
    again.run_until(diary.ended(1)).await.unwrap();
    assert_eq!(diary.names(), ["ack"]);
    assert_eq!(diary.entries()[0].delivery.broker_delivery_count(), 1, "a release is not counted");
}
