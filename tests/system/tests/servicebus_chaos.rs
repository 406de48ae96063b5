//! The emulator is killed and restarted, connections are dropped and locks expire, while messages fail, recover and panic:
//! every message ends acknowledged or on the shelf.
//!
//! `REDRIVE_CHAOS_MESSAGES` sets the number of messages. Default: 1000.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use redrive::servicebus::ServiceBus;
use redrive::shelves::Shelved;
use redrive::{Message, Shelf, Shelves as _};
use redrive_brokers::report;
use redrive_system_tests::fleet::{Fleet, Mode};
use redrive_system_tests::servicebus::{EmulatorProcess, Left, Setup};
use redrive_system_tests::verdict::{Interruptions, judge, unended};
use redrive_system_tests::{poll_again, within};

/// How often the emulator is killed.
const KILLS: usize = 4;
/// How often all connections are dropped.
const DROPS: usize = 50;
/// How many locks expire, this many at a time.
const EXPIRIES: usize = 100;
const EXPIRIES_AT_ONCE: usize = 5;
/// How many messages are sent at the same time.
const SENDS: usize = 50;
/// How soon what a fault cut off is tried again.
const RETRY: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Kill,
    Drop,
    Expire,
}

fn messages() -> usize {
    let set = std::env::var("REDRIVE_CHAOS_MESSAGES").ok();
    set.map_or(1000, |number| number.parse().expect("REDRIVE_CHAOS_MESSAGES is a number"))
}

fn time_limit() -> Duration {
    Duration::from_secs(600) + Duration::from_millis(100) * u32::try_from(messages()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_ends_whatever_breaks() {
    within(time_limit() * 2, "the chaos on Service Bus", chaos()).await;
}

async fn chaos() {
    let setup = Setup::OF_QUEUES[0];
    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_servicebus_emulator");
    let mut emulator = EmulatorProcess::start(program, folder.path().join("state")).await;
    let address = emulator.connection_string().to_owned();
    let operator = setup.options().connect(&address).await.unwrap();
    let (began, deadline) = (Instant::now(), Instant::now() + time_limit());
    let mut ids = publish(&operator, 0, messages(), deadline).await;
    let mut fleet = Fleet::on_servicebus(env!("CARGO_BIN_EXE_worker"), Mode::Chaos, setup, &address);
    fleet.start();
    let mut expired = 0;
    let plan = plan();
    for (number, fault) in plan.iter().enumerate() {
        // The last ones when nine of ten messages were seen.
        let seen = (messages() * 9 / 10) * (number + 1) / plan.len();
        fleet.until(deadline, &format!("{seen} messages seen"), |log| log.records.len() >= seen).await;
        match fault {
            Fault::Kill => emulator.kill_and_restart().await,
            // Nobody is connected, where the one before is not mended yet.
            Fault::Drop => {
                while emulator.drop_connections().await == 0 {
                    pause(deadline, "somebody is connected", &fleet).await;
                }
            }
            Fault::Expire => {
                let wanted = expired + EXPIRIES_AT_ONCE;
                while expired < wanted {
                    expired += emulator.expire(wanted - expired).await;
                    // A test that was held up finds every message at its end, and never again one in flight.
                    if expired < wanted && is_empty(emulator.look().await) {
                        ids.extend(publish(&operator, ids.len(), SENDS, deadline).await);
                    }
                    pause(deadline, "a message is in flight", &fleet).await;
                }
            }
        }
    }
    let shelf = to_the_end(&ids, &mut fleet, &operator, &mut emulator, deadline).await;
    let took = began.elapsed();
    // Each of them may have cost the same message a delivery.
    let interruptions = u32::try_from(KILLS + DROPS + expired).unwrap();
    let verdict =
        judge(&ids, &fleet.log, &shelf, Interruptions { brokers: interruptions, ..Interruptions::default() });
    report(&format!(
        "chaos on Service Bus: {verdict}, the emulator killed {KILLS} times, connections dropped {DROPS} times, {expired} locks \
         expired, {} deliveries lost by the worker's count, {:.1} s",
        fleet.log.lost,
        took.as_secs_f64()
    ));
}

/// All faults, in any order.
fn plan() -> Vec<Fault> {
    let of = |fault, times| std::iter::repeat_n(fault, times);
    let mut plan: Vec<_> = of(Fault::Kill, KILLS)
        .chain(of(Fault::Drop, DROPS))
        .chain(of(Fault::Expire, EXPIRIES / EXPIRIES_AT_ONCE))
        .collect();
    fastrand::shuffle(&mut plan);
    plan
}

/// Sends messages with the ids `m-{first}`, …, each until it is stored, whatever fails meanwhile; returns the ids.
async fn publish(through: &ServiceBus, first: usize, count: usize, deadline: Instant) -> Vec<String> {
    let ids: Vec<String> = (first..first + count).map(|number| format!("m-{number}")).collect();
    stream::iter(&ids)
        .for_each_concurrent(SENDS, |id| async move {
            while let Err(error) = through.publish(Message::new("an order").with_id(id)).await {
                poll_again(RETRY, deadline, || format!("not sent: {error}")).await;
            }
        })
        .await;
    ids
}

/// Whether nothing is left to be handled.
fn is_empty(left: Left) -> bool {
    left.work + left.waiting == 0
}

async fn pause(deadline: Instant, what: &str, fleet: &Fleet) {
    poll_again(Duration::from_millis(5), deadline, || format!("{what}; {}", fleet.state())).await;
}

/// Waits until every message came to its end and nothing is left in the queue; gives back what rests on the shelf.
async fn to_the_end(
    ids: &[String],
    fleet: &mut Fleet,
    operator: &ServiceBus,
    emulator: &mut EmulatorProcess,
    deadline: Instant,
) -> Vec<Shelved> {
    let shelves = operator.shelves();
    loop {
        let left = emulator.look().await;
        fleet.log.catch_up();
        if is_empty(left) {
            fleet.stop().await;
            let left = emulator.look().await;
            // The worker may have given something back.
            if is_empty(left) {
                assert_eq!(left.parked, 0, "nothing is parked here");
                // The operator's connection may be one that was dropped, and not know it yet.
                loop {
                    match shelves.browse(Shelf::DeadLetter, None, usize::MAX).await {
                        Ok(rests) => return rests.entries,
                        Err(error) => poll_again(RETRY, deadline, || format!("the shelf: {error}")).await,
                    }
                }
            }
            fleet.start();
        }
        if Instant::now() > deadline {
            let rests = shelves.browse(Shelf::DeadLetter, None, usize::MAX).await.unwrap_or_default().entries;
            let unended = unended(ids, &fleet.log, &rests);
            panic!("not all messages ended in time: {left}; not ended: {unended:?}; {}", fleet.state());
        }
        poll_again(RETRY, deadline, || left.to_string()).await;
    }
}
