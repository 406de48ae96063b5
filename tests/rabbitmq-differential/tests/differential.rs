//! Random scenarios on RabbitMQ itself and on the emulator: what a client sees is the same.
//!
//! `REDRIVE_DIFFERENTIAL_SCENARIOS` sets how many for each version and type of queue, `REDRIVE_DIFFERENTIAL_FROM` the first seed.

use redrive_brokers::{Version, report};
use redrive_rabbitmq_differential::campaign::{Emulated, campaign};
use redrive_rabbitmq_differential::generate::Combination;
use redrive_rabbitmq_differential::nodes;
use redrive_rabbitmq_differential::scenario::Kind;
use std::fmt::Write as _;
use std::time::Instant;
use tokio::runtime::Runtime;

/// How many scenarios, if the environment does not say.
const SCENARIOS: u64 = 5;
/// How many of them run at once: they mostly wait.
const AT_ONCE: usize = 5;

mod v3_10 {
    use super::*;

    #[test]
    fn classic_queues_do_what_rabbitmq_does() {
        compare(Version::V3_10, Kind::Classic);
    }

    #[test]
    fn quorum_queues_do_what_rabbitmq_does() {
        compare(Version::V3_10, Kind::Quorum);
    }
}

mod v4_3 {
    use super::*;

    #[test]
    fn classic_queues_do_what_rabbitmq_does() {
        compare(Version::V4_3, Kind::Classic);
    }

    #[test]
    fn quorum_queues_do_what_rabbitmq_does() {
        compare(Version::V4_3, Kind::Quorum);
    }
}

fn compare(version: Version, kind: Kind) {
    let combination = Combination { version, kind };
    let first = number("REDRIVE_DIFFERENTIAL_FROM", 0);
    let seeds: Vec<u64> = (first..first + number("REDRIVE_DIFFERENTIAL_SCENARIOS", SCENARIOS)).collect();
    let running = nodes::real(version);
    let emulated = Emulated { version, runtime: Runtime::new().unwrap() };
    let began = Instant::now();
    let done = campaign(combination, &seeds, [&running.real, &emulated], AT_ONCE, |_, _| {});
    report(&format!(
        "RabbitMQ {combination} against the emulator: {} scenarios from seed {first}, {} different, {} equal only when repeated, {:.0} s",
        done.compared,
        done.different.len(),
        done.at_last.len(),
        began.elapsed().as_secs_f64()
    ));
    let mut wrong = String::new();
    for (seed, how) in &done.different {
        write!(wrong, "\n## {combination}, seed {seed}: {how}\n  To see all of it: cargo run -p redrive-rabbitmq-differential -- show {combination} {seed}\n")
            .unwrap();
    }
    for (seed, error) in &done.failed {
        write!(wrong, "\n## {combination}, seed {seed} could not be run: {error}\n").unwrap();
    }
    assert!(wrong.is_empty(), "the emulator does not do what RabbitMQ does:\n{wrong}");
    assert_eq!(done.compared, seeds.len());
}

/// A number from the environment.
fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable)
        .map_or(default, |text| text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")))
}
