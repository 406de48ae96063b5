//! Runs on the memory broker: killed at every step and resumed, stopped by failures, controlled by a person.

mod mortal;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use redrive_consumer::Consumer;
use redrive_core::shelves::WorkQueue;
use redrive_core::{
    BoxError, Delivery, Disposition, Failure, Message, NoRetry, Shelf, Shelves, TransportError,
    TransportErrorKind, millis, secs,
};
use redrive_memory::{MemoryBroker, MemoryShelves};
use redrive_ops::{
    Activity, EntryState, FinishedRun, Hold, JournalError, JournalFolder, JournalHeader, Operator,
    PauseReason, Plan, PlanAction, PlanOptions, RunControl, RunOptions, Runner, StopReason, UncertainEntries,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::mortal::{Death, Mortal};

const ENTRIES: u64 = 40;

/// A broker whose dead-letter shelf has this many entries of one group.
async fn broker(entries: u64) -> Result<MemoryBroker, BoxError> {
    let broker = MemoryBroker::new();
    for order in 0..entries {
        broker.publish("orders", Message::new(format!("order {order}")).with_id(order.to_string()))?;
    }
    all_fail(&broker).await?;
    assert_eq!(broker.shelves("orders").count(Shelf::DeadLetter).await?, entries);
    Ok(broker)
}

/// A consumer dead-letters whatever is in the work queue.
async fn all_fail(broker: &MemoryBroker) -> Result<(), BoxError> {
    let done = async {
        while broker.depth("orders") > 0 {
            tokio::time::sleep(millis(1)).await;
        }
    };
    let fails = |delivery: Delivery| async move { Disposition::DeadLetter(failure("no stock", &delivery)) };
    Consumer::new(broker.transport("orders")).handler(fails).run_until(done).await?;
    Ok(())
}

fn failure(text: &str, delivery: &Delivery) -> Failure {
    Failure::custom("OutOfStock", format!("{text} for order {}", delivery.id()))
}

async fn plan(shelves: &dyn Shelves, action: PlanAction) -> Result<Plan, BoxError> {
    let entries = shelves.browse(Shelf::DeadLetter, None, 10_000).await?.entries;
    Ok(Plan::new(action, Shelf::DeadLetter, &entries, &PlanOptions::new("orders"), SystemTime::now()))
}

fn ada() -> Operator {
    Operator::new("ada", "laptop", SystemTime::now())
}

/// Options of a run whose messages nobody consumes.
fn unwatched() -> RunOptions {
    RunOptions::new().ignore_work_queue(true)
}

struct Scene {
    broker: MemoryBroker,
    shelves: MemoryShelves,
    folder: JournalFolder,
    temporary: tempfile::TempDir,
}

impl Scene {
    async fn new(entries: u64) -> Result<Self, BoxError> {
        let broker = broker(entries).await?;
        let temporary = tempfile::tempdir()?;
        let folder = JournalFolder::open(temporary.path())?;
        Ok(Self { shelves: broker.shelves("orders"), broker, folder, temporary })
    }

    async fn header(&self, options: RunOptions) -> Result<JournalHeader, BoxError> {
        let plan = plan(&self.shelves, PlanAction::Redrive).await?;
        Ok(JournalHeader::new("memory", ada(), options, plan))
    }

    /// Returns how often each message is in the work queue, and on the shelf.
    async fn places(&self) -> Result<BTreeMap<u64, (u32, u32)>, BoxError> {
        let mut places: BTreeMap<u64, (u32, u32)> = BTreeMap::new();
        for entry in self.shelves.browse(Shelf::DeadLetter, None, 10_000).await?.entries {
            places.entry(entry.message.id().unwrap_or_default().parse()?).or_default().1 += 1;
        }
        let seen_all = async {
            while self.broker.depth("orders") > 0 {
                tokio::time::sleep(millis(1)).await;
            }
        };
        let ids = Arc::new(Mutex::new(Vec::new()));
        let collected = Arc::clone(&ids);
        let handler = move |delivery: Delivery| {
            collected.lock().unwrap().push(delivery.id().to_string());
            async { Disposition::Ack }
        };
        Consumer::new(self.broker.transport("orders")).handler(handler).run_until(seen_all).await?;
        for id in ids.lock().unwrap().iter() {
            places.entry(id.parse()?).or_default().0 += 1;
        }
        Ok(places)
    }
}

/// Kills a run at each of its steps, resumes it, kills it there again, and resumes it to the end.
async fn killed_everywhere(death: Death, uncertain: UncertainEntries) -> Result<u32, BoxError> {
    for steps in 0.. {
        let scene = Scene::new(ENTRIES).await?;
        let header = scene.header(unwatched().ramp_step(secs(1))).await?;
        let run = header.run.clone();
        let mut handles = BTreeMap::new();
        for entry in scene.shelves.browse(Shelf::DeadLetter, None, 10_000).await?.entries {
            handles.insert(entry.message.id().unwrap_or_default().parse::<u64>()?, entry.handle);
        }
        let mortal = || Mortal::new(&scene, death, steps);
        let first = mortal();
        let survived = tokio::select! {
            finished = Runner::begin(&first, &scene.folder, header)?.run() => { let _ = finished?; true }
            () = first.died.notified() => false,
        };
        if survived {
            return Ok(steps);
        }
        let second = mortal();
        let resumed = Runner::resume(&second, &scene.folder, &run, ada(), uncertain)?;
        let survived = tokio::select! {
            finished = resumed.run() => { let _ = finished?; true }
            () = second.died.notified() => false,
        };
        let finished = if survived {
            None
        } else {
            let resumed = Runner::resume(&scene.shelves, &scene.folder, &run, ada(), uncertain)?;
            Some(resumed.run().await?)
        };
        if let Some(FinishedRun { report, stopped, .. }) = &finished {
            assert_eq!((stopped, report.left), (&None, 0), "{death:?} {steps}");
        }
        let replay = scene.folder.read(&run)?;
        assert_eq!((replay.ended, replay.open.len()), (Some(None), 0), "{death:?} {steps}");
        let is_uncertain =
            |entry: &u64| matches!(replay.states.get(&handles[entry]), Some(EntryState::Uncertain(_)));
        let places = scene.places().await?;
        assert_eq!(places.len() as u64, ENTRIES, "{death:?} {steps}: one is lost");
        for (id, (in_queue, on_shelf)) in places {
            if uncertain == UncertainEntries::Leave {
                assert!(in_queue <= 1, "{death:?} {steps}: {id} was sent twice");
                assert_eq!(
                    on_shelf == 1,
                    is_uncertain(&id),
                    "{death:?} {steps}: {id}, {in_queue} in the queue"
                );
                assert!(in_queue == 1 || on_shelf == 1);
            } else {
                assert_eq!(on_shelf, 0, "{death:?} {steps}: {id}");
                assert!((1..=3).contains(&in_queue), "{death:?} {steps}: {id}");
            }
        }
    }
    unreachable!()
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_killed_anywhere_is_resumed() -> Result<(), BoxError> {
    for death in [Death::Before, Death::Half, Death::BetweenCopyAndRemoval, Death::After, Death::Looking] {
        let points = killed_everywhere(death, UncertainEntries::Leave).await?;
        assert!(points >= 4, "{death:?}: {points}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_is_uncertain_is_sent_again_if_a_person_asks_for_it() -> Result<(), BoxError> {
    for death in [Death::Before, Death::BetweenCopyAndRemoval] {
        killed_everywhere(death, UncertainEntries::SendAgain).await?;
    }
    Ok(())
}

/// Runs a plan while a consumer handles the messages.
async fn with_consumer(
    scene: &Scene,
    options: RunOptions,
    handler: impl Fn(u64, Delivery) -> Disposition + Send + Sync + 'static,
) -> Result<FinishedRun, BoxError> {
    let header = scene.header(options).await?;
    let handled = AtomicU64::new(0);
    let handler = Arc::new(handler);
    let handled = Arc::new(handled);
    let handler = move |delivery: Delivery| {
        let disposition = handler(handled.fetch_add(1, Ordering::Relaxed), delivery);
        async move { disposition }
    };
    let stop = Notify::new();
    let consumer =
        Consumer::new(scene.broker.transport("orders")).with_dead_letter_backoff(NoRetry).handler(handler);
    let run = async {
        let finished = Runner::begin(&scene.shelves, &scene.folder, header)?.run().await;
        stop.notify_one();
        finished
    };
    let (consumed, finished) = tokio::join!(consumer.run_until(stop.notified()), run);
    consumed?;
    Ok(finished?)
}

#[tokio::test(start_paused = true)]
async fn a_canary_that_fails_stops_the_run() -> Result<(), BoxError> {
    let scene = Scene::new(ENTRIES).await?;
    let fails = |_, delivery: Delivery| Disposition::DeadLetter(failure("no stock", &delivery));
    let finished = with_consumer(&scene, unwatched(), fails).await?;
    assert_eq!(finished.stopped, Some(StopReason::SameFailure));
    assert_eq!((finished.report.done, finished.report.left), (5, 35));
    assert!(finished.report.fates.failed_same >= 1);
    assert_eq!(scene.shelves.count(Shelf::DeadLetter).await?, ENTRIES, "all are on the shelf again");
    // It can be resumed: once it is repaired, another canary goes first.
    let run = scene.folder.runs()?.remove(0);
    let resumed = Runner::resume(&scene.shelves, &scene.folder, &run, ada(), UncertainEntries::Leave)?;
    assert_eq!(resumed.run().await?.report.done, ENTRIES);
    Ok(())
}

/// Kills a run in its first step, of three entries, and returns its id.
async fn killed_in_its_canary(scene: &Scene, death: Death) -> Result<String, BoxError> {
    let header = scene.header(unwatched().canary(3)).await?;
    let run = header.run.clone();
    let mortal = Mortal::new(scene, death, 0);
    tokio::select! {
        finished = Runner::begin(&mortal, &scene.folder, header)?.run() => panic!("it lives: {finished:?}"),
        () = mortal.died.notified() => {}
    }
    Ok(run)
}

/// Who reads a shelf of RabbitMQ holds what they read: nobody else sees it meanwhile.
#[tokio::test(start_paused = true)]
async fn what_somebody_holds_while_a_run_is_resumed_has_not_left_the_shelf() -> Result<(), BoxError> {
    let scene = Scene::new(10).await?;
    let run = killed_in_its_canary(&scene, Death::Before).await?;
    let mut held = Mortal::watching(&scene, |_| Ok(WorkQueue::default()));
    held.hidden = 1;
    let finished = Runner::resume(&held, &scene.folder, &run, ada(), UncertainEntries::Leave)?.run().await?;
    let replay = scene.folder.read(&run)?;
    assert!(!replay.states.values().any(|state| *state == EntryState::Gone), "{:?}", replay.states);
    assert_eq!((finished.report.uncertain, finished.report.done), (3, 7), "{:?}", finished.report);
    assert_eq!(scene.shelves.count(Shelf::DeadLetter).await?, 3);
    Ok(())
}

/// The same for entries that no step had before the process died: they are sent, not skipped as vanished.
#[tokio::test(start_paused = true)]
async fn what_somebody_holds_while_a_run_is_resumed_has_not_vanished() -> Result<(), BoxError> {
    let scene = Scene::new(10).await?;
    let run = killed_in_its_canary(&scene, Death::Looking).await?;
    let mut held = Mortal::watching(&scene, |_| Ok(WorkQueue::default()));
    held.hidden = 1;
    let finished = Runner::resume(&held, &scene.folder, &run, ada(), UncertainEntries::Leave)?.run().await?;
    assert_eq!((finished.report.not_found, finished.report.done), (0, 10), "{:?}", finished.report);
    Ok(())
}

/// The shelf is large: one scan compares the plan with it, and tells what failed since the process died. Another one looks again for
/// what was worked on then.
#[tokio::test(start_paused = true)]
async fn a_resumed_run_sees_in_two_scans_what_failed_meanwhile() -> Result<(), BoxError> {
    let scene = Scene::new(10).await?;
    let run = killed_in_its_canary(&scene, Death::After).await?;
    all_fail(&scene.broker).await?;
    let living = Mortal::watching(&scene, |_| Ok(WorkQueue::default()));
    let finished =
        Runner::resume(&living, &scene.folder, &run, ada(), UncertainEntries::Leave)?.run().await?;
    assert_eq!(finished.stopped, Some(StopReason::SameFailure));
    assert_eq!((finished.report.left, finished.report.fates.failed_same), (7, 3));
    assert_eq!(living.scans.load(Ordering::Relaxed), 2);
    Ok(())
}

/// Somebody else reads the shelf for a minute while the canary is awaited: its failures are seen all the same.
#[tokio::test(start_paused = true)]
async fn a_run_waits_until_it_may_look() -> Result<(), BoxError> {
    let scene = Scene::new(ENTRIES).await?;
    let header = scene.header(unwatched()).await?;
    let mut busy = Mortal::watching(&scene, |_| Ok(WorkQueue::default()));
    busy.busy_scans = 1..61;
    let stop = Notify::new();
    let fails = |delivery: Delivery| async move { Disposition::DeadLetter(failure("no stock", &delivery)) };
    let consumer =
        Consumer::new(scene.broker.transport("orders")).with_dead_letter_backoff(NoRetry).handler(fails);
    let run = async {
        let finished = Runner::begin(&busy, &scene.folder, header)?.run().await;
        stop.notify_one();
        finished
    };
    let (consumed, finished) = tokio::join!(consumer.run_until(stop.notified()), run);
    consumed?;
    let finished = finished?;
    assert_eq!(finished.stopped, Some(StopReason::SameFailure));
    assert_eq!((finished.report.left, busy.scans.load(Ordering::Relaxed)), (35, 62));
    Ok(())
}

/// The look that was interrupted is done again: what the canary failed with is seen before anything else is sent.
#[tokio::test(start_paused = true)]
async fn a_person_who_pauses_a_look_does_not_end_it() -> Result<(), BoxError> {
    let pauses = |control: &RunControl| {
        control.pause();
        control.resume();
    };
    let words: [&dyn Fn(&RunControl); 2] = [&pauses, &|control| control.rate(9)];
    for says in words {
        let scene = Scene::new(ENTRIES).await?;
        let header = scene.header(unwatched()).await?;
        let mut busy = Mortal::watching(&scene, |_| Ok(WorkQueue::default()));
        busy.busy_scans = 1..100;
        let stop = Notify::new();
        let fails =
            |delivery: Delivery| async move { Disposition::DeadLetter(failure("no stock", &delivery)) };
        let consumer =
            Consumer::new(scene.broker.transport("orders")).with_dead_letter_backoff(NoRetry).handler(fails);
        let runner = Runner::begin(&busy, &scene.folder, header)?;
        let control = runner.control();
        let run = async {
            let finished = runner.run().await;
            stop.notify_one();
            finished
        };
        let operator = async {
            tokio::time::sleep(secs(45)).await;
            assert_eq!(control.progress().activity, Activity::WaitingForTurn);
            says(&control);
        };
        let (consumed, finished, ()) = tokio::join!(consumer.run_until(stop.notified()), run, operator);
        consumed?;
        let finished = finished?;
        assert_eq!((finished.stopped, finished.report.left), (Some(StopReason::SameFailure), 35));
    }
    Ok(())
}

/// Somebody else reads the shelf, for longer than an operator of the run wants to wait.
#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_its_turn_hears_its_operator() -> Result<(), BoxError> {
    const ALWAYS: Range<u32> = 0..u32::MAX;
    for (busy_scans, busy_tries) in [(ALWAYS, 0..0), (0..0, ALWAYS)] {
        let scene = Scene::new(10).await?;
        let mut busy = Mortal::watching(&scene, |_| Ok(WorkQueue::default()));
        (busy.busy_scans, busy.busy_tries) = (busy_scans, busy_tries);
        let runner = Runner::begin(&busy, &scene.folder, scene.header(unwatched()).await?)?;
        let control = runner.control();
        let operator = async {
            tokio::time::sleep(secs(20)).await;
            assert_eq!(control.progress().activity, Activity::WaitingForTurn);
            control.rate(7);
            tokio::time::sleep(secs(1)).await;
            assert_eq!(control.progress().activity, Activity::WaitingForTurn, "it goes on waiting");
            control.abort();
            Instant::now()
        };
        let (finished, aborted) = tokio::join!(runner.run(), operator);
        let finished = finished?;
        assert_eq!(finished.stopped, Some(StopReason::Aborted));
        assert!(aborted.elapsed() < secs(1), "{:?}", aborted.elapsed());
        assert_eq!(finished.report.failed + finished.report.uncertain, 0, "{:?}", finished.report);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_on_when_it_is_its_turn_and_gives_up_after_five_minutes() -> Result<(), BoxError> {
    for (busy_scans, busy_tries, ends) in [(0..30, 0..0, 10), (0..0, 0..20, 10), (0..301, 0..0, 0)] {
        let scene = Scene::new(10).await?;
        let mut busy = Mortal::watching(&scene, |_| Ok(WorkQueue::default()));
        (busy.busy_scans, busy.busy_tries) = (busy_scans, busy_tries);
        let runner = Runner::begin(&busy, &scene.folder, scene.header(unwatched()).await?)?;
        let finished = runner.run().await?;
        assert_eq!(finished.report.done, ends, "{:?}", finished.stopped);
        assert_eq!(finished.stopped.is_none(), ends > 0, "{:?}", finished.stopped);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_canary_that_its_consumer_reports_as_handled_ends_the_wait() -> Result<(), BoxError> {
    let scene = Scene::new(5).await?;
    let begun = tokio::time::Instant::now();
    let options = RunOptions::new().canary_wait(secs(1000));
    let finished = with_consumer(&scene, options, |_, _| Disposition::Ack).await?;
    assert_eq!((finished.stopped, finished.report.done, finished.report.fates.done), (None, 5, 5));
    assert!(begun.elapsed() < secs(10), "{:?}", begun.elapsed());
    let journal = std::fs::read_to_string(scene.temporary.path().join(format!("{}.jsonl", finished.id)))?;
    assert_eq!(journal.matches(r#""source":"consumer""#).count(), 5, "{journal}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_dependency_that_breaks_in_mid_run_stops_it() -> Result<(), BoxError> {
    let scene = Scene::new(400).await?;
    let breaks = |handled, delivery: Delivery| match handled {
        0..60 => Disposition::Ack,
        _ => Disposition::DeadLetter(failure("no stock", &delivery)),
    };
    let finished = with_consumer(&scene, RunOptions::new(), breaks).await?;
    assert_eq!(finished.stopped, Some(StopReason::SameFailure));
    assert!((60..120).contains(&finished.report.done), "{:?}", finished.report);
    let scene = Scene::new(400).await?;
    let breaks = |handled, delivery: Delivery| match handled {
        0..60 => Disposition::Ack,
        _ => Disposition::DeadLetter(failure("the database is away", &delivery)),
    };
    let finished = with_consumer(&scene, RunOptions::new(), breaks).await?;
    assert_eq!(finished.stopped, Some(StopReason::TooManyFailures));
    assert!((60..150).contains(&finished.report.done), "{:?}", finished.report);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn messages_without_an_id_are_recognized_too() -> Result<(), BoxError> {
    let scene = Scene::new(0).await?;
    for order in 0..8 {
        scene.broker.publish("orders", Message::new(format!("order {order}")))?;
    }
    let done = async {
        while scene.broker.depth("orders") > 0 {
            tokio::time::sleep(millis(1)).await;
        }
    };
    let fails = || async { Disposition::DeadLetter(Failure::custom("OutOfStock", "no stock")) };
    Consumer::new(scene.broker.transport("orders")).handler(fails).run_until(done).await?;
    let fails = |_, _| Disposition::DeadLetter(Failure::custom("OutOfStock", "no stock"));
    let finished = with_consumer(&scene, RunOptions::new(), fails).await?;
    assert_eq!((finished.stopped, finished.report.done), (Some(StopReason::SameFailure), 5));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_vanished_is_reported_and_nothing_else_is_touched() -> Result<(), BoxError> {
    let scene = Scene::new(10).await?;
    let header = scene.header(unwatched()).await?;
    let entries = scene.shelves.browse(Shelf::DeadLetter, None, 100).await?.entries;
    let _ = scene.shelves.discard(Shelf::DeadLetter, &entries[3].handle.clone().into()).await?;
    // An edited entry is another one.
    scene.shelves.replace(&entries[7].handle, Message::new("edited")).await?;
    let finished = Runner::begin(&scene.shelves, &scene.folder, header)?.run().await?;
    assert_eq!((finished.report.done, finished.report.not_found), (8, 2));
    assert_eq!(finished.not_done.len(), 2);
    assert_eq!(scene.shelves.count(Shelf::DeadLetter).await?, 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_entry_with_another_content_is_not_touched() -> Result<(), BoxError> {
    let scene = Scene::new(10).await?;
    let mut entries = scene.shelves.browse(Shelf::DeadLetter, None, 100).await?.entries;
    for entry in &mut entries {
        entry.message = entry.message.clone().with_body("what it was when the plan was made");
    }
    let options = PlanOptions::new("orders");
    let plan = Plan::new(PlanAction::Redrive, Shelf::DeadLetter, &entries, &options, SystemTime::now());
    let header = JournalHeader::new("memory", ada(), unwatched(), plan);
    let finished = Runner::begin(&scene.shelves, &scene.folder, header)?.run().await?;
    assert_eq!((finished.report.done, finished.report.changed), (0, 10));
    assert_eq!(scene.shelves.count(Shelf::DeadLetter).await?, 10);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn two_runs_of_one_shelf_exclude_each_other() -> Result<(), BoxError> {
    let scene = Scene::new(10).await?;
    let first = Runner::begin(&scene.shelves, &scene.folder, scene.header(unwatched()).await?)?;
    let second = Runner::begin(&scene.shelves, &scene.folder, scene.header(unwatched().rate(1)).await?);
    assert!(matches!(second, Err(JournalError::Locked { .. })));
    assert_eq!(first.run().await?.report.done, 10);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_person_sees_and_controls_a_run() -> Result<(), BoxError> {
    let scene = Scene::new(ENTRIES).await?;
    let header = scene.header(RunOptions::new()).await?;
    let consumed_later = |look| Ok(WorkQueue::new(Some(0), Some(u64::from(look >= 3))));
    let shelves = Mortal::watching(&scene, consumed_later);
    let runner = Runner::begin(&shelves, &scene.folder, header)?;
    let control = runner.control();
    let seen = |is_it: fn(&Activity) -> bool| {
        let control = control.clone();
        async move {
            while !is_it(&control.progress().activity) {
                tokio::time::sleep(millis(1)).await;
            }
            control.progress()
        }
    };
    let person = async {
        let held = seen(|activity| *activity == Activity::Held(Hold::NoConsumer)).await;
        assert_eq!(held.report.left, ENTRIES);
        let canary = seen(|activity| *activity == Activity::WaitingForCanary).await;
        assert_eq!(canary.report.done, 5);
        control.pause();
        let paused = seen(|activity| *activity == Activity::Paused(PauseReason::Asked)).await;
        tokio::time::sleep(secs(1000)).await;
        assert_eq!(control.progress(), paused);
        control.rate(2);
        control.resume();
        seen(|activity| *activity == Activity::WaitingForRate).await;
        control.abort();
    };
    let (finished, ()) = tokio::join!(runner.run(), person);
    let finished = finished?;
    assert_eq!(finished.stopped, Some(StopReason::Aborted));
    assert!((6..10).contains(&finished.report.done), "{:?}", finished.report);
    let resumed = Runner::resume(&scene.shelves, &scene.folder, &finished.id, ada(), UncertainEntries::Leave);
    assert!(matches!(resumed, Err(JournalError::Ended(_))));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_run_needs_no_right_to_look_at_the_work_queue() -> Result<(), BoxError> {
    let scene = Scene::new(ENTRIES).await?;
    let refused =
        |_| Err(TransportError::new(TransportErrorKind::Unauthorized, "no right on the work queue"));
    let shelves = Mortal::watching(&scene, refused);
    let finished =
        Runner::begin(&shelves, &scene.folder, scene.header(RunOptions::new()).await?)?.run().await?;
    assert_eq!((finished.stopped, finished.report.done), (None, ENTRIES));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_goes_away_stops_a_run_that_can_be_resumed() -> Result<(), BoxError> {
    let scene = Scene::new(ENTRIES).await?;
    let header = scene.header(unwatched()).await?;
    let away = |_| Err(TransportError::new(TransportErrorKind::Unreachable, "the broker is away"));
    let away = Mortal::watching(&scene, away);
    let finished = Runner::begin(&away, &scene.folder, header)?.run().await?;
    assert_eq!(finished.stopped, Some(StopReason::Broker("the broker is away".to_owned())));
    let resumed =
        Runner::resume(&scene.shelves, &scene.folder, &finished.id, ada(), UncertainEntries::Leave)?;
    let finished = resumed.run().await?;
    assert_eq!((finished.stopped, finished.report.done), (None, ENTRIES));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_has_no_original_is_not_touched() -> Result<(), BoxError> {
    let scene = Scene::new(5).await?;
    let header = scene.header(unwatched()).await?;
    let run = header.run.clone();
    let path = scene.temporary.path().join("originals");
    std::fs::write(&path, "")?;
    let mut handles: Vec<_> = header.plan.entries().iter().map(|entry| entry.handle.clone()).collect();
    let without = handles.pop().expect("five");
    let runner = Runner::begin(&scene.shelves, &scene.folder, header)?;
    let finished = runner.originals(&path, handles.into_iter().collect())?.run().await?;
    assert_eq!((finished.report.done, finished.report.not_found), (4, 1));
    assert_eq!((&finished.not_done[0].0.handle, finished.not_done.len()), (&without, 1));
    assert_eq!(scene.folder.read(&run)?.states[&without], EntryState::NotFound);
    assert_eq!(scene.shelves.count(Shelf::DeadLetter).await?, 1);
    Ok(())
}

/// What is noted in a file without a name is lost with the process: nothing more may be sent then.
#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn a_run_ends_when_its_files_are_deleted() -> Result<(), BoxError> {
    for is_journal in [true, false] {
        let scene = Scene::new(20).await?;
        let header = scene.header(unwatched().canary(0).rate(1)).await?;
        let journal = scene.temporary.path().join(format!("{}.jsonl", header.run));
        let originals = scene.temporary.path().join("originals");
        std::fs::write(&originals, "")?;
        let handles = header.plan.entries().iter().map(|entry| entry.handle.clone()).collect();
        let runner = Runner::begin(&scene.shelves, &scene.folder, header)?.originals(&originals, handles)?;
        let control = runner.control();
        let deleted = if is_journal { journal } else { originals };
        let deleting = async {
            while control.progress().report.done < 3 {
                tokio::time::sleep(millis(100)).await;
            }
            std::fs::remove_file(&deleted).expect("deleted");
            // A copy at the same place is not what the run writes to.
            std::fs::write(&deleted, "").expect("written");
        };
        let (ended, ()) = tokio::join!(runner.run(), deleting);
        let error = ended.expect_err("it does not go on");
        assert!(matches!(&error, JournalError::Deleted { path, .. } if *path == deleted), "{error}");
        assert!(scene.shelves.count(Shelf::DeadLetter).await? >= 16);
    }
    Ok(())
}
