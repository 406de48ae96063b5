//! Handlers of batches, in a consumer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive::memory::{Memory, MemoryBroker};
use redrive::prelude::*;
use redrive::{Extension, NoRetry, Reason, Runner, header_names};
use redrive_system_tests::{QUEUE, header, memory_with, numbered, reason};
use tokio::time::{Instant, sleep};

/// Which consumer stored which number.
type Stored = Arc<Mutex<Vec<(u32, u32)>>>;

/// When a handler was called, and with what.
type Call = (Duration, Vec<u32>);

/// The calls of a handler.
#[derive(Clone)]
struct Calls {
    began: Instant,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Calls {
    fn new() -> Self {
        Self { began: Instant::now(), calls: Arc::default() }
    }

    fn note(&self, batch: &Batch<Json<u32>>) -> Vec<u32> {
        let numbers: Vec<_> = batch.iter().map(|Json(number)| *number).collect();
        self.calls.lock().unwrap().push((self.began.elapsed(), numbers.clone()));
        numbers
    }

    fn sizes(&self) -> Vec<usize> {
        self.calls.lock().unwrap().iter().map(|(_, numbers)| numbers.len()).collect()
    }
}

async fn run(consumer: Runner<Memory>, time: Duration) {
    consumer.run_until(sleep(time)).await.unwrap();
}

fn on_shelf(broker: &MemoryBroker) -> Vec<String> {
    let mut ids: Vec<_> = broker
        .shelf(QUEUE, Shelf::DeadLetter)
        .iter()
        .map(|message| message.id().unwrap().to_owned())
        .collect();
    ids.sort();
    ids
}

async fn fails_with_a_seven(State(calls): State<Calls>, batch: Batch<Json<u32>>) -> Result<(), BoxError> {
    if calls.note(&batch).contains(&7) { Err("a seven".into()) } else { Ok(()) }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_full_or_its_time_is_over() {
    let (broker, transport) = memory_with(numbered(250));
    let calls = Calls::new();
    let consumer = Consumer::new(transport).handler_with(calls.clone(), notes.in_batches(100, secs(2)));
    run(consumer, secs(10)).await;
    assert_eq!(calls.sizes(), [100, 100, 50]);
    let times: Vec<_> = calls.calls.lock().unwrap().iter().map(|(at, _)| at.as_secs()).collect();
    assert_eq!(times, [0, 0, 2]);
    assert_eq!(broker.depth(QUEUE), 0);
}

async fn notes(State(calls): State<Calls>, batch: Batch<Json<u32>>) {
    calls.note(&batch);
}

#[tokio::test(start_paused = true)]
async fn the_bad_item_is_found_at_once_and_only_it_is_retried() {
    let (broker, transport) = memory_with(numbered(16));
    let calls = Calls::new();
    let consumer = Consumer::new(transport)
        .with_dead_letter_backoff([secs(5)])
        .handler_with(calls.clone(), fails_with_a_seven.in_batches(16, secs(1)));
    run(consumer, secs(20)).await;
    assert_eq!(calls.sizes(), [16, 8, 4, 4, 2, 2, 1, 1, 8, 1]);
    let calls = calls.calls.lock().unwrap();
    assert!(calls[..9].iter().all(|(at, _)| *at < secs(1)), "no wait between halves: {calls:?}");
    let (again, last) = calls.last().unwrap();
    assert!(*again >= secs(5) && *last == [7], "{calls:?}");
    assert_eq!(on_shelf(&broker), ["7"]);
    assert_eq!(broker.depth(QUEUE), 0);
}

#[tokio::test(start_paused = true)]
async fn outcomes_of_items_are_final() {
    async fn each(State(calls): State<Calls>, batch: Batch<Json<u32>>) -> Vec<Result<(), BoxError>> {
        let odd = |number: u32| if number % 2 == 1 { Err("odd".into()) } else { Ok(()) };
        calls.note(&batch).into_iter().map(odd).collect()
    }
    let (broker, transport) = memory_with(numbered(4));
    let calls = Calls::new();
    let consumer = Consumer::new(transport)
        .with_dead_letter_backoff([secs(5)])
        .handler_with(calls.clone(), each.in_batches(4, secs(1)));
    run(consumer, secs(20)).await;
    assert_eq!(calls.sizes(), [4, 2], "the odd ones once more, and nobody else");
    assert_eq!(on_shelf(&broker), ["1", "3"]);
    for message in broker.shelf(QUEUE, Shelf::DeadLetter) {
        assert_eq!(header(&message, header_names::ATTEMPT), "2");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_that_of_the_item_that_causes_it() {
    async fn panics(batch: Batch<Json<u32>>) {
        assert!(!batch.iter().any(|Json(number)| *number == 7), "a seven");
    }
    let (broker, transport) = memory_with(numbered(10));
    let consumer = Consumer::new(transport)
        .with_dead_letter_backoff([secs(1)])
        .handler(panics.in_batches(10, millis(50)));
    run(consumer, secs(20)).await;
    assert_eq!((on_shelf(&broker), broker.depth(QUEUE)), (vec!["7".to_owned()], 0));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_in_no_batch() {
    let (broker, transport) = memory_with(numbered(3));
    broker.publish(QUEUE, Message::new("no number").with_id("x")).unwrap();
    let calls = Calls::new();
    let consumer = Consumer::new(transport)
        .with_dead_letter_backoff([secs(5)])
        .handler_with(calls.clone(), fails_with_a_seven.in_batches(4, secs(1)));
    run(consumer, secs(20)).await;
    assert_eq!(calls.sizes(), [3]);
    assert_eq!(on_shelf(&broker), ["x"]);
    assert_eq!(reason(&broker.shelf(QUEUE, Shelf::DeadLetter)[0]), Reason::NonRetryableError.as_str());
}

#[tokio::test(start_paused = true)]
async fn a_throttled_batch_is_not_halved() {
    async fn busy(State(calls): State<Calls>, batch: Batch<Json<u32>>) -> Result<(), BoxError> {
        let first = calls.sizes().is_empty();
        calls.note(&batch);
        if first { Err("429").throttled(secs(30)).map_err(Into::into) } else { Ok(()) }
    }
    let (broker, transport) = memory_with(numbered(8));
    let calls = Calls::new();
    let consumer = Consumer::new(transport)
        .with_dead_letter_backoff([secs(5)])
        .handler_with(calls.clone(), busy.in_batches(8, secs(1)));
    run(consumer, secs(60)).await;
    assert_eq!(calls.sizes(), [8, 8]);
    assert!(calls.calls.lock().unwrap()[1].0 >= secs(30));
    assert_eq!((on_shelf(&broker).len(), broker.depth(QUEUE)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_nobody_waits_for_any_more_is_dropped_and_charges_nobody() {
    /// Counts the calls that were dropped before their end.
    #[derive(Clone, Default)]
    struct Dropped(Arc<Mutex<u32>>);
    struct Running(Dropped);
    impl Drop for Running {
        fn drop(&mut self) {
            *self.0.0.lock().unwrap() += 1;
        }
    }
    async fn hangs(State(dropped): State<Dropped>, _batch: Batch<Json<u32>>) {
        let _running = Running(dropped);
        sleep(secs(1000)).await;
    }
    let (broker, transport) = memory_with(numbered(5));
    let dropped = Dropped::default();
    let consumer = Consumer::new(transport)
        .grace(secs(3))
        .with_dead_letter_backoff([secs(5)])
        .handler_with(dropped.clone(), hangs.in_batches(5, secs(1)));
    run(consumer, secs(10)).await;
    // The task of the batch ends at its next turn.
    tokio::task::yield_now().await;
    assert_eq!(*dropped.0.lock().unwrap(), 1);
    assert_eq!((broker.depth(QUEUE), on_shelf(&broker).len()), (5, 0), "all are back in the queue");
    let consumer = Consumer::new(broker.transport(QUEUE))
        .handler(async |Attempt(attempt): Attempt| assert_eq!(attempt, 1));
    run(consumer, secs(1)).await;
    assert_eq!(broker.depth(QUEUE), 0);
}

#[tokio::test(start_paused = true)]
async fn batches_are_routes_and_know_what_is_the_same_for_all() {
    async fn copy(
        publisher: Publisher,
        batch: Batch<(Json<u32>, Attempt, Option<Extension<u8>>)>,
    ) -> Result<(), BoxError> {
        let sum: u32 = batch.iter().map(|(Json(number), Attempt(attempt), _)| number * attempt).sum();
        publisher.publish(Message::new(sum.to_string()).with_kind("sum")).await?;
        Ok(())
    }
    async fn sum(Json(sum): Json<u32>) -> Disposition {
        assert_eq!(sum, 45);
        Disposition::Park(Failure::custom("Sum", "seen"))
    }
    let (broker, transport) = memory_with([]);
    for number in 0..10 {
        broker.publish(QUEUE, Message::new(number.to_string()).with_kind("number")).unwrap();
    }
    let router = Router::by_kind()
        .route("number", copy.in_batches(10, secs(1)).with_dead_letter_backoff([secs(1)]))
        .route("sum", sum)
        .unknown(UnknownKey::DeadLetter)
        .unwrap();
    run(Consumer::new(transport).concurrency(1).handler(router), secs(10)).await;
    assert_eq!((broker.depth(QUEUE), broker.shelf(QUEUE, Shelf::Parking).len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn clones_in_two_consumers_take_the_state_of_each() {
    async fn stores(State((name, stored)): State<(u32, Stored)>, batch: Batch<Json<u32>>) {
        stored.lock().unwrap().extend(batch.iter().map(|Json(number)| (name, *number)));
    }
    let stored: Arc<Mutex<Vec<(u32, u32)>>> = Arc::default();
    let handler = stores.in_batches(10, secs(1));
    let mut consumers = Consumers::new();
    for name in [1, 2] {
        let (_, transport) = memory_with(numbered(3));
        consumers = consumers
            .with(Consumer::new(transport).handler_with((name, Arc::clone(&stored)), handler.clone()));
    }
    consumers.run_until(sleep(secs(5))).await.unwrap();
    let mut stored = stored.lock().unwrap().clone();
    stored.sort_unstable();
    assert_eq!(stored, [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]);
}

#[tokio::test(start_paused = true)]
async fn an_error_that_panics_when_it_is_shown_is_that_of_its_item() {
    #[derive(Debug)]
    struct Unshowable;
    impl std::fmt::Display for Unshowable {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("no text")
        }
    }
    impl std::error::Error for Unshowable {}
    async fn fails(batch: Batch<Json<u32>>) -> Result<(), Unshowable> {
        if batch.iter().any(|Json(number)| *number == 3) { Err(Unshowable) } else { Ok(()) }
    }
    let (broker, transport) = memory_with(numbered(4));
    let consumer =
        Consumer::new(transport).with_dead_letter_backoff(NoRetry).handler(fails.in_batches(4, secs(1)));
    run(consumer, secs(10)).await;
    assert_eq!((on_shelf(&broker), broker.depth(QUEUE)), (vec!["3".to_owned()], 0));
}

/// Whatever items are bad: each good one is acknowledged, each bad one fails alone, and no call is wasted.
#[tokio::test(start_paused = true)]
async fn whichever_items_are_bad_they_end_alone() {
    #[derive(Clone)]
    struct Bad(u32, Arc<Mutex<Vec<u32>>>, Arc<Mutex<u32>>);
    async fn fails(
        State(Bad(bad, done, calls)): State<Bad>,
        batch: Batch<Json<u32>>,
    ) -> Result<(), BoxError> {
        *calls.lock().unwrap() += 1;
        if batch.iter().any(|Json(number)| bad & (1 << number) != 0) {
            return Err("one of these".into());
        }
        done.lock().unwrap().extend(batch.iter().map(|Json(number)| number));
        Ok(())
    }
    for bad in 0..256 {
        let (broker, transport) = memory_with(numbered(8));
        let state = Bad(bad, Arc::default(), Arc::default());
        let consumer = Consumer::new(transport)
            .with_dead_letter_backoff(NoRetry)
            .handler_with(state.clone(), fails.in_batches(8, millis(10)));
        run(consumer, secs(1)).await;
        let is_bad = |number: &u32| bad & (1 << number) != 0;
        let mut done = state.1.lock().unwrap().clone();
        done.sort_unstable();
        assert!(done.iter().copied().eq((0..8).filter(|number| !is_bad(number))), "{bad:b}: {done:?}");
        let shelved: Vec<_> = (0..8).filter(is_bad).map(|number| number.to_string()).collect();
        assert_eq!(on_shelf(&broker), shelved, "{bad:b}");
        let most = 1 + 6 * bad.count_ones();
        assert!(*state.2.lock().unwrap() <= most, "{bad:b}: more than {most} calls");
    }
}
