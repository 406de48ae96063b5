//! A consumer whose layers have limits goes on whatever its stages turn away, and says so if a layer never gets ready.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use fastrand::Rng;
use redrive::memory::{Memory, MemoryBroker};
use redrive::prelude::*;
use redrive::{Event, Failure, StageLayer};
use redrive_system_tests::recorded::Recorded;
use redrive_system_tests::shared::Shared;
use redrive_system_tests::{Diary, QUEUE, memory_with, numbered};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep, timeout};
use tower::filter::FilterLayer;
use tower::limit::{ConcurrencyLimitLayer, GlobalConcurrencyLimitLayer};
use tower::timeout::TimeoutLayer;
use tower::util::BoxCloneService;
use tower::{Layer, Service};
use tracing::Level;

/// After a minute the watchdog would free what waits, and hide the fault.
const BEFORE_THE_WATCHDOG: Duration = secs(55);

fn number_of(delivery: &Delivery) -> u64 {
    delivery.id().parse().expect("the ids of these tests are numbers")
}

/// Turns away 40 of 100 messages, for good or for now.
fn turns_away(with: fn(&Delivery) -> Disposition) -> impl redrive::Stage {
    stage::admit(move |delivery: &Delivery| {
        let turned_away = number_of(delivery) % 5 < 2 && delivery.message().headers().get("seen").is_none();
        if turned_away { ControlFlow::Break(with(delivery)) } else { ControlFlow::Continue(()) }
    })
}

#[tokio::test(start_paused = true)]
async fn what_a_stage_turns_away_takes_no_place_of_a_limit() {
    let acknowledges: fn(&Delivery) -> Disposition = |_| Disposition::Ack;
    let shelves: fn(&Delivery) -> Disposition =
        |_| Disposition::DeadLetter(Failure::custom("No", "not ours"));
    for (concurrency, places) in [(8, 4), (5, 4), (4, 4), (1, 4), (16, 1)] {
        for turned_away in [acknowledges, shelves] {
            let (_, transport) = memory_with(numbered(100));
            let diary = Diary::new();
            let consumer = Consumer::new(transport)
                .concurrency(concurrency)
                .with_dead_letter_backoff([secs(1)])
                .stage(turns_away(turned_away))
                .layer(ConcurrencyLimitLayer::new(places))
                .observer(diary.observer())
                .handler(async || sleep(millis(1)).await);
            let ended = timeout(BEFORE_THE_WATCHDOG, consumer.run_until(diary.ended(100))).await;
            let handled = diary.entries().len();
            assert!(ended.is_ok(), "{concurrency} beside {places}: {handled} of 100 came to an end");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_expires_while_it_waits_takes_no_place_of_a_limit() {
    let expiring = numbered(40).map(|mut message| {
        message.properties_mut().expiration = Some(millis(500));
        message
    });
    let (broker, transport) = memory_with(expiring);
    let diary = Diary::new();
    let consumer = Consumer::new(transport)
        .concurrency(8)
        .with_dead_letter_backoff([secs(1)])
        .layer(ConcurrencyLimitLayer::new(4))
        .observer(diary.observer())
        .handler(async || Err::<(), BoxError>("no answer".into()));
    timeout(BEFORE_THE_WATCHDOG, consumer.run_until(diary.ended(40)))
        .await
        .expect("all come to an end")
        .unwrap();
    assert_eq!(broker.shelf(QUEUE, Shelf::DeadLetter).len(), 40);
}

#[tokio::test(start_paused = true)]
async fn what_a_foreign_layer_turns_away_takes_no_place_of_a_limit() {
    let (_, transport) = memory_with(numbered(100));
    let diary = Diary::new();
    let odd =
        |delivery: Delivery| if number_of(&delivery).is_multiple_of(2) { Ok(delivery) } else { Err("odd") };
    let consumer = Consumer::new(transport)
        .with_dead_letter_backoff(redrive::NoRetry)
        .layer(FilterLayer::new(odd))
        .layer(ConcurrencyLimitLayer::new(2))
        .observer(diary.observer())
        .handler(async || {});
    timeout(BEFORE_THE_WATCHDOG, consumer.run_until(diary.ended(100)))
        .await
        .expect("all come to an end")
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn consumers_that_take_two_shared_limits_in_different_orders_do_not_stop_each_other() {
    let limits = [1, 1].map(GlobalConcurrencyLimitLayer::new);
    let run = async |queue: &str, outer: usize| {
        let transport = Memory::new(queue);
        for message in numbered(20) {
            transport.broker().publish(queue, message).expect("room");
        }
        let diary = Diary::new();
        let consumer = Consumer::new(transport)
            .layer(limits[outer].clone())
            .layer(Slow::by(millis(7)))
            .layer(limits[1 - outer].clone())
            .observer(diary.observer())
            .handler(async || sleep(millis(3)).await);
        consumer.run_until(diary.ended(20)).await.expect("ends in order");
    };
    let both = async { tokio::join!(run("orders", 0), run("bills", 1)) };
    timeout(mins(60), both).await.expect("all come to an end");
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_never_gets_ready_is_named_everywhere() {
    let recorded = Recorded::default();
    let _guard = tracing::subscriber::set_default(recorded.clone());
    let places = Arc::new(Semaphore::new(1));
    let held = Arc::clone(&places).try_acquire_owned().expect("a place");
    let (_, transport) = memory_with(numbered(3));
    let (diary, told) = (Diary::new(), Arc::new(Mutex::new(Vec::new())));
    let events = Arc::clone(&told);
    let consumer = Consumer::new(transport)
        .with_dead_letter_backoff([secs(1)])
        .layer(TimeoutLayer::new(secs(1)))
        .layer(GlobalConcurrencyLimitLayer::with_semaphore(places))
        .observer(diary.observer())
        .observer(move |event: &Event<'_>| {
            if let Event::NotReady { .. } | Event::Ready { .. } = event {
                events.lock().unwrap().push(format!("{event:?}"));
            }
        })
        .handler(async || {});
    let line = line!() - 8;
    let handle = consumer.handle();
    let running = tokio::spawn(consumer.run_until(async move { diary.ended(3).await }));

    sleep(secs(55)).await;
    assert!(handle.health().is_ready(), "it may still come");
    sleep(secs(10)).await;
    let health = handle.health();
    assert!(health.is_live() && !health.is_ready());
    let layer = format!("GlobalConcurrencyLimitLayer (added at {}:{line})", file!());
    assert_eq!(health.layer.as_deref(), Some(layer.as_str()));
    assert_eq!(health.to_string(), format!("not taking messages, {layer} not ready for 1m 5s"));
    sleep(mins(30)).await;
    drop(held);
    running.await.unwrap().unwrap();

    let told = told.lock().unwrap();
    assert_eq!(told.len(), 2, "once each: {told:?}");
    assert!(told[0].contains(&layer) && told[1].starts_with("Ready"), "{told:?}");
    let errors: Vec<_> = recorded.events().into_iter().filter(|(level, _)| *level == Level::ERROR).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].1["layer"], layer);
}

#[tokio::test(start_paused = true)]
async fn what_comes_by_itself_is_a_state_and_no_fault() {
    let recorded = Recorded::default();
    let _guard = tracing::subscriber::set_default(recorded.clone());
    let (_, transport) = memory_with(numbered(8));
    let diary = Diary::new();
    let (limit, took) = (RateLimit::new(1, mins(10)), Arc::new(AtomicUsize::new(0)));
    let takes = Arc::clone(&took);
    let consumer =
        Consumer::new(transport).concurrency(2).layer(limit).observer(diary.observer()).handler(move || {
            // The fourth takes an hour, with no place left beside it.
            let takes_long = takes.fetch_add(1, Ordering::SeqCst) >= 4;
            sleep(if takes_long { mins(60) } else { secs(1) })
        });
    let handle = consumer.handle();
    let running = tokio::spawn({
        let diary = diary.clone();
        consumer.run_until(async move { diary.ended(8).await })
    });
    sleep(mins(15)).await;
    let health = handle.health();
    assert!(health.is_ready());
    assert!(health.to_string().starts_with("running, rate limited for "), "{health}");
    handle.pause();
    sleep(mins(15)).await;
    assert_eq!(handle.health().rate_limited_for, None, "it is paused, and waits for nothing else");
    handle.resume();
    running.await.unwrap().unwrap();
    let wrong: Vec<_> = recorded.events().into_iter().filter(|(level, _)| *level <= Level::WARN).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// A layer whose `poll_ready` takes a while, and then holds a place of a semaphore until the call or the drop.
#[derive(Clone)]
struct Slow {
    takes: Duration,
    places: Arc<Semaphore>,
}

struct SlowService<S> {
    inner: S,
    layer: Slow,
    timer: Option<Pin<Box<Sleep>>>,
    place: Option<OwnedSemaphorePermit>,
    waits: Option<Pin<Box<dyn Future<Output = OwnedSemaphorePermit> + Send>>>,
}

impl Slow {
    fn by(takes: Duration) -> Self {
        Self { takes, places: Arc::new(Semaphore::new(3)) }
    }
}

impl<S> Layer<S> for Slow {
    type Service = SlowService<S>;

    fn layer(&self, inner: S) -> SlowService<S> {
        SlowService { inner, layer: self.clone(), timer: None, place: None, waits: None }
    }
}

impl<S: Clone> Clone for SlowService<S> {
    fn clone(&self) -> Self {
        self.layer.layer(self.inner.clone())
    }
}

impl<S: Service<Delivery>> Service<Delivery> for SlowService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        if self.place.is_none() {
            let takes = self.layer.takes;
            std::task::ready!(self.timer.get_or_insert_with(|| Box::pin(sleep(takes))).as_mut().poll(cx));
            let places = Arc::clone(&self.layer.places);
            let waits = self
                .waits
                .get_or_insert_with(|| Box::pin(async move { places.acquire_owned().await.expect("open") }));
            self.place = Some(std::task::ready!(waits.as_mut().poll(cx)));
        }
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, delivery: Delivery) -> S::Future {
        (self.timer, self.waits, self.place) = (None, None, None);
        self.inner.call(delivery)
    }
}

type Boxed = BoxCloneService<Delivery, Disposition, BoxError>;
type BoxedLayer = Box<dyn Fn(Boxed) -> Boxed + Send + Sync>;

/// Any order of stages and layers.
#[derive(Clone)]
struct AnyOrder(Arc<Vec<BoxedLayer>>);

impl<S> Layer<S> for AnyOrder
where
    S: Service<Delivery, Response = Disposition, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send,
{
    type Service = Boxed;

    fn layer(&self, inner: S) -> Boxed {
        self.0.iter().fold(Boxed::new(inner), |inner, layer| layer(inner))
    }
}

/// A layer as a function, with its error boxed.
fn boxed<L>(layer: L) -> BoxedLayer
where
    L: Layer<Boxed> + Send + Sync + 'static,
    L::Service: Service<Delivery, Response = Disposition> + Clone + Send + 'static,
    <L::Service as Service<Delivery>>::Error: Into<BoxError>,
    <L::Service as Service<Delivery>>::Future: Send,
{
    Box::new(move |inner| {
        use tower::ServiceExt;
        Boxed::new(layer.layer(inner).map_err(Into::into))
    })
}

impl AnyOrder {
    fn random(rng: &mut Rng, shared: &[GlobalConcurrencyLimitLayer]) -> (Self, Vec<&'static str>) {
        let mut layers = Vec::new();
        let mut names = Vec::new();
        let mut kinds: Vec<usize> = (0..10).collect();
        rng.shuffle(&mut kinds);
        // Each at most once: a stack that needs two places of a limit of one is never ready, and rightly so.
        for kind in kinds.into_iter().take(rng.usize(1..7)) {
            let places = rng.usize(1..4);
            let (name, layer) = match kind {
                0 => ("acknowledges", boxed(StageLayer::new(turns_away(|_| Disposition::Ack)))),
                1 => (
                    "discards",
                    boxed(StageLayer::new(turns_away(|_| Disposition::Discard(Failure::custom("No", "no"))))),
                ),
                2 => ("concurrency", boxed(ConcurrencyLimitLayer::new(places))),
                3 => ("shared", boxed(shared[0].clone())),
                4 => ("shared too", boxed(shared[1].clone())),
                5 => ("timeout", boxed(TimeoutLayer::new(millis(40)))),
                6 => ("rate", boxed(RateLimit::new(100, secs(1)).burst(5))),
                7 => ("slow", boxed(Slow::by(millis(rng.u64(0..30))))),
                8 => (
                    "filter",
                    boxed(FilterLayer::new(|delivery: Delivery| {
                        if number_of(&delivery) % 7 == 3 { Err("filtered") } else { Ok(delivery) }
                    })),
                ),
                _ => ("preset", boxed(StageLayer::new(DeadLetterBackoff::new([millis(100)])))),
            };
            names.push(name);
            layers.push(layer);
        }
        (Self(Arc::new(layers)), names)
    }
}

/// The handler: panics, fails, or takes its time, by the message.
async fn any_way(delivery: Delivery) -> Result<(), BoxError> {
    let number = number_of(&delivery);
    sleep(millis(number % 50)).await;
    match number % 11 {
        1 => panic!("broken"),
        2 if delivery.attempt() == 1 => Err("no answer".into()),
        _ => Ok(()),
    }
}

const MESSAGES: usize = 60;

/// Runs two or three consumers that share limits, among pauses, lost connections and a restart, until every message has ended.
async fn everything_ends(seed: u64) -> Result<(), String> {
    let mut rng = Rng::with_seed(seed);
    let shared = [rng.usize(1..4), rng.usize(1..4)].map(GlobalConcurrencyLimitLayer::new);
    let mut stacks = BTreeMap::new();
    let mut running = Vec::new();
    for queue in ["orders", "bills", "mails"].into_iter().take(rng.usize(2..4)) {
        let broker = MemoryBroker::new();
        for message in numbered(MESSAGES) {
            broker.publish(queue, message).expect("room");
        }
        let (layers, names) = AnyOrder::random(&mut rng, &shared);
        let concurrency = rng.usize(1..9);
        stacks.insert(queue, (concurrency, names));
        running.push(ends(broker, queue, layers, concurrency, rng.fork()));
    }
    // Two consumers that need both limits may wait for each other, until the watchdog makes one of them give back what it holds.
    let needs_both = |names: &[&str]| names.contains(&"shared") && names.contains(&"shared too");
    let cross = stacks.values().filter(|(_, names)| needs_both(names)).count() > 1;
    let limit = if cross { mins(60) } else { BEFORE_THE_WATCHDOG };
    match timeout(limit, futures::future::join_all(running)).await {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("seed {seed}: not all came to an end: {stacks:?}")),
    }
}

async fn ends(broker: MemoryBroker, queue: &'static str, layers: AnyOrder, concurrency: usize, mut rng: Rng) {
    let empty = || broker.depth(queue) + broker.waiting(queue) + broker.held(queue) == 0;
    while !empty() {
        let transport = Arc::new(broker.transport(queue));
        let cut = Arc::clone(&transport);
        let consumer = Consumer::new(Shared::new(transport))
            .concurrency(concurrency)
            .with_dead_letter_backoff([millis(50), millis(200)])
            .layer(layers.clone())
            .handler(any_way);
        let handle = consumer.handle();
        let restarts = rng.bool();
        let disturbing = async {
            for _ in 0..rng.usize(0..4) {
                sleep(millis(rng.u64(0..200))).await;
                if rng.bool() {
                    handle.pause();
                    sleep(millis(rng.u64(0..100))).await;
                    handle.resume();
                } else {
                    cut.interrupt();
                }
            }
            while !restarts && !empty() {
                sleep(millis(50)).await;
            }
        };
        consumer.run_until(disturbing).await.expect("ends in order");
    }
}

#[test]
fn everything_ends_in_any_order_of_layers() {
    let cases =
        std::env::var("REDRIVE_TEST_STACKS").ok().map_or(60, |count| count.parse().expect("a number"));
    // The panics of the handler are expected, and would fill the output.
    for seed in 0..cases {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        if let Err(stuck) = runtime.expect("a runtime").block_on(everything_ends(seed)) {
            panic!("{stuck}");
        }
    }
}
