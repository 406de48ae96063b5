//! Broker and consumer are killed while messages fail, recover and panic: every message ends acknowledged or on a shelf.
//!
//! `REDRIVE_CHAOS_MESSAGES` sets the number of messages. Default: 1000.

use std::time::{Duration, Instant};

use redrive::rabbitmq::RabbitMq;
use redrive::shelves::Shelved;
use redrive::{Message, Shelf, Shelves as _};
use redrive_brokers::{Node, own_node, report};
use redrive_system_tests::fate;
use redrive_system_tests::fleet::{Fleet, Mode};
use redrive_system_tests::rabbit::{Rabbit, publish_all};
use redrive_system_tests::verdict::{Interruptions, judge, unended};
use redrive_system_tests::{Combination, on_four_combinations, poll_again};

on_four_combinations!(7200; every_message_ends_whoever_is_killed);

const QUEUE: &str = "chaos";
/// RabbitMQ stores the place of a new quorum queue's log a moment after the declaration. If it is killed before, the queue comes back
/// broken: it accepts and answers nothing, and copies for it stay in flight forever.
const SAFE_IN: Duration = Duration::from_secs(5);

/// Who is killed once the handler saw this many percent of the messages.
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

/// The broker itself sends again after three minutes what it lost on the way from a delay queue.
fn time_limit() -> Duration {
    Duration::from_secs(600) + Duration::from_millis(30) * u32::try_from(messages()).unwrap()
}

async fn every_message_ends_whoever_is_killed(on: Combination) {
    let ids: Vec<String> = (0..messages()).map(|number| format!("m-{number}")).collect();
    let node = tokio::task::spawn_blocking(move || own_node(on.version)).await.unwrap();
    // A start of the broker may take minutes on a busy machine, and does not count.
    let mut deadline = Instant::now() + time_limit();
    let mut fleet = Fleet::new(env!("CARGO_BIN_EXE_worker"), Mode::Chaos, on, &node.url(), QUEUE);
    // The first worker declares the queues.
    fleet.start();
    fleet.until(deadline, "a worker starts", |log| log.started == 1).await;
    let declared = Instant::now();
    fleet.stop().await;
    let transport = on.options(QUEUE).connect(&node.url()).await.unwrap();
    publish_all(&transport, ids.iter().map(|id| Message::new("an order").with_id(id))).await;
    tokio::time::sleep_until((declared + SAFE_IN).into()).await;
    alive(&node).await;

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
            Victim::Broker => {
                let killed = Instant::now();
                node.aside(Node::restart).await.unwrap();
                deadline += killed.elapsed();
            }
        }
    }
    let shelf = to_the_end(&ids, &mut fleet, &transport, &node, deadline).await;
    let took = began.elapsed();
    let killed = |wanted| KILLS.iter().filter(|(_, victim)| *victim == wanted).count() as u32;
    let killed = Interruptions {
        workers: killed(Victim::Worker),
        brokers: killed(Victim::Broker),
        ..Interruptions::default()
    };
    let verdict = judge(&ids, &fleet.log, &shelf, killed);
    report(&format!(
        "chaos on {on}: {verdict}, {} workers and {} brokers killed, {:.1} s",
        killed.workers,
        killed.brokers,
        took.as_secs_f64()
    ));
}

/// Asks the broker something, and gives it a second: it may have stood still so far, and a new queue needs time of the broker's
/// own before the broker may be killed (RabbitMQ 3.10). Nothing tells how old a queue is.
async fn alive(node: &Node) {
    node.aside(|node| node.ctl(&["list_queues", "name"])).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
}

/// Waits until every message has ended and nothing is left in work queue and delay queues; returns the messages on the shelf.
async fn to_the_end(
    ids: &[String],
    fleet: &mut Fleet,
    transport: &RabbitMq,
    node: &Node,
    deadline: Instant,
) -> Vec<Shelved> {
    // What RabbitMQ is just moving from one queue to another is in none of them, by its own figures; what it lost on the way
    // it sends again after three minutes.
    const UNSEEN: Duration = Duration::from_secs(200);
    let mut idle_since = None;
    loop {
        // Duplicates are under way as long as anything is left, ready or in flight.
        let left = node.aside(|node| node.ctl(&["list_queues", "name", "messages"])).await.unwrap();
        let shelves = transport.shelves();
        let rests = shelves.browse(Shelf::DeadLetter, None, usize::MAX).await.unwrap().entries;
        fleet.log.catch_up();
        let unended = unended(ids, &fleet.log, &rests);
        let idle = empty(&left).then(|| *idle_since.get_or_insert_with(Instant::now));
        idle_since = idle;
        if idle.is_some_and(|since| unended.is_empty() || since.elapsed() > UNSEEN) {
            fleet.stop().await;
            // The worker may have given something back.
            if empty_after_all(node).await {
                assert_eq!(shelves.count(Shelf::Parking).await.unwrap(), 0, "nothing is parked here");
                return shelves.browse(Shelf::DeadLetter, None, usize::MAX).await.unwrap().entries;
            }
            fleet.start();
        }
        let state = || {
            let (rest, fleet) = (rests.len(), fleet.state());
            format!("{rest} on the shelf; queues: {left}; not ended: {unended:?}; {fleet}")
        };
        // The whole shelf is browsed each time.
        poll_again(Duration::from_millis(200), deadline, state).await;
    }
}

async fn empty_after_all(node: &Node) -> bool {
    let rabbit = Rabbit::connect(&node.url()).await;
    for queue in fate::rungs(QUEUE).chain([QUEUE.to_owned()]) {
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
