//! Consumers whose broker refuses to hand out messages, for a while or for good.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive::TransportError;
use redrive::memory::Memory;
use redrive::prelude::*;
use redrive::{ConsumerError, Event, Health, TransportErrorKind};
use redrive_contract::Faulty;
use redrive_system_tests::{Diary, memory_with, numbered};
use tokio::time::Instant;

/// What a broker may refuse for a while.
const FOR_A_WHILE: [TransportErrorKind; 5] = [
    TransportErrorKind::Topology,
    TransportErrorKind::Unauthorized,
    TransportErrorKind::Unsupported,
    TransportErrorKind::Unreachable,
    TransportErrorKind::Other,
];

/// A transport that refuses these calls of `receive`.
fn refusing(
    transport: Memory,
    kind: TransportErrorKind,
    calls: impl Fn(u64) -> bool + Send + Sync + 'static,
) -> Faulty<Memory> {
    let refused = move || TransportError::new(kind, "the queue is disabled");
    Faulty::new(transport).on_receive(move |call| calls(call).then(&refused))
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_has_run_takes_up_again_whatever_was_refused_meanwhile() {
    for kind in FOR_A_WHILE {
        let (_broker, transport) = memory_with(numbered(3));
        let transport = refusing(transport, kind, |call| (2..12).contains(&call));
        let (diary, told) = (Diary::new(), Arc::new(Mutex::new(Vec::new())));
        let log = Arc::clone(&told);
        let runner = Consumer::new(transport)
            .observer(diary.observer())
            .observer(move |event: &Event<'_>| match event {
                Event::Interrupted { error, .. } => log.lock().unwrap().push(error.to_string()),
                Event::Recovered { .. } => log.lock().unwrap().push("recovered".to_owned()),
                _ => {}
            })
            .handler(async || ());
        let handle = runner.handle();
        let unready = async {
            let health = handle.wait_for_health(|health| health.interrupted_for.is_some()).await;
            assert!(health.is_live() && !health.is_ready(), "{health}");
            assert!(health.to_string().contains("tries again"), "{health}");
            assert!(health.to_string().contains("the queue is disabled"), "{health}");
            handle.wait_for_health(Health::is_ready).await;
            diary.settled(3).await;
        };
        let report = runner.run_until(unready).await.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        assert_eq!(report.acknowledged, 3, "{kind:?}");
        assert_eq!(*told.lock().unwrap(), ["the queue is disabled", "recovered"], "once each");
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_start_is_refused_at_once() {
    for kind in
        [TransportErrorKind::Topology, TransportErrorKind::Unauthorized, TransportErrorKind::Unsupported]
    {
        let (_broker, transport) = memory_with(numbered(1));
        let runner = Consumer::new(refusing(transport, kind, |_| true)).handler(async || ());
        let began = Instant::now();
        let error = runner.run().await.expect_err("nothing was ever received");
        assert!(matches!(error, ConsumerError::Transport { .. }), "{error}");
        assert!(began.elapsed() < secs(1), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_transport_that_was_closed_never_receives_again() {
    let (_broker, transport) = memory_with(numbered(3));
    let runner =
        Consumer::new(refusing(transport, TransportErrorKind::Closed, |call| call > 1)).handler(async || ());
    runner.run().await.expect_err("nothing comes any more");
}

#[tokio::test(start_paused = true)]
async fn who_wants_an_end_gets_it_after_the_time() {
    let (_broker, transport) = memory_with(numbered(1));
    let transport = refusing(transport, TransportErrorKind::Unreachable, |call| call > 1);
    let runner = Consumer::new(transport).give_up_after(mins(10)).handler(async || ());
    let handle = runner.handle();
    let began = Instant::now();
    let error = runner.run().await.expect_err("it gives up");
    assert!(matches!(error, ConsumerError::GaveUp { after, .. } if after == mins(10)), "{error}");
    assert!(error.to_string().contains("could not receive for 10m"), "{error}");
    assert!(began.elapsed() >= mins(10) && began.elapsed() < mins(11), "{:?}", began.elapsed());
    assert!(!handle.health().is_live(), "a restart is asked for");
}

#[tokio::test(start_paused = true)]
async fn short_interruptions_do_not_add_up_and_neither_do_pauses() {
    let (_broker, transport) = memory_with(numbered(40));
    let calls = AtomicU64::new(0);
    // Every fourth call finds the queue disabled, until an hour is over.
    let transport = refusing(transport, TransportErrorKind::Topology, move |_| {
        calls.fetch_add(1, Ordering::Relaxed) % 4 == 3
    });
    let diary = Diary::new();
    let slow = async || tokio::time::sleep(secs(60)).await;
    let runner = Consumer::new(transport)
        .concurrency(1)
        .give_up_after(secs(5))
        .observer(diary.observer())
        .handler(slow);
    let handle = runner.handle();
    let paused = async {
        handle.wait_for_health(|health| health.interrupted_for.is_some()).await;
        handle.pause();
        handle.wait_for_health(|health| health.paused_for.is_some()).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        handle.resume();
        diary.settled(40).await;
    };
    let report = runner.run_until(paused).await.expect("it waits");
    assert_eq!(report.acknowledged, 40);
}
