//! Broker and consumer are killed while messages fail, recover and panic: every message ends acknowledged or on a shelf.
//!
//! The size is in `REDRIVE_CHAOS_MESSAGES`, 1000 when nothing is said.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use redrive::rabbitmq::RabbitMq;
use redrive::{Message, Shelf, Shelved, Shelves as _};
use redrive_brokers::{Node, own_node, report};
use redrive_system_tests::fate::{self, ATTEMPTS};
use redrive_system_tests::fleet::{Fleet, Mode};
use redrive_system_tests::rabbit::{Rabbit, publish_all};
use redrive_system_tests::worker_log::Log;
use redrive_system_tests::{Combination, on_four_combinations};

on_four_combinations!(3600; every_message_ends_whoever_is_killed);

const QUEUE: &str = "chaos";
/// RabbitMQ writes down where the log of a new quorum queue is only a moment after it declared the queue. Killed before,
/// it comes back with a queue that takes nothing and answers nothing, and copies for it stay in hand for ever.
const SAFE_IN: Duration = Duration::from_secs(5);

/// Who is killed once the handler saw so many percent of the messages.
const KILLS: [(usize, Victim); 5] = [
    (15, Victim::Worker),
    (30, Victim::Broker),
    (45, Victim::Worker),
    (60, Victim::Broker),
    (75, Victim::Worker),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Victim {
    Worker,
    Broker,
}

fn messages() -> usize {
    let set = std::env::var("REDRIVE_CHAOS_MESSAGES").ok();
    set.map_or(1000, |number| number.parse().expect("REDRIVE_CHAOS_MESSAGES is a number"))
}

fn time_limit() -> Duration {
    Duration::from_secs(90) + Duration::from_millis(30) * u32::try_from(messages()).unwrap()
}

async fn every_message_ends_whoever_is_killed(on: Combination) {
    let ids: Vec<String> = (0..messages()).map(|number| format!("m-{number}")).collect();
    let deadline = Instant::now() + time_limit();
    let node = tokio::task::spawn_blocking(move || own_node(on.version)).await.unwrap();
    let mut fleet = Fleet::new(env!("CARGO_BIN_EXE_worker"), Mode::Chaos, on, &node.url(), QUEUE);
    // The first worker declares the queues.
    fleet.start();
    fleet.until(deadline, "a worker starts", |log| log.started == 1).await;
    let declared = Instant::now();
    fleet.stop().await;
    let transport = on.options(QUEUE).connect(&node.url()).await.unwrap();
    publish_all(&transport, ids.iter().map(|id| Message::new("an order").with_id(id))).await;
    tokio::time::sleep_until((declared + SAFE_IN).into()).await;

    let began = Instant::now();
    fleet.start();
    for (percent, victim) in KILLS {
        let seen = ids.len() * percent / 100;
        fleet.until(deadline, &format!("{percent} % seen"), |log| log.records.len() >= seen).await;
        match victim {
            Victim::Worker => {
                fleet.kill().await;
                fleet.start();
            }
            Victim::Broker => node.aside(Node::restart).await.unwrap(),
        }
    }
    let shelf = to_the_end(&ids, &mut fleet, &transport, &node, deadline).await;
    let took = began.elapsed();
    let figures = judge(&ids, &fleet, &shelf);
    report(&format!("chaos on {on}: {figures}, {:.1} s", took.as_secs_f64()));
}

/// Waits until every message came to its end and nothing is left in work queue and delay queues; gives back what rests on
/// the shelf.
async fn to_the_end(
    ids: &[String],
    fleet: &mut Fleet,
    transport: &RabbitMq,
    node: &Node,
    deadline: Instant,
) -> Vec<Shelved> {
    // What RabbitMQ is just moving from one queue to another is in none of them, by its own figures.
    const UNSEEN: Duration = Duration::from_secs(20);
    let mut idle_since = None;
    loop {
        // Duplicates are under way as long as anything is left, ready or in hand.
        let left = node.aside(|node| node.ctl(&["list_queues", "name", "messages"])).await.unwrap();
        let shelves = transport.shelves();
        let rests = shelves.browse(Shelf::DeadLetter, usize::MAX).await.unwrap();
        fleet.log.catch_up();
        let unended = unended(ids, &fleet.log, &rests);
        let idle = empty(&left).then(|| *idle_since.get_or_insert_with(Instant::now));
        idle_since = idle;
        if idle.is_some_and(|since| unended.is_empty() || since.elapsed() > UNSEEN) {
            fleet.stop().await;
            // The worker may have given something back.
            if empty_after_all(node).await {
                assert_eq!(shelves.count(Shelf::Parking).await.unwrap(), 0, "nothing is parked here");
                return shelves.browse(Shelf::DeadLetter, usize::MAX).await.unwrap();
            }
            fleet.start();
        }
        assert!(
            Instant::now() < deadline,
            "not all messages ended in time: {} on the shelf; queues: {left}; not ended: {unended:?}; {}",
            rests.len(),
            fleet.state()
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn unended<'a>(ids: &'a [String], log: &Log, rests: &[Shelved]) -> Vec<&'a String> {
    let rests: HashSet<&str> = rests.iter().filter_map(|found| found.message.id()).collect();
    let handled = |id: &String| log.records.get(id).is_some_and(|record| record.handled > 0);
    ids.iter().filter(|id| !handled(id) && !rests.contains(id.as_str())).collect()
}

async fn empty_after_all(node: &Node) -> bool {
    let rabbit = Rabbit::connect(&node.url()).await;
    let rungs = fate::WAITS.map(|wait| format!("{QUEUE}--retry-{}ms", wait.as_millis()));
    for queue in rungs.into_iter().chain([QUEUE.to_owned()]) {
        if rabbit.ready(&queue).await.expect("the queue is there") > 0 {
            return false;
        }
    }
    true
}

/// Whether, by `rabbitmqctl`, nothing is in a queue that is no shelf.
fn empty(queues: &str) -> bool {
    let lines = queues.lines().filter(|line| line.starts_with(QUEUE) && !line.contains("--dead-letters"));
    lines.into_iter().all(|line| line.split_whitespace().nth(1) == Some("0"))
}

/// Asserts that every message ended as it must; gives back the figures.
fn judge(ids: &[String], fleet: &Fleet, shelf: &[Shelved]) -> String {
    let crashes = |victim| KILLS.iter().filter(|(_, killed)| *killed == victim).count() as u32;
    let (workers, brokers) = (crashes(Victim::Worker), crashes(Victim::Broker));
    let mut shelved: HashMap<&str, Vec<&Shelved>> = HashMap::new();
    for found in shelf {
        shelved.entry(found.message.id().unwrap_or_default()).or_default().push(found);
    }
    let (mut lost, mut wrong, mut twice, mut unlogged, mut most_runs, mut most_hand_outs) =
        (Vec::new(), Vec::new(), 0, 0, 0, 0);
    for id in ids {
        let record = fleet.log.records.get(id).cloned().unwrap_or_default();
        let rests = shelved.remove(id.as_str()).unwrap_or_default();
        let ended = record.handled as usize + rests.len();
        match (ended, fate::end(id)) {
            (0, _) => lost.push(id),
            (_, None) if !rests.is_empty() => wrong.push(format!("{id} succeeds, but is on the shelf")),
            (_, Some(reason)) => {
                let others = rests.iter().filter(|found| {
                    found.story.reason.as_ref().is_none_or(|found| found.as_str() != reason)
                        || found.story.failures() > ATTEMPTS
                });
                wrong.extend(others.map(|found| format!("{id} must end as {reason}: {:?}", found.story)));
            }
            (_, None) => {}
        }
        twice += usize::from(ended > 1);
        // Its worker was killed after the acknowledgement and before the line in the log.
        unlogged +=
            usize::from(rests.is_empty() && record.handled > 0 && record.acked + record.on_sight == 0);
        if record.attempt > ATTEMPTS || (ended == 1 && record.runs > ATTEMPTS + workers + brokers) {
            wrong.push(format!("{id}: too many attempts: {record:?}"));
        }
        if record.handed_out > 1 + workers + brokers {
            wrong.push(format!("{id}: handed out too often: {record:?}"));
        }
        most_runs = most_runs.max(record.runs);
        most_hand_outs = most_hand_outs.max(record.handed_out);
    }
    wrong.extend(shelved.keys().map(|id| format!("{id} was never published")));
    assert!(lost.is_empty(), "{} of {} messages are LOST: {lost:?}", lost.len(), ids.len());
    assert!(wrong.is_empty(), "{} messages did not end as they must: {wrong:#?}", wrong.len());

    let acked = ids.iter().filter(|id| fate::end(id).is_none()).count();
    let on_sight: u32 = fleet.log.records.values().map(|record| record.on_sight).sum();
    format!(
        "{} messages, {acked} acknowledged ({unlogged} of them unseen), {} dead-lettered, 0 lost, {twice} handled to an \
         end more than once, {on_sight} settled on sight, {} runs (at most {most_runs} of one message, {ATTEMPTS} \
         attempts allowed, handed out at most {most_hand_outs} times), {workers} workers and {brokers} brokers killed",
        ids.len(),
        ids.len() - acked,
        fleet.log.runs,
    )
}
