//! What the consumer does when settling goes wrong, fault by fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redrive::memory::Memory;
use redrive::prelude::*;
use redrive::transport::{HeaderLimit, Settlement};
use redrive::{Report, TransportErrorKind, header_names};
use redrive_contract::{Fault, Faulty, Recording};
use redrive_system_tests::shared::Shared;
use redrive_system_tests::{Diary, QUEUE, header, memory_with, numbered};

/// Fails or succeeds by its body, and counts how often it ran.
#[derive(Clone, Default)]
struct Runs(Arc<AtomicUsize>);

async fn handle(State(runs): State<Runs>, body: String) -> Result<(), BoxError> {
    runs.0.fetch_add(1, Ordering::SeqCst);
    if body == "fails" { Err("no answer".into()) } else { Ok(()) }
}

async fn run(faulty: Faulty<Memory>, ends: usize) -> (Report, usize, Vec<&'static str>, Vec<Settlement>) {
    let recording = Recording::new(faulty);
    let log = recording.log();
    let (runs, diary) = (Runs::default(), Diary::new());
    let consumer = Consumer::new(recording)
        .with_dead_letter_backoff([secs(1)])
        .observer(diary.observer())
        .handler_with(runs.clone(), handle);
    let report = consumer.run_until(diary.settled(ends)).await.unwrap();
    let settlements = log.all().into_iter().map(|entry| entry.settlement).collect();
    (report, runs.0.load(Ordering::SeqCst), diary.names(), settlements)
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_lost_on_its_way_is_deduplicated() {
    let (broker, transport) = memory_with(numbered(1));
    let faulty = Faulty::new(transport).fail_settle(1, Fault::LostAfter);
    let (report, runs, names, _) = run(faulty, 1).await;
    assert_eq!((runs, names), (1, vec!["on sight"]), "the handler must not run twice");
    assert_eq!((report.lost, report.deduplicated), (1, 1));
    assert_eq!(broker.depth(QUEUE), 0);
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_not_stored_twice_when_the_removal_of_its_original_was_lost() {
    let (broker, transport) = memory_with([Message::new("fails").with_id("m")]);
    let faulty = Faulty::new(transport).fail_settle(1, Fault::LostAfter);
    // The original is deduplicated, its copy handled after the wait: once each.
    let (_, runs, names, settlements) = run(faulty, 2).await;
    assert_eq!(runs, 2);
    assert_eq!(names, ["on sight", "dead-letter"]);
    let copies = settlements.iter().filter(|settlement| settlement.stores_copy()).count();
    assert_eq!(copies, 2, "one retry and one dead letter: {settlements:?}");
    let shelf = broker.shelf(QUEUE, Shelf::DeadLetter);
    assert_eq!(shelf.len(), 1);
    assert_eq!(header(&shelf[0], header_names::ATTEMPT), "2");
}

#[tokio::test(start_paused = true)]
async fn a_settlement_that_was_lost_before_it_was_carried_out_is_made_again() {
    let (broker, transport) = memory_with([Message::new("fails").with_id("m")]);
    let faulty = Faulty::new(transport).fail_settle(1, Fault::LostBefore);
    let (report, runs, names, _) = run(faulty, 2).await;
    assert_eq!(
        (runs, names),
        (3, vec!["retry", "dead-letter"]),
        "nothing tells of the first run: it is run again"
    );
    assert_eq!(report.lost, 1);
    assert_eq!(header(&broker.shelf(QUEUE, Shelf::DeadLetter)[0], header_names::ATTEMPT), "2");
}

#[tokio::test(start_paused = true)]
async fn what_was_acknowledged_and_lost_before_is_deduplicated_all_the_same() {
    let (broker, transport) = memory_with(numbered(1));
    let faulty = Faulty::new(transport).fail_settle(1, Fault::LostBefore);
    let (_, runs, names, _) = run(faulty, 1).await;
    assert_eq!((runs, names), (1, vec!["on sight"]));
    assert_eq!(broker.depth(QUEUE), 0);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_too_large_to_be_copied_is_moved_by_the_broker_itself() {
    let (broker, transport) = memory_with([Message::new("fails").with_id("m")]);
    let faulty = Faulty::new(transport).on_settle(|attempted| {
        if attempted.settlement.stores_copy() {
            Fault::Refused(TransportErrorKind::TooLarge)
        } else {
            Fault::None
        }
    });
    let (report, runs, names, settlements) = run(faulty, 1).await;
    assert_eq!((runs, names, report.dead_lettered), (1, vec!["dead-letter"], 1));
    assert_eq!(settlements.last(), Some(&Settlement::NativeDeadLetter));
    let shelf = broker.shelf(QUEUE, Shelf::DeadLetter);
    assert_eq!(shelf.len(), 1);
    assert_eq!(header(&shelf[0], header_names::ATTEMPT), "", "without its history");
}

/// The broker refuses what is in one message.
#[tokio::test(start_paused = true)]
async fn a_message_whose_content_is_refused_is_moved_by_the_broker_itself() {
    let (broker, transport) = memory_with(["a", "b", "c"].map(|id| Message::new("fails").with_id(id)));
    let faulty = Faulty::new(transport).on_settle(|attempted| match attempted.delivery.id() {
        "b" if attempted.settlement.stores_copy() => Fault::Refused(TransportErrorKind::Refused),
        _ => Fault::None,
    });
    let (report, _, names, _) = run(faulty, 5).await;
    assert_eq!((report.dead_lettered, report.retried), (3, 2), "{names:?}");
    let shelf = broker.shelf(QUEUE, Shelf::DeadLetter);
    let attempts = shelf.iter().map(|shelved| header(shelved, header_names::ATTEMPT));
    assert_eq!(attempts.collect::<Vec<_>>(), ["", "2", "2"], "b first, without its history");
}

/// Whether a refusal concerns the message or all is seen by the next ones.
#[tokio::test(start_paused = true)]
async fn a_copy_that_alone_is_refused_for_an_unknown_reason_stops_no_others() {
    let messages = (0..40).map(|number| Message::new("fails").with_id(format!("m{number}")));
    let (broker, transport) = memory_with(messages);
    let faulty = Faulty::new(transport).on_settle(|attempted| match attempted.delivery.id() {
        "m1" | "m2" if attempted.settlement.stores_copy() => Fault::Refused(TransportErrorKind::Unsupported),
        _ => Fault::None,
    });
    let (runs, diary) = (Runs::default(), Diary::new());
    let runner = Consumer::new(faulty)
        .concurrency(4)
        .with_dead_letter_backoff([secs(1)])
        .observer(diary.observer())
        .handler_with(runs.clone(), handle);
    // 38 retries and as many dead letters.
    runner.run_until(diary.settled(76)).await.unwrap();
    let shelf = broker.shelf(QUEUE, Shelf::DeadLetter);
    assert!(shelf.len() >= 38, "{}", shelf.len());
    assert_eq!(broker.depth(QUEUE) + shelf.len(), 40, "none is lost");
}

/// Its headers alone exceed the limit: no copy is tried.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_copied_is_told_as_dead_lettered_and_not_as_retried() {
    let dispositions = [
        Disposition::snooze(secs(1)),
        Disposition::Retry(secs(1), Failure::custom("Busy", "no answer")),
        Disposition::Park(Failure::custom("Stuck", "no answer")),
    ];
    for disposition in dispositions {
        let (broker, transport) = memory_with(numbered(1));
        let transport = Shared::saying(Arc::new(transport), |said| {
            said.limits.headers = Some(HeaderLimit::new(1, |_| 2));
        });
        let diary = Diary::new();
        let consumer = Consumer::new(transport)
            .with_dead_letter_backoff([secs(1)])
            .observer(diary.observer())
            .handler_with(disposition, async |State(disposition): State<Disposition>| disposition);
        let report = consumer.run_until(diary.settled(1)).await.unwrap();
        assert_eq!((diary.names(), report.dead_lettered), (vec!["dead-letter"], 1));
        assert_eq!(broker.shelf(QUEUE, Shelf::DeadLetter).len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_on_and_cannot_be_copied_is_told_as_dead_lettered() {
    let due = redrive::rfc3339(std::time::SystemTime::now() + secs(86_400)).unwrap();
    let (broker, transport) = memory_with([Message::new("ok").with_header(header_names::NOT_BEFORE, due)]);
    let transport = Shared::saying(Arc::new(transport), |said| {
        (said.limits.headers, said.delays.longest) = (Some(HeaderLimit::new(1, |_| 2)), None);
    });
    let diary = Diary::new();
    let consumer = Consumer::new(transport).observer(diary.observer()).handler(async || ());
    let report = consumer.run_until(diary.settled(1)).await.unwrap();
    assert_eq!((diary.names(), report.dead_lettered), (vec!["dead-letter"], 1));
    assert_eq!(broker.shelf(QUEUE, Shelf::DeadLetter).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_refused_for_a_while_is_stored_once_and_the_handler_runs_once() {
    let (_broker, transport) = memory_with([Message::new("fails").with_id("m")]);
    let faulty = Faulty::new(transport).on_settle(|attempted| {
        if attempted.number <= 5 { Fault::Refused(TransportErrorKind::Unconfirmed) } else { Fault::None }
    });
    let (_, runs, names, _) = run(faulty, 1).await;
    assert_eq!((runs, names), (1, vec!["retry"]));
}
