//! A delivery that is lost while it is handled, as with an expired lock: its handler is dropped, and nothing is charged.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redrive::memory::Memory;
use redrive::prelude::*;
use redrive::{Event, Report};
use redrive_contract::{InFlight, LockLossTransport};
use redrive_system_tests::{Diary, QUEUE, memory_with, numbered};
use tokio::sync::Notify;

type Hands = InFlight<redrive::transport::ReceiptOf<Memory>>;

/// Counts how handlers ended.
#[derive(Clone, Default)]
struct Seen {
    began: Arc<Notify>,
    runs: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
}

/// Held by a handler that has not ended.
struct Running(Seen);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

impl Seen {
    /// Takes an hour the first time, and no time after that.
    async fn handle(State(seen): State<Self>, delivery: Delivery) {
        assert_eq!(delivery.attempt(), 1, "a loss is not a failure");
        let first = seen.runs.fetch_add(1, Ordering::SeqCst) == 0;
        let running = Running(seen.clone());
        seen.began.notify_one();
        if first {
            tokio::time::sleep(mins(60)).await;
        }
        std::mem::forget(running);
    }
}

fn losing(messages: usize) -> (redrive::memory::MemoryBroker, LockLossTransport<Memory>, Hands) {
    let (broker, transport) = memory_with(numbered(messages));
    let transport = LockLossTransport::new(transport);
    let in_flight = transport.in_flight();
    (broker, transport, in_flight)
}

#[tokio::test(start_paused = true)]
async fn its_handler_is_dropped_and_the_message_comes_again_uncharged() {
    let (broker, transport, in_flight) = losing(1);
    let (seen, diary) = (Seen::default(), Diary::new());
    let lost = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lost);
    let consumer = Consumer::new(transport)
        .observer(diary.observer())
        .observer(move |event: &Event<'_>| {
            if let Event::Lost { delivery, .. } = event {
                assert_eq!(delivery.id(), "0");
                counted.fetch_add(1, Ordering::SeqCst);
            }
        })
        .with_dead_letter_backoff([secs(1)])
        .handler_with(seen.clone(), Seen::handle);
    let began = broker.now();
    let loses = async {
        seen.began.notified().await;
        assert!(in_flight.lose("0"));
    };
    let (report, ()) = tokio::join!(consumer.run_until(diary.ended(1)), loses);
    let report: Report = report.unwrap();
    assert_eq!((report.acknowledged, report.lost, report.released, report.retried), (1, 1, 0, 0));
    assert_eq!(lost.load(Ordering::SeqCst), 1, "it is told once");
    assert_eq!((seen.runs.load(Ordering::SeqCst), seen.dropped.load(Ordering::SeqCst)), (2, 1));
    assert_eq!(diary.names(), ["ack"]);
    assert!(broker.now().duration_since(began).unwrap() < mins(60), "the handler was not waited for");
    assert_eq!(broker.depth(QUEUE), 0);
}

#[tokio::test(start_paused = true)]
async fn a_second_message_that_is_alike_in_everything_is_handled_again() {
    let (broker, transport) = memory_with((0..2).map(|_| Message::new("the same").with_id("order-7")));
    let (transport, seen) = (LockLossTransport::new(transport), Seen::default());
    let in_flight = transport.in_flight();
    let (diary, second) = (Diary::new(), Arc::new(Notify::new()));
    let (counted, begins) = (Arc::clone(&seen.runs), Arc::clone(&second));
    let consumer = Consumer::new(transport)
        .concurrency(1)
        .observer(diary.observer())
        .with_dead_letter_backoff([secs(1)])
        .handler(move || {
            let run = counted.fetch_add(1, Ordering::SeqCst);
            if run == 1 {
                begins.notify_one();
            }
            tokio::time::sleep(secs(if run == 1 { 60 } else { 1 }))
        });
    let loses = async {
        second.notified().await;
        assert!(in_flight.lose("order-7"));
    };
    let all_handled = async {
        while seen.runs.load(Ordering::SeqCst) < 3 || broker.depth(QUEUE) > 0 {
            tokio::time::sleep(millis(100)).await;
        }
    };
    let all_handled =
        async { tokio::time::timeout(mins(10), all_handled).await.expect("it is not handled again") };
    let (report, ()) = tokio::join!(consumer.run_until(all_handled), loses);
    assert_eq!(report.unwrap().deduplicated, 0, "{diary:?}");
}

#[tokio::test(start_paused = true)]
async fn its_neighbours_go_on() {
    let (broker, transport, in_flight) = losing(5);
    let diary = Diary::new();
    let began = Arc::new(AtomicUsize::new(0));
    let (told, all_began) = (Arc::clone(&began), Arc::new(Notify::new()));
    let tells = Arc::clone(&all_began);
    let handler = move || {
        if told.fetch_add(1, Ordering::SeqCst) == 4 {
            tells.notify_one();
        }
        tokio::time::sleep(mins(1))
    };
    let consumer = Consumer::new(transport).concurrency(5).observer(diary.observer()).handler(handler);
    let loses = async {
        all_began.notified().await;
        assert!(in_flight.lose("2"));
    };
    let (report, ()) = tokio::join!(consumer.run_until(diary.ended(5)), loses);
    let report = report.unwrap();
    assert_eq!((report.acknowledged, report.lost), (5, 1));
    assert_eq!(began.load(Ordering::SeqCst), 6);
    assert_eq!(broker.depth(QUEUE), 0);
}

#[tokio::test(start_paused = true)]
async fn no_handler_begins_with_what_is_lost_already() {
    let (_broker, transport, in_flight) = losing(1);
    let (seen, diary) = (Seen::default(), Diary::new());
    let received = AtomicUsize::new(0);
    let consumer = Consumer::new(transport)
        .observer(diary.observer())
        .observer(move |event: &Event<'_>| {
            // On its way to the handler.
            if let Event::Received { delivery } = event
                && received.fetch_add(1, Ordering::SeqCst) == 0
            {
                assert!(in_flight.lose(delivery.id()));
            }
        })
        .handler_with(Arc::clone(&seen.runs), |State(runs): State<Arc<AtomicUsize>>| async move {
            runs.fetch_add(1, Ordering::SeqCst);
        });
    let report = consumer.run_until(diary.ended(1)).await.unwrap();
    assert_eq!((report.acknowledged, report.lost), (1, 1));
    assert_eq!(seen.runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn the_ledger_blames_it_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let (_broker, transport, in_flight) = losing(1);
    let (seen, diary) = (Seen::default(), Diary::new());
    let consumer = Consumer::new(transport)
        .ledger(&path)
        .observer(diary.observer())
        .handler_with(seen.clone(), Seen::handle);
    let loses = async {
        seen.began.notified().await;
        assert!(in_flight.lose("0"));
    };
    let (report, ()) = tokio::join!(consumer.run_until(diary.ended(1)), loses);
    assert_eq!(report.unwrap().lost, 1);
    let written = std::fs::read_to_string(path).unwrap();
    let signs: Vec<_> = written.lines().skip(1).map(|line| &line[..1]).collect();
    assert_eq!(signs, ["+", "<", "+", "-"], "begun, given back, begun, ended: {written}");
}
