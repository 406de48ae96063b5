//! One message among 200 in flight kills every process that handles it; or several do, with two processes. A dead process is
//! restarted
//! until all is done. Killers end on the shelf, and no other message does.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use lapin::options::BasicGetOptions;
use redrive::{
    BoxError, Consumer, DeadLetterBackoff, Delivery, Event, Message, NoRetry, Shelf, Shelves as _,
};
use redrive_brokers::{broker, report};
use redrive_contract::found;
use redrive_system_tests::fleet::{Fleet, Mode};
use redrive_system_tests::rabbit::{Rabbit, publish, publish_all};
use redrive_system_tests::worker_log::{Log, Record};
use redrive_system_tests::{
    Combination, Diary, KILLER, POISON_AFTER, QueueType, Version, numbered, on_both_versions,
    on_four_combinations, poll_again,
};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

on_both_versions!(900; without_suspects_the_killer_drags_its_neighbours_along, what_comes_from_a_dead_process_is_handled_alone,
    several_killers_and_two_processes_spare_the_others);

mod alone {
    use super::*;
    on_four_combinations!(900; the_killer_ends_on_the_shelf_and_spares_its_neighbours);
}

/// As many as are in flight, the killer included.
const NEIGHBOURS: usize = 199;

async fn the_killer_ends_on_the_shelf_and_spares_its_neighbours(on: Combination) {
    // A classic queue does not count deliveries: the ledger does.
    let classic = on.queue_type == QueueType::Classic;
    let mode = if classic { Mode::KillerWithLedger } else { Mode::Killer };
    let ended = run_until_all_ended(on, mode, &one_killer(), 1).await;
    // One death for each configured delivery; where returns count too, one of the deliveries may be a return.
    let returns_count = !classic && on.version == Version::V3_10;
    let deaths = if returns_count { 2..=POISON_AFTER } else { POISON_AFTER..=POISON_AFTER };
    assert!(deaths.contains(&ended.deaths), "{} deaths", ended.deaths);
    assert_eq!(ended.shelved, [KILLER]);
    let mut again = 0;
    for record in &ended.neighbours {
        assert_eq!(record.shelved, 0, "{record:?}");
        // Handled when the process died, and not yet acknowledged.
        assert!(record.handled <= 1 + ended.deaths, "{record:?}");
        again += record.handled - 1;
    }
    report(&format!(
        "1 killer among {} in flight, concurrency 16, on {on}{}: {} deaths, then on the shelf as PoisonMessage; \
         {NEIGHBOURS} others handled, {again} of them twice, handed out {} times at most; {:.1} s",
        NEIGHBOURS + 1,
        if classic { " with a ledger" } else { "" },
        ended.deaths,
        ended.neighbours.iter().map(|record| record.handed_out).max().unwrap(),
        ended.took.as_secs_f64()
    ));
}

async fn without_suspects_the_killer_drags_its_neighbours_along(on: Combination) {
    let ended = run_until_all_ended(on, Mode::KillerInCompany, &one_killer(), 1).await;
    assert_eq!(ended.deaths, POISON_AFTER);
    assert!(ended.shelved.iter().any(|id| id == KILLER));
    let dragged = ended.shelved.len() - 1;
    // Messages behind the killer that no handler had begun with.
    assert!(dragged > NEIGHBOURS / 2, "{dragged} innocents on the shelf");
    report(&format!(
        "the same on {on} without looking for suspects: {} deaths, {dragged} of {NEIGHBOURS} innocents on the shelf with \
         the killer; {:.1} s",
        ended.deaths,
        ended.took.as_secs_f64()
    ));
}

async fn several_killers_and_two_processes_spare_the_others(on: Combination) {
    const KILLERS: usize = 4;
    let mut messages: Vec<Message> = numbered(300 - KILLERS).collect();
    for killer in 0..KILLERS {
        messages.insert(1 + 70 * killer, Message::new("death").with_id(format!("{KILLER}-{killer}")));
    }
    let ended = run_until_all_ended(on, Mode::Killers, &messages, 2).await;
    let killers: BTreeSet<_> = (0..KILLERS).map(|killer| format!("{KILLER}-{killer}")).collect();
    // Twice where the process died between the copy and the acknowledgement.
    assert_eq!(BTreeSet::from_iter(ended.shelved), killers);
    report(&format!(
        "{KILLERS} killers among 300, two processes, on {on}: {} deaths, no innocent on the shelf; handed out {} times at \
         most; {:.1} s",
        ended.deaths,
        ended.neighbours.iter().map(|record| record.handed_out).max().unwrap(),
        ended.took.as_secs_f64()
    ));
}

/// In the middle of its neighbours.
fn one_killer() -> Vec<Message> {
    let mut messages: Vec<Message> = numbered(NEIGHBOURS).collect();
    messages.insert(10, Message::new("death").with_id(KILLER));
    messages
}

/// What was left when everything had ended.
struct Ended {
    deaths: u32,
    /// The entries of the dead-letter shelf; all as `PoisonMessage`.
    shelved: Vec<String>,
    neighbours: Vec<Record>,
    took: Duration,
}

async fn run_until_all_ended(on: Combination, mode: Mode, messages: &[Message], processes: usize) -> Ended {
    let deadline = Instant::now() + Duration::from_secs(600);
    let url = broker(on.version).url;
    let queue = on.unique("killer");
    let transport = on.options(&queue).connect(&url).await.unwrap();
    // In order: a killer must have neighbours on both sides.
    for message in messages {
        publish(&transport.publisher(), message.clone()).await;
    }

    let mut fleet = Fleet::new(env!("CARGO_BIN_EXE_worker"), mode, on, &url, &queue);
    let mut others: Vec<_> = (1..processes).map(|_| fleet.beside(&url)).collect();
    let began = Instant::now();
    let fleets = others.iter_mut().chain([&mut fleet]);
    let deaths =
        join_all(fleets.map(|fleet| keep_alive_until_all_ended(fleet, messages.len(), deadline))).await;
    let (took, deaths) = (began.elapsed(), deaths.iter().sum());
    let rabbit = Rabbit::connect(&url).await;
    for other in &mut others {
        other.stop().await;
    }
    fleet.stop().await;
    while rabbit.ready(&queue).await != Some(0) {
        fleet.start();
        while rabbit.ready(&queue).await != Some(0) {
            let state = || format!("the queue becomes empty; {}", fleet.state());
            poll_again(Duration::from_millis(20), deadline, state).await;
        }
        fleet.stop().await;
    }

    let shelf =
        transport.shelves().browse(Shelf::DeadLetter, None, 2 * messages.len()).await.unwrap().entries;
    for shelved in &shelf {
        let reason = shelved.history.reason.as_ref().map(redrive::Reason::as_str);
        assert_eq!(reason, Some("PoisonMessage"), "{:?}", shelved.message.id());
    }
    let shelved = shelf.iter().filter_map(|shelved| shelved.message.id()).map(str::to_owned).collect();
    delete(&rabbit, &queue).await;
    let ids = messages.iter().map(|message| message.id().unwrap());
    let neighbours =
        ids.filter(|id| !id.starts_with(KILLER)).map(|id| fleet.log.records[id].clone()).collect();
    Ended { deaths, shelved, neighbours, took }
}

/// A process that is restarted whenever it dies, until each message was handled or shelved. It does not wait until all were
/// acknowledged: a worker cannot log what it settled just before it died. The queue shows that, once a worker has
/// ended in order and has nothing in flight. Returns how often it died.
async fn keep_alive_until_all_ended(fleet: &mut Fleet, messages: usize, deadline: Instant) -> u32 {
    let all_ended = |log: &Log| {
        let ended = log.records.values().filter(|record| record.handled + record.shelved > 0).count();
        ended == messages
    };
    let mut deaths = 0;
    fleet.start();
    while !fleet.lives_until(deadline, "the end of all", all_ended).await {
        let status = fleet.ended().await;
        assert!(!status.success(), "a worker ended by itself, in order");
        deaths += 1;
        assert!(deaths <= 4 * POISON_AFTER, "{deaths} deaths: nothing bounds them; {}", fleet.state());
        fleet.start();
    }
    deaths
}

/// Another process died with some messages in flight. This one is in the middle of its work: it finishes what runs, returns the
/// rest of its deliveries, handles the dead process's messages one at a time, and then continues as before.
async fn what_comes_from_a_dead_process_is_handled_alone(on: Combination) {
    const FROM_THE_DEAD: usize = 10;
    const OTHERS: usize = 60;
    let url = broker(on.version).url;
    let queue = on.unique("widow");
    let transport = on.options(&queue).connect(&url).await.unwrap();
    publish_all(&transport, numbered(FROM_THE_DEAD)).await;
    let mut dead = hold(&url, &queue, FROM_THE_DEAD).await;
    // Where returns count too, one return proves nothing.
    for _ in 1..if on.version == Version::V3_10 { 2 } else { 1 } {
        dead.close().await;
        dead = hold(&url, &queue, FROM_THE_DEAD).await;
    }
    publish_all(&transport, numbered(FROM_THE_DEAD + OTHERS).skip(FROM_THE_DEAD)).await;

    let (diary, gate) = (Diary::new(), Arc::new(Semaphore::new(0)));
    let (running, most_beside) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (suspects, isolated) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let full = Arc::new(Notify::new());
    let handler = {
        let (gate, running, full) = (Arc::clone(&gate), Arc::clone(&running), Arc::clone(&full));
        let most_beside = Arc::clone(&most_beside);
        move |delivery: Delivery| {
            let (gate, running, full) = (Arc::clone(&gate), Arc::clone(&running), Arc::clone(&full));
            let most_beside = Arc::clone(&most_beside);
            async move {
                let beside = running.fetch_add(1, Ordering::SeqCst);
                if delivery.id().parse::<usize>().unwrap() < FROM_THE_DEAD {
                    most_beside.fetch_max(beside, Ordering::SeqCst);
                }
                if beside == 7 {
                    full.notify_one();
                }
                let passed = gate.acquire().await;
                tokio::task::yield_now().await;
                running.fetch_sub(1, Ordering::SeqCst);
                passed.map(SemaphorePermit::forget).map_err(BoxError::from)
            }
        }
    };
    let runner = Consumer::new(on.options(&queue).connect(&url).await.unwrap())
        .concurrency(8)
        .prefetch(20)
        .with_dead_letter_backoff(DeadLetterBackoff::new(NoRetry).poison_after(4))
        .observer(diary.observer())
        .observer({
            let (suspects, isolated) = (Arc::clone(&suspects), Arc::clone(&isolated));
            move |event: &Event<'_>| match event {
                Event::Suspect { .. } => drop(suspects.fetch_add(1, Ordering::SeqCst)),
                Event::IsolationBegan { .. } => isolated.notify_one(),
                _ => {}
            }
        })
        .handler(handler);
    let everything = diary.clone();
    let consumer =
        tokio::spawn(runner.run_until(async move { everything.ended(FROM_THE_DEAD + OTHERS).await }));
    full.notified().await;
    // The other process dies while eight handlers run and twelve more deliveries are in flight. They end one by one, until the
    // first message of the dead process arrives.
    dead.close().await;
    loop {
        tokio::select! {
            () = isolated.notified() => break,
            () = tokio::time::sleep(Duration::from_millis(2)) => gate.add_permits(1),
        }
    }
    gate.add_permits(1000);
    let report_of_consumer = consumer.await.unwrap().unwrap();

    assert_eq!(most_beside.load(Ordering::SeqCst), 0, "handlers ran beside a suspect");
    assert_eq!(suspects.load(Ordering::SeqCst), FROM_THE_DEAD);
    let all = FROM_THE_DEAD + OTHERS;
    assert_eq!(report_of_consumer.acknowledged, all as u64, "{report_of_consumer:?}");
    let rabbit = Rabbit::connect(&url).await;
    assert_eq!(rabbit.ready(&queue).await, Some(0));
    delete(&rabbit, &queue).await;
    report(&format!(
        "{FROM_THE_DEAD} messages of a dead process come to a busy one on {on}: handled alone, {} given back meanwhile, \
         none charged",
        report_of_consumer.released
    ));
}

/// A process that will die has the first messages of a queue in flight.
async fn hold(url: &str, queue: &str, count: usize) -> Rabbit {
    let rabbit = Rabbit::connect(url).await;
    let channel = rabbit.channel().await;
    for _ in 0..count {
        // A message that was just returned is not there at once.
        let get = async || channel.basic_get(queue.into(), BasicGetOptions::default()).await.unwrap();
        found("a message to hold", get).await;
    }
    // It must not end here.
    std::mem::forget(channel);
    rabbit
}

async fn delete(rabbit: &Rabbit, queue: &str) {
    let names = ["", "--dead-letters", "--parking-lot"].map(|suffix| format!("{queue}{suffix}"));
    rabbit.delete(names).await;
}
