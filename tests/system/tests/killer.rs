//! A message that kills every process it is handed to ends on a shelf, and takes nobody with it.
//!
//! On quorum queues only: a classic queue does not count how often it hands a message out, so nothing bounds this there.

use std::time::{Duration, Instant};

use redrive::{Message, Shelf, Shelves as _};
use redrive_brokers::{own_node, report};
use redrive_system_tests::fleet::{Fleet, Mode};
use redrive_system_tests::rabbit::{Rabbit, publish_all};
use redrive_system_tests::worker_log::Log;
use redrive_system_tests::{Combination, KILLER, POISON_AFTER, numbered, on_both_versions};

on_both_versions!(180; a_message_that_kills_its_process_is_turned_away_and_spares_the_others);

const QUEUE: &str = "killer";
/// Before it, and as many behind it.
const NEIGHBOURS: usize = 20;

async fn a_message_that_kills_its_process_is_turned_away_and_spares_the_others(on: Combination) {
    let deadline = Instant::now() + Duration::from_secs(120);
    let node = tokio::task::spawn_blocking(move || own_node(on.version)).await.unwrap();
    let mut fleet = Fleet::new(env!("CARGO_BIN_EXE_worker"), Mode::Killer, on, &node.url(), QUEUE);
    // The first worker declares the queues.
    fleet.start();
    fleet.until(deadline, "a worker starts", |log| log.started == 1).await;
    fleet.stop().await;
    let transport = on.options(QUEUE).connect(&node.url()).await.unwrap();
    let neighbours: Vec<Message> = numbered(2 * NEIGHBOURS).collect();
    // One after the other: the killer must have neighbours on both sides.
    for message in &neighbours[..NEIGHBOURS] {
        transport.publish(message.clone()).await.unwrap();
    }
    transport.publish(Message::new("death").with_id(KILLER)).await.unwrap();
    publish_all(&transport, neighbours[NEIGHBOURS..].iter().cloned()).await;

    let began = Instant::now();
    let mut deaths = 0;
    let all_ended = |log: &Log| {
        let acked = log.records.values().filter(|record| record.acked > 0).count();
        acked == neighbours.len() && log.records.get(KILLER).is_some_and(|record| record.shelved > 0)
    };
    fleet.start();
    while !fleet.lives_until(deadline, "the end of all", all_ended).await {
        let status = fleet.ended().await;
        assert!(!status.success(), "a worker ended by itself, in order");
        deaths += 1;
        assert!(deaths <= 2 * POISON_AFTER, "{deaths} deaths: nothing bounds them; {}", fleet.state());
        fleet.start();
    }
    let took = began.elapsed();
    fleet.stop().await;

    assert_eq!(deaths, POISON_AFTER, "the configured number of hand-outs, and a death for each");
    let shelf = transport.shelves().browse(Shelf::DeadLetter, 100).await.unwrap();
    let found: Vec<_> = shelf
        .iter()
        .map(|found| {
            (found.message.id().unwrap_or_default(), found.story.reason.as_ref().map(redrive::Reason::as_str))
        })
        .collect();
    assert_eq!(found, [(KILLER, Some("PoisonMessage"))]);
    for message in &neighbours {
        let record = &fleet.log.records[message.id().unwrap()];
        assert_eq!((record.handled, record.acked), (1, 1), "{:?}: {record:?}", message.id());
    }
    assert_eq!(Rabbit::connect(&node.url()).await.ready(QUEUE).await, Some(0));
    report(&format!(
        "a message that kills its process on {on}: {deaths} deaths, then on the shelf as PoisonMessage; all {} others \
         handled once, {:.1} s",
        neighbours.len(),
        took.as_secs_f64()
    ));
}
