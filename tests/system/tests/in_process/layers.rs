//! Every claim of docs/layers.md, one test each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redrive::memory::MemoryBroker;
use redrive::prelude::*;
use redrive::{Permanent, StageLayer};
use redrive_system_tests::{Diary, QUEUE, header, memory_with, numbered, reason};
use tokio::time::sleep;
use tower::ServiceBuilder;
use tower::buffer::BufferLayer;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::timeout::TimeoutLayer;
use tower::util::MapErrLayer;

use crate::handlers::{counted, fail};

async fn slow() {
    sleep(secs(5)).await;
}

fn only_dead_letter(broker: &MemoryBroker) -> Message {
    let mut shelf = broker.shelf(QUEUE, Shelf::DeadLetter);
    assert_eq!(shelf.len(), 1);
    shelf.remove(0)
}

#[tokio::test(start_paused = true)]
async fn a_timeout_inside_the_preset_is_a_failed_attempt() {
    let (broker, transport) = memory_with(numbered(1));
    let diary = Diary::new();
    let consumer = Consumer::new(transport)
        .with_dead_letter_backoff([secs(1)])
        .layer(TimeoutLayer::new(secs(2)))
        .observer(diary.observer())
        .handler(slow);
    consumer.run_until(diary.ended(1)).await.unwrap();
    assert_eq!(diary.names(), ["retry", "dead-letter"]);
    assert_eq!(reason(&only_dead_letter(&broker)), "MaxDeliveryCountExceeded");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_outside_the_preset_is_never_retried() {
    let (broker, transport) = memory_with(numbered(1));
    let diary = Diary::new();
    let consumer = Consumer::new(transport)
        .layer(TimeoutLayer::new(secs(2)))
        .with_dead_letter_backoff([secs(1)])
        .observer(diary.observer())
        .handler(slow);
    consumer.run_until(diary.ended(1)).await.unwrap();
    assert_eq!(diary.names(), ["dead-letter"]);
    assert_eq!(reason(&only_dead_letter(&broker)), "Undecided");
}

#[tokio::test(start_paused = true)]
async fn a_concurrency_limit_takes_no_message_that_it_has_no_room_for() {
    assert_eq!(
        most_held(|consumer| consumer.layer(GlobalConcurrencyLimitLayer::new(2)).handler(slow)).await,
        2
    );
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_takes_no_message_that_it_has_no_permit_for() {
    let (broker, transport) = memory_with(numbered(100));
    let limit = RateLimit::new(2, secs(1));
    let consumer = || Consumer::new(broker.transport(QUEUE)).concurrency(8).layer(limit.clone());
    let diary = Diary::new();
    let consumers = Consumers::new()
        .with(consumer().observer(diary.observer()).handler(slow))
        .with(Consumer::new(transport).layer(limit.clone()).observer(diary.observer()).handler(slow));
    let watched = broker.clone();
    consumers
        .run_until(async move {
            sleep(millis(9900)).await;
            // Those of the last five seconds are at work, and none waits for them in a process.
            assert!(watched.held(QUEUE) <= 14, "{}", watched.held(QUEUE));
        })
        .await
        .unwrap();
    assert_eq!(
        diary.names().len(),
        20,
        "the first at once, and then one in each half second, of both together"
    );
}

#[tokio::test(start_paused = true)]
async fn an_idle_consumer_keeps_no_place_of_a_limit_that_it_shares() {
    let handled = async |places| {
        let limit = GlobalConcurrencyLimitLayer::new(places);
        let idle = Consumer::new(redrive::memory::Memory::new("idle")).layer(limit.clone()).handler(slow);
        let (_broker, transport) = memory_with(numbered(3));
        let busy = Consumer::new(transport).layer(limit).handler(slow);
        let (_, busy) = tokio::join!(idle.run_until(sleep(mins(1))), busy.run_until(sleep(mins(1))));
        busy.unwrap().acknowledged
    };
    assert_eq!(handled(1).await, 3);
    assert_eq!(handled(2).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_buffer_takes_messages_that_nobody_has_room_for() {
    let held = most_held(|consumer| {
        consumer.layer(BufferLayer::new(100)).layer(GlobalConcurrencyLimitLayer::new(2)).handler(slow)
    });
    assert_eq!(held.await, 16, "as many as the consumer's concurrency allows, and 14 of them only wait");
}

/// How many messages are in flight at most while 30 are worked off.
async fn most_held(
    build: impl FnOnce(Consumer<redrive::memory::Memory>) -> redrive::Runner<redrive::memory::Memory>,
) -> usize {
    let (broker, transport) = memory_with(numbered(30));
    let diary = Diary::new();
    let consumer = build(Consumer::new(transport).concurrency(16).observer(diary.observer()));
    let most = Arc::new(AtomicUsize::new(0));
    let watching = async {
        loop {
            most.fetch_max(broker.held(QUEUE), Ordering::SeqCst);
            sleep(millis(100)).await;
        }
    };
    tokio::select! {
        report = consumer.run_until(diary.ended(30)) => drop(report.unwrap()),
        () = watching => {}
    }
    most.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn load_shedding_burns_attempts_of_messages_that_no_handler_saw() {
    let (broker, transport) = memory_with(numbered(10));
    let runs = Arc::new(AtomicUsize::new(0));
    let handler = counted(&runs, || sleep(secs(3600)));
    let consumer = Consumer::new(transport)
        .with_dead_letter_backoff([secs(1)])
        .layer(LoadShedLayer::new())
        .layer(GlobalConcurrencyLimitLayer::new(1))
        .grace(secs(1))
        .handler(handler);
    consumer.run_until(sleep(secs(60))).await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(broker.shelf(QUEUE, Shelf::DeadLetter).len(), 9, "set aside, and no handler ever saw them");
}

#[tokio::test(start_paused = true)]
async fn an_open_circuit_that_answers_with_errors_burns_attempts_too() {
    let (broker, transport) = memory_with(numbered(10));
    let runs = Arc::new(AtomicUsize::new(0));
    let diary = Diary::new();
    let open_circuit = |_: Delivery| Err::<Delivery, _>("the circuit is open");
    let consumer = Consumer::new(transport)
        .with_dead_letter_backoff([secs(1)])
        .layer(tower::filter::FilterLayer::new(open_circuit))
        .observer(diary.observer())
        .handler(counted(&runs, || sleep(secs(0))));
    consumer.run_until(diary.ended(10)).await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    assert_eq!(broker.shelf(QUEUE, Shelf::DeadLetter).len(), 10, "set aside, and no handler ever saw them");
}

#[tokio::test(start_paused = true)]
async fn a_retry_in_memory_is_counted_by_nobody() {
    let (broker, transport) = memory_with(numbered(1));
    let runs = Arc::new(AtomicUsize::new(0));
    let diary = Diary::new();
    let consumer = Consumer::new(transport)
        .with_dead_letter_backoff(redrive::NoRetry)
        .layer(tower::retry::RetryLayer::new(ThreeTimes(0)))
        .observer(diary.observer())
        .handler(counted(&runs, fail));
    consumer.run_until(diary.ended(1)).await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 4);
    assert_eq!(header(&only_dead_letter(&broker), redrive::header_names::ATTEMPT), "1");
}

#[derive(Clone)]
struct ThreeTimes(u32);

impl tower::retry::Policy<Delivery, Disposition, BoxError> for ThreeTimes {
    type Future = std::future::Ready<()>;

    fn retry(
        &mut self,
        _: &mut Delivery,
        result: &mut Result<Disposition, BoxError>,
    ) -> Option<std::future::Ready<()>> {
        self.0 += 1;
        (result.is_err() && self.0 <= 3).then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, delivery: &Delivery) -> Option<Delivery> {
        Some(delivery.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_can_say_what_kind_of_error_it_is() {
    let (broker, transport) = memory_with(numbered(1));
    let diary = Diary::new();
    let consumer = Consumer::new(transport)
        .with_dead_letter_backoff([secs(1)])
        .layer(MapErrLayer::new(|error: BoxError| -> BoxError { Permanent::new(error).into() }))
        .observer(diary.observer())
        .handler(fail);
    consumer.run_until(diary.ended(1)).await.unwrap();
    assert_eq!(diary.names(), ["dead-letter"]);
    assert_eq!(reason(&only_dead_letter(&broker)), "NonRetryableError");
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_panics_takes_nobody_with_it() {
    let diary = Diary::new();
    let (broker, transport) = memory_with(numbered(2));
    let panics_once = Arc::new(AtomicUsize::new(0));
    let inside = MapErrLayer::new(move |error: BoxError| -> BoxError {
        assert!(panics_once.fetch_add(1, Ordering::SeqCst) > 0, "broken layer");
        error
    });
    let consumer = Consumer::new(transport)
        .concurrency(1)
        .with_dead_letter_backoff(redrive::NoRetry)
        .layer(inside)
        .observer(diary.observer())
        .handler(fail);
    consumer.run_until(diary.ended(2)).await.unwrap();
    let reasons: Vec<_> = broker.shelf(QUEUE, Shelf::DeadLetter).iter().map(reason).collect();
    assert_eq!(reasons, ["Undecided", "MaxDeliveryCountExceeded"]);
}

#[tokio::test(start_paused = true)]
async fn the_preset_goes_into_a_service_builder_and_around_a_handler() {
    let builder = ServiceBuilder::new()
        .with_dead_letter_backoff(DeadLetterBackoff::new([secs(1)]).poison_after(3))
        .timeout(secs(2));
    let on_builder = |consumer: Consumer<redrive::memory::Memory>| consumer.layer(builder).handler(slow);
    let on_handler = |consumer: Consumer<redrive::memory::Memory>| {
        consumer.handler(fail.with_dead_letter_backoff([secs(1)]))
    };
    let as_stage = |consumer: Consumer<redrive::memory::Memory>| {
        consumer.layer(StageLayer::new(redrive::Backoff::new([secs(1)]))).handler(fail)
    };
    type Build =
        Box<dyn FnOnce(Consumer<redrive::memory::Memory>) -> redrive::Runner<redrive::memory::Memory>>;
    for build in [Box::new(on_builder) as Build, Box::new(on_handler), Box::new(as_stage)] {
        let (broker, transport) = memory_with(numbered(1));
        let diary = Diary::new();
        build(Consumer::new(transport).observer(diary.observer())).run_until(diary.ended(1)).await.unwrap();
        assert_eq!(diary.names(), ["retry", "dead-letter"]);
        assert_eq!(reason(&only_dead_letter(&broker)), "MaxDeliveryCountExceeded");
    }
}
