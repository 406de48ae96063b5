//! Random scenarios, and what once differed, against what RabbitMQ was seen to do: without a broker.

use redrive_brokers::Version;
use redrive_brokers::report;
use redrive_rabbitmq_differential::campaign::{Emulated, replay};
use redrive_rabbitmq_differential::generate::Combination;
use redrive_rabbitmq_differential::recordings;
use redrive_rabbitmq_differential::regression::{self, Regression};
use redrive_rabbitmq_differential::scenario::Kind;
use std::fmt::Write as _;
use tokio::runtime::Runtime;

/// How many run at once.
const AT_ONCE: usize = 8;

/// How many scenarios are recorded for each version and type of queue.
const RECORDED: usize = 200;

#[test]
fn the_emulator_does_what_rabbitmq_did_in_random_scenarios() {
    let mut wrong = String::new();
    for version in Version::ALL {
        let emulated = Emulated { version, runtime: Runtime::new().unwrap() };
        for kind in [Kind::Classic, Kind::Quorum] {
            let combination = Combination { version, kind };
            let all = recordings::all(combination).unwrap();
            assert_eq!(all.len(), RECORDED, "recordings of {combination}");
            for (seed, how) in recordings::differences(&all, &emulated, AT_ONCE) {
                writeln!(wrong, "{combination}, seed {seed}: {how}").unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn the_emulator_does_what_rabbitmq_did_where_they_once_differed() {
    let all = regression::all().unwrap();
    assert!(!all.is_empty(), "no regression was found");
    let each = all.len().div_ceil(AT_ONCE);
    let wrong: Vec<String> = std::thread::scope(|threads| {
        let running: Vec<_> = all
            .chunks(each)
            .map(|some| threads.spawn(|| some.iter().filter_map(|(name, it)| check(name, it)).collect()))
            .collect();
        running.into_iter().flat_map(|thread| -> Vec<String> { thread.join().unwrap() }).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is wrong with it, if anything.
fn check(name: &str, regression: &Regression) -> Option<String> {
    let emulated = Emulated { version: regression.version().unwrap(), runtime: Runtime::new().unwrap() };
    let rule = &regression.rule;
    match (replay(&regression.recording, &emulated).unwrap(), regression.open) {
        (Some(_), true) => {
            report(&format!("the RabbitMQ emulator differs still: {name}: {rule}"));
            None
        }
        (None, true) => Some(format!("{name} is equal now: take `open` away")),
        (Some(how), false) => Some(format!("{name} ({rule}): {how}")),
        (None, false) => None,
    }
}
