//! Many scenarios at once, each on two sides.

use crate::generate::{self, Combination};
use crate::observation::{Observed, difference};
use crate::run::{Outcome, run};
use crate::scenario::{Kind, Scenario};
use crate::target::Target;
use anyhow::{Context as _, Result, bail};
use redrive_brokers::Version;
use redrive_rabbitmq_emulator::UnpromisedOrder;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;

/// How long a tick is at first; a run that was late is tried again with the next. A late run ends at its first wait.
const TICKS: [Duration; 6] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(16),
    Duration::from_secs(30),
];

/// Where RabbitMQ promises no order, any is right. Two queues that race twice in a scenario have four results.
const ORDERS: [UnpromisedOrder; 19] = {
    let mut orders = [UnpromisedOrder::Together; 19];
    orders[1] = UnpromisedOrder::OneByOne;
    orders[2] = UnpromisedOrder::Reversed;
    let mut place = 3;
    while place < orders.len() {
        orders[place] = UnpromisedOrder::Shuffled(place as u64);
        place += 1;
    }
    orders
};

/// How often a difference must be seen before it counts.
const TIMES: usize = 3;

/// A broker that scenarios run on.
pub trait Side: fmt::Debug + Send + Sync {
    /// A target for one run. `order`: which of its [`orders`](Self::orders).
    ///
    /// # Errors
    /// If it cannot be reached or started.
    fn target(&self, order: UnpromisedOrder) -> Result<Target>;
    /// What is to be tried where RabbitMQ promises no order.
    fn orders(&self) -> &[UnpromisedOrder] {
        &[UnpromisedOrder::Together]
    }
}

/// A real broker, by its URLs.
#[derive(Debug, Clone)]
pub struct Real {
    /// `amqp://user:password@host:port/vhost`
    pub amqp: String,
    /// `http://user:password@host:port`
    pub management: String,
}

impl Side for Real {
    fn target(&self, _order: UnpromisedOrder) -> Result<Target> {
        Target::real(&self.amqp, &self.management)
    }
}

/// The emulator: a fresh one for each run.
#[derive(Debug)]
pub struct Emulated {
    /// Behaves like this version.
    pub version: Version,
    /// Where it runs.
    pub runtime: Runtime,
}

impl Side for Emulated {
    fn target(&self, order: UnpromisedOrder) -> Result<Target> {
        Target::emulated(self.version, order, self.runtime.handle())
    }

    fn orders(&self) -> &[UnpromisedOrder] {
        &ORDERS
    }
}

/// What came of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Equal, at once.
    Equal,
    /// Equal after other runs of the same that were not.
    EqualAtLast,
    /// Different every time; the first step that differs.
    Different(String),
}

/// The result of many scenarios.
#[derive(Debug, Default)]
pub struct Report {
    /// How many were compared.
    pub compared: usize,
    /// How many were equal only at the second or third try.
    pub at_last: Vec<u64>,
    /// Seeds that differ, and how.
    pub different: Vec<(u64, String)>,
    /// Seeds that could not be run, and why.
    pub failed: Vec<(u64, String)>,
}

/// Compares the scenarios of `seeds` on both sides, `at_once` at a time; `heard` is told of each result.
pub fn campaign(
    combination: Combination,
    seeds: &[u64],
    sides: [&dyn Side; 2],
    at_once: usize,
    heard: impl Fn(u64, &Result<Verdict>) + Sync,
) -> Report {
    let report = Mutex::new(Report::default());
    let next = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for _ in 0..at_once.min(seeds.len()) {
            threads.spawn(|| {
                while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let verdict = compare(&generate::scenario(combination, seed), sides);
                    heard(seed, &verdict);
                    let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
                    report.compared += 1;
                    match verdict {
                        Ok(Verdict::Equal) => {}
                        Ok(Verdict::EqualAtLast) => report.at_last.push(seed),
                        Ok(Verdict::Different(how)) => report.different.push((seed, how)),
                        Err(error) => report.failed.push((seed, format!("{error:#}"))),
                    }
                }
            });
        }
    });
    report.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a scenario on both sides and compares what was observed.
///
/// # Errors
/// If it cannot be run, or is late even with the longest ticks.
pub fn compare(scenario: &Scenario, sides: [&dyn Side; 2]) -> Result<Verdict> {
    let mut last = None;
    for time in 0..TIMES {
        let (tick, expected) = in_time(scenario, sides[0])?;
        match deviation(scenario, sides[1], tick, &expected.observed)? {
            None if time == 0 => return Ok(Verdict::Equal),
            None => return Ok(Verdict::EqualAtLast),
            some => last = some,
        }
    }
    Ok(Verdict::Different(last.unwrap_or_default()))
}

/// What a real broker showed, with the tick that the run had.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Recording {
    /// The seed of the scenario.
    pub seed: u64,
    /// The scenario itself: a later version makes others.
    pub scenario: Scenario,
    /// The length of a tick in milliseconds.
    pub tick: u64,
    /// What was observed.
    pub observed: Vec<Observed>,
}

/// Runs a scenario on a real broker for a comparison later.
///
/// # Errors
/// As [`compare`].
pub fn record(seed: u64, scenario: &Scenario, side: &dyn Side) -> Result<Recording> {
    let (tick, outcome) = in_time(scenario, side)?;
    Ok(Recording {
        seed,
        scenario: scenario.clone(),
        tick: u64::try_from(tick.as_millis())?,
        observed: outcome.observed,
    })
}

/// Runs a scenario and compares with what was recorded.
///
/// # Errors
/// If it cannot be run.
pub fn replay(recording: &Recording, side: &dyn Side) -> Result<Option<String>> {
    let tick = Duration::from_millis(recording.tick);
    deviation(&recording.scenario, side, tick, &recording.observed)
}

/// How a side differs from what was observed, whatever order it takes where none is promised.
fn deviation(
    scenario: &Scenario,
    side: &dyn Side,
    tick: Duration,
    expected: &[Observed],
) -> Result<Option<String>> {
    let mut first = None;
    for &order in side.orders() {
        let seen = match on(scenario, side, tick, order)? {
            // It is real, too, and had less luck.
            outcome if outcome.late => in_time(scenario, side)?.1,
            outcome => outcome,
        };
        match difference(expected, &seen.observed) {
            None => return Ok(None),
            Some(how) => first = first.or(Some(how)),
        }
    }
    Ok(first)
}

/// Runs a scenario with ticks long enough that no step was late.
fn in_time(scenario: &Scenario, side: &dyn Side) -> Result<(Duration, Outcome)> {
    // A machine that was too slow for a tick is likely to be so for the next scenario. Quorum queues are slower.
    static FIRST: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(1)];
    let quorum = scenario.queues.iter().any(|queue| queue.kind == Kind::Quorum);
    let first = &FIRST[usize::from(quorum)];
    for (place, &tick) in TICKS.iter().enumerate().skip(first.load(Ordering::Relaxed)) {
        let outcome = on(scenario, side, tick, UnpromisedOrder::Together)?;
        if !outcome.late {
            return Ok((tick, outcome));
        }
        if place + 2 < TICKS.len() {
            first.fetch_max(place + 1, Ordering::Relaxed);
        }
    }
    bail!("the machine is too slow: steps took more than a tenth of {:?}", TICKS[TICKS.len() - 1])
}

fn on(scenario: &Scenario, side: &dyn Side, tick: Duration, order: UnpromisedOrder) -> Result<Outcome> {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    // Always of the same length: names count where lengths do.
    let prefix = format!("d{:07}x{:06}.", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
    run(scenario, side.target(order)?, &prefix, tick).with_context(|| format!("on {side:?}"))
}

/// The observations of one run, for a person.
///
/// # Errors
/// As [`compare`].
pub fn show(scenario: &Scenario, side: &dyn Side) -> Result<String> {
    let (tick, outcome) = in_time(scenario, side)?;
    let steps = outcome.observed.iter().map(|observed| {
        let lines: String = observed.lines.iter().map(|line| format!("    {}\n", line.text)).collect();
        format!("{}\n{lines}", observed.step)
    });
    Ok(format!("ticks of {tick:?}\n{}", steps.collect::<String>()))
}
