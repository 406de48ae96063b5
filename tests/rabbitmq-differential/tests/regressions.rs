//! What once differed, against what RabbitMQ was seen to do: without a broker.

use redrive_brokers::report;
use redrive_rabbitmq_differential::campaign::{Emulated, replay};
use redrive_rabbitmq_differential::regression::{self, Regression};
use tokio::runtime::Runtime;

/// How many run at once.
const AT_ONCE: usize = 8;

#[test]
fn the_emulator_does_what_rabbitmq_did() {
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
