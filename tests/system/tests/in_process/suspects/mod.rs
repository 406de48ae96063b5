//! The messages of a dead process are handled alone: on the in-process broker and virtual time. With real processes and real brokers:
//! `killer.rs`.

mod ledger;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use redrive::memory::{Memory, MemoryBroker};
use redrive::prelude::*;
use redrive::transport::{NativeDeadLetter, Needs, ReceiptOf, Received, Receiver, Signals};
use redrive::{Event, NoRetry, Suspects, Transport, TransportErrorKind};
use redrive_contract::{Fault, Faulty, Started};
use redrive_system_tests::shared::Shared;
use redrive_system_tests::{Diary, KILLER, QUEUE, memory_with, numbered, reason};
use tokio::sync::{Notify, Semaphore};
use tokio::time::sleep;

const ALLOWED: u32 = 4;

/// What came of a queue with one killer, when processes were started until nothing was left.
struct Aftermath {
    deaths: u32,
    shelved: Vec<String>,
    /// How often each handler ran to its end.
    handled: BTreeMap<String, u32>,
}

async fn until_nothing_is_left(suspects: Suspects) -> Aftermath {
    let mut messages: Vec<Message> = numbered(30).collect();
    messages.insert(5, Message::new("death").with_id(KILLER));
    let (broker, first) = memory_with(messages);
    drop(first);
    let handled = Arc::new(Mutex::new(BTreeMap::new()));
    let mut deaths = 0;
    while broker.depth(QUEUE) > 0 {
        let (death, diary) = (Arc::new(Notify::new()), Diary::new());
        let handler = {
            let (death, handled) = (Arc::clone(&death), Arc::clone(&handled));
            move |delivery: Delivery| {
                let (death, handled) = (Arc::clone(&death), Arc::clone(&handled));
                async move {
                    if delivery.id() == KILLER {
                        death.notify_one();
                        std::future::pending::<()>().await;
                    }
                    sleep(millis(10)).await;
                    *handled.lock().unwrap().entry(delivery.id().to_owned()).or_default() += 1;
                }
            }
        };
        let runner = Consumer::new(broker.transport(QUEUE))
            .concurrency(8)
            .suspects(suspects)
            .with_dead_letter_backoff(DeadLetterBackoff::new(NoRetry).poison_after(ALLOWED))
            .observer(diary.observer())
            .handler(handler);
        // The death drops everything at once: what is in flight is redelivered, counted.
        tokio::select! {
            () = death.notified() => deaths += 1,
            ended = runner.run_until(diary.ended(broker.depth(QUEUE))) => drop(ended.unwrap()),
        }
        assert!(deaths <= 2 * ALLOWED, "nothing bounds it");
    }
    let shelf = broker.shelf(QUEUE, Shelf::DeadLetter);
    assert!(shelf.iter().all(|message| reason(message) == "PoisonMessage"));
    let shelved = shelf.iter().map(|message| message.id().unwrap().to_owned()).collect();
    let handled = handled.lock().unwrap().clone();
    Aftermath { deaths, shelved, handled }
}

#[tokio::test(start_paused = true)]
async fn a_killer_dies_alone_until_it_is_turned_away() {
    let Aftermath { deaths, shelved, handled } = until_nothing_is_left(Suspects::default()).await;
    assert_eq!((deaths, shelved), (ALLOWED, vec![KILLER.to_owned()]));
    assert_eq!(handled.len(), 30);
    assert!(handled.values().all(|&times| times == 1), "{handled:?}");
}

#[tokio::test(start_paused = true)]
async fn where_nobody_looks_for_suspects_its_neighbours_go_with_it() {
    let Aftermath { deaths, shelved, handled } = until_nothing_is_left(Suspects::none()).await;
    assert_eq!(deaths, ALLOWED);
    assert!(shelved.len() > 1, "{shelved:?}");
    assert_eq!(shelved.len() + handled.len(), 31);
}

/// A consumer whose handlers wait for the gate, with what it tells about suspects.
struct Scene {
    broker: MemoryBroker,
    transport: Arc<Memory>,
    /// A handler passes for each permit.
    gate: Arc<Semaphore>,
    running: Arc<AtomicUsize>,
    /// The names of what was reported, with the ids.
    reported: Arc<Mutex<Vec<String>>>,
    /// How many the broker was to have handed out at most, one after the other.
    limits: Arc<Mutex<Vec<Option<u32>>>>,
    began: Arc<Notify>,
    diary: Diary,
}

impl Scene {
    /// Of a queue with these numbers of messages; the first ones are in flight at another process.
    fn new(in_dead_hand: usize, others: usize) -> (Self, DeadHand) {
        let (broker, dead) = memory_with(numbered(in_dead_hand + others));
        let transport = Arc::new(broker.transport(QUEUE));
        let scene = Self {
            broker,
            transport,
            gate: Arc::new(Semaphore::new(0)),
            running: Arc::default(),
            reported: Arc::default(),
            limits: Arc::default(),
            began: Arc::default(),
            diary: Diary::new(),
        };
        (scene, DeadHand(dead))
    }

    fn consumer(&self, concurrency: usize) -> redrive::Runner<Shared<Memory>> {
        let transport = Shared::new(Arc::clone(&self.transport)).noting(Arc::clone(&self.limits));
        self.consumer_of(transport, concurrency)
    }

    fn consumer_of(&self, transport: Shared<Memory>, concurrency: usize) -> redrive::Runner<Shared<Memory>> {
        let (gate, running) = (Arc::clone(&self.gate), Arc::clone(&self.running));
        let (reported, began) = (Arc::clone(&self.reported), Arc::clone(&self.began));
        let beside = Arc::clone(&self.reported);
        Consumer::new(transport)
            .concurrency(concurrency)
            .grace(secs(60))
            .observer(self.diary.observer())
            .observer(move |event: &Event<'_>| {
                let line = match event {
                    Event::IsolationBegan { delivery } => format!("began with {}", delivery.id()),
                    Event::Suspect { delivery } => format!("suspect {}", delivery.id()),
                    Event::IsolationEnded { suspects } => format!("ended after {suspects}"),
                    _ => return,
                };
                began.notify_one();
                reported.lock().unwrap().push(line);
            })
            .handler(move |delivery: Delivery| {
                let (gate, running, beside) = (Arc::clone(&gate), Arc::clone(&running), Arc::clone(&beside));
                async move {
                    let others = running.fetch_add(1, Ordering::SeqCst);
                    if delivery.broker_delivery_count() > 1 && others > 0 {
                        beside.lock().unwrap().push(format!("{} beside {others}", delivery.id()));
                    }
                    gate.acquire().await.unwrap().forget();
                    running.fetch_sub(1, Ordering::SeqCst);
                }
            })
    }

    async fn until_running(&self, count: usize) {
        while self.running.load(Ordering::SeqCst) != count {
            sleep(millis(1)).await;
        }
    }

    fn reported(&self) -> Vec<String> {
        self.reported.lock().unwrap().clone()
    }

    fn limits(&self) -> Vec<Option<u32>> {
        self.limits.lock().unwrap().clone()
    }
}

/// A process that is about to die.
struct DeadHand(Memory);

impl DeadHand {
    async fn take(&self, count: usize) -> Vec<Received<ReceiptOf<Memory>>> {
        let (receiver, _) = self.0.open(&Needs::none(), Signals::ignored()).await.unwrap();
        receiver.set_limit(u32::MAX).await.unwrap();
        let mut held = Vec::new();
        for _ in 0..count {
            held.extend(receiver.receive().await.unwrap());
        }
        held
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_consumer_finishes_what_runs_and_handles_them_one_at_a_time() {
    let (scene, dead) = Scene::new(3, 20);
    let held = dead.take(3).await;
    let (runner, diary) = (scene.consumer(4), scene.diary.clone());
    let consumer = tokio::spawn(runner.run_until(async move { diary.ended(23).await }));
    scene.until_running(4).await;
    dead.0.crash();
    scene.gate.add_permits(1);
    scene.began.notified().await;
    assert_eq!(scene.reported(), ["began with 0"]);
    sleep(secs(10)).await;
    assert_eq!(scene.running.load(Ordering::SeqCst), 3, "it waits for those that run");
    scene.gate.add_permits(100);
    let report = consumer.await.unwrap().unwrap();
    assert_eq!(scene.reported(), ["began with 0", "suspect 0", "suspect 1", "suspect 2", "ended after 3"]);
    assert_eq!((report.acknowledged, report.suspects), (23, 3));
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_takes_hours_does_not_hold_them_up() {
    let (scene, dead) = Scene::new(2, 10);
    let held = dead.take(2).await;
    let (runner, diary) = (scene.consumer(2), scene.diary.clone());
    let consumer = tokio::spawn(runner.run_until(async move { diary.ended(12).await }));
    scene.until_running(2).await;
    dead.0.crash();
    scene.gate.add_permits(1);
    scene.began.notified().await;
    // One still runs; after the grace period the first suspect runs beside it.
    sleep(secs(61)).await;
    assert_eq!(scene.reported(), ["began with 0", "suspect 0", "0 beside 1"]);
    scene.gate.add_permits(100);
    consumer.await.unwrap().unwrap();
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn beside_handlers_that_take_hours_suspects_still_go_one_at_a_time() {
    let (scene, dead) = Scene::new(2, 10);
    let held = dead.take(2).await;
    // One that hands out only one more, and counts those too that are in flight from before, would hide it.
    let transport = Shared::new(Arc::clone(&scene.transport)).that_cannot_narrow();
    let (runner, diary) = (scene.consumer_of(transport, 3), scene.diary.clone());
    let consumer = tokio::spawn(runner.run_until(async move { diary.ended(12).await }));
    scene.until_running(3).await;
    dead.0.crash();
    scene.gate.add_permits(1);
    scene.began.notified().await;
    sleep(secs(61)).await;
    let first = ["began with 0", "suspect 0", "0 beside 2"];
    assert_eq!(scene.reported(), first);
    // One of those that took hours ends: its place is nobody's, as long as the first suspect runs.
    scene.gate.add_permits(1);
    sleep(secs(1)).await;
    assert_eq!(
        (scene.reported(), scene.running.load(Ordering::SeqCst)),
        (first.map(str::to_owned).to_vec(), 2)
    );
    scene.gate.add_permits(100);
    consumer.await.unwrap().unwrap();
    assert_eq!(scene.reported().iter().filter(|line| line.starts_with("suspect")).count(), 2);
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_pause_and_a_stop_give_back_the_one_that_waits_uncounted() {
    for stops in [false, true] {
        let (scene, dead) = Scene::new(2, 10);
        let held = dead.take(2).await;
        let runner = scene.consumer(2);
        let handle = runner.handle();
        let diary = scene.diary.clone();
        let consumer = tokio::spawn(runner.run_until(async move { diary.ended(12).await }));
        scene.until_running(2).await;
        dead.0.crash();
        scene.gate.add_permits(1);
        scene.began.notified().await;
        if stops {
            handle.stop();
            scene.gate.add_permits(100);
            consumer.await.unwrap().unwrap();
            let next = scene.broker.transport(QUEUE);
            let next = Started::open(next, &Needs::none()).await.unwrap();
            let again = next.receive().await.unwrap().unwrap().delivery;
            assert_eq!((again.id(), again.broker_delivery_count()), ("0", 2));
        } else {
            handle.pause();
            while scene.broker.held(QUEUE) > 1 {
                sleep(millis(1)).await;
            }
            handle.resume();
            scene.gate.add_permits(100);
            consumer.await.unwrap().unwrap();
            assert_eq!(scene.reported(), ["began with 0", "suspect 0", "suspect 1", "ended after 2"]);
        }
        drop(held);
    }
}

/// Another process was faster: no suspect is left that could end the isolation.
#[tokio::test(start_paused = true)]
async fn an_isolation_whose_suspect_is_handled_elsewhere_ends_too() {
    let (scene, dead) = Scene::new(1, 3);
    let held = dead.take(1).await;
    let runner = scene.consumer(2);
    let handle = runner.handle();
    let diary = scene.diary.clone();
    let consumer = tokio::spawn(runner.run_until(async move { diary.ended(3).await }));
    scene.until_running(2).await;
    dead.0.crash();
    scene.gate.add_permits(1);
    scene.began.notified().await;
    handle.pause();
    while scene.broker.held(QUEUE) > 1 {
        sleep(millis(1)).await;
    }
    let other = Started::open(scene.broker.transport(QUEUE), &Needs::none()).await.unwrap();
    let suspect = other.receive().await.unwrap().unwrap();
    assert_eq!(suspect.delivery.id(), "0");
    handle.resume();
    scene.gate.add_permits(100);
    consumer.await.unwrap().unwrap();
    assert_eq!(scene.reported(), ["began with 0", "ended after 0"]);
    drop((held, suspect));
}

/// What the broker then has handed out, and no more, is a clause of the contract suite.
#[tokio::test(start_paused = true)]
async fn the_broker_is_asked_for_one_at_a_time_until_the_suspects_have_ended() {
    let (scene, dead) = Scene::new(2, 20);
    let held = dead.take(2).await;
    let (runner, diary) = (scene.consumer(2), scene.diary.clone());
    let consumer = tokio::spawn(runner.run_until(async move { diary.ended(22).await }));
    scene.until_running(2).await;
    let mut limits = vec![Some(1), Some(0), None];
    assert_eq!(scene.limits(), limits, "one, until the first shows that nobody died");
    dead.0.crash();
    scene.gate.add_permits(2);
    // The first was in flight when everything else was given back; for the second one is taken.
    for (suspect, limit) in [("suspect 0", Some(0)), ("suspect 1", Some(1))] {
        limits.push(limit);
        sleep(secs(1)).await;
        assert_eq!(scene.reported().last().map(String::as_str), Some(suspect));
        assert_eq!(scene.limits(), limits);
        scene.gate.add_permits(1);
    }
    scene.gate.add_permits(100);
    consumer.await.unwrap().unwrap();
    // Wide again, until the end.
    limits.extend([Some(0), None, Some(0)]);
    assert_eq!(scene.limits(), limits);
    drop(held);
}

/// Where giving back is counted too, what was handed out once before may be that, or a killer.
#[tokio::test(start_paused = true)]
async fn who_begins_beside_what_is_doubtful_handles_it_alone_for_a_while() {
    let (scene, dead) = Scene::new(3, 20);
    let held = dead.take(3).await;
    dead.0.crash();
    let transport = Shared::saying(Arc::clone(&scene.transport), |said| said.counting.releases = true)
        .noting(Arc::clone(&scene.limits));
    let (runner, diary) = (scene.consumer_of(transport, 4), scene.diary.clone());
    let consumer = tokio::spawn(runner.run_until(async move { diary.ended(23).await }));
    sleep(secs(1)).await;
    scene.gate.add_permits(1);
    sleep(secs(8)).await;
    assert_eq!((scene.running.load(Ordering::SeqCst), scene.limits()), (1, vec![Some(1)]));
    // The second takes long: it is no longer waited for.
    sleep(secs(2)).await;
    assert_eq!((scene.running.load(Ordering::SeqCst), scene.limits()), (4, vec![Some(1), Some(0), None]));
    scene.gate.add_permits(100);
    let report = consumer.await.unwrap().unwrap();
    assert_eq!((report.acknowledged, report.suspects), (23, 0));
    assert!(scene.reported().iter().all(|line| line.starts_with("1 beside") || line.starts_with("2 beside")));
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn what_comes_again_after_a_lost_connection_is_no_suspect() {
    let (scene, _) = Scene::new(0, 6);
    let (runner, diary) = (scene.consumer(8), scene.diary.clone());
    // Acknowledged again or settled on sight.
    let consumer = tokio::spawn(runner.run_until(async move { diary.settled(6).await }));
    scene.until_running(6).await;
    scene.transport.interrupt();
    // Two are redelivered while the handlers that had them before still run.
    scene.until_running(8).await;
    scene.gate.add_permits(100);
    consumer.await.unwrap().unwrap();
    assert!(!scene.reported().iter().any(|line| line.starts_with("began with")), "{:?}", scene.reported());
}

#[tokio::test(start_paused = true)]
async fn a_suspect_that_is_too_large_to_be_copied_does_not_hold_up_the_others() {
    let (broker, dead) = memory_with(numbered(30));
    let dead = DeadHand(dead);
    let held = dead.take(1).await;
    dead.0.crash();
    let faulty = Faulty::new(broker.transport(QUEUE)).on_settle(|attempted| {
        let copied = attempted.settlement.stores_copy();
        if copied { Fault::Refused(TransportErrorKind::TooLarge) } else { Fault::None }
    });
    let diary = Diary::new();
    let consumer =
        Consumer::new(Shared::saying(Arc::new(faulty), |said| said.dead_letter = NativeDeadLetter::No))
            .concurrency(4)
            .grace(secs(1))
            .with_dead_letter_backoff([secs(1)])
            .observer(diary.observer())
            .handler(
                async |delivery: Delivery| {
                    if delivery.id() == "0" { Err(BoxError::from("no answer")) } else { Ok(()) }
                },
            );
    let others = async { tokio::time::timeout(mins(10), diary.ended(29)).await.expect("the others go on") };
    let report = consumer.run_until(others).await.unwrap();
    assert_eq!((report.acknowledged, report.released, report.suspects), (29, 1, 1), "{report:?}");
    assert_eq!(broker.depth(QUEUE), 1);
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn what_is_too_large_to_be_copied_is_not_waited_for_by_suspects() {
    suspects_beside_what_cannot_be_copied(|event| matches!(event, Event::Started { .. })).await;
}

#[tokio::test(start_paused = true)]
async fn suspects_that_wait_already_go_on_when_a_handler_ends_with_what_cannot_be_copied() {
    suspects_beside_what_cannot_be_copied(|event| matches!(event, Event::IsolationBegan { .. })).await;
}

/// The handler of a message that cannot be copied ends once this has happened.
async fn suspects_beside_what_cannot_be_copied(ends_after: fn(&Event<'_>) -> bool) {
    let (broker, dead) = memory_with(numbered(4));
    let dead = DeadHand(dead);
    let held = dead.take(3).await;
    let faulty = Faulty::new(broker.transport(QUEUE)).on_settle(|attempted| {
        let copied = attempted.settlement.stores_copy();
        if copied { Fault::Refused(TransportErrorKind::TooLarge) } else { Fault::None }
    });
    let (diary, ends) = (Diary::new(), Arc::new(Notify::new()));
    let happened = Arc::clone(&ends);
    // One that hands out only one more, and counts those too that are in flight from before, would hide it.
    let transport =
        Shared::saying(Arc::new(faulty), |said| said.dead_letter = NativeDeadLetter::No).that_cannot_narrow();
    let consumer = Consumer::new(transport)
        .concurrency(4)
        .grace(mins(60))
        .with_dead_letter_backoff([secs(1)])
        .observer(diary.observer())
        .observer(move |event: &Event<'_>| {
            if ends_after(event) {
                happened.notify_one();
            }
        })
        .handler(move |delivery: Delivery| {
            let ends = Arc::clone(&ends);
            async move {
                if delivery.id() != "3" {
                    return Ok(());
                }
                ends.notified().await;
                Err(BoxError::from("no answer"))
            }
        });
    let running = tokio::spawn(consumer.run());
    // Until the handler has ended, or waits.
    sleep(millis(10)).await;
    dead.0.crash();
    drop(held);
    let others = tokio::time::timeout(mins(10), diary.ended(3)).await;
    others.expect("nobody waits for the grace period");
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_hand_outs_of_the_broker_counts() {
    let (broker, dead) = memory_with(numbered(10));
    let dead = DeadHand(dead);
    let held = dead.take(3).await;
    dead.0.crash();
    let transport = Shared::saying(Arc::new(broker.transport(QUEUE)), |said| {
        (said.counting.releases, said.limits.deliveries) = (true, Some(3));
    });
    let diary = Diary::new();
    let consumer = Consumer::new(transport)
        .with_dead_letter_backoff([secs(1)])
        .observer(diary.observer())
        .handler(async || Ok::<_, BoxError>(()));
    let report = consumer.run_until(diary.ended(10)).await.unwrap();
    // The next delivery would be turned away.
    assert_eq!((report.acknowledged, report.suspects), (10, 3), "{report:?}");
    drop(held);
}
