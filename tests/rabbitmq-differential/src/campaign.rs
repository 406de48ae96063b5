//! Many scenarios at once, each on two sides.

use crate::generate::{self, Combination};
use crate::observation::{Observed, difference};
use crate::run::{Outcome, run};
use crate::scenario::{Kind, Scenario};
use crate::target::Target;
use anyhow::{Context as _, Result, bail};
use redrive_brokers::Version;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;

/// How long a tick is at first; a run that was late is tried again with the next.
const TICKS: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(12), Duration::from_secs(30)];

/// How often a difference must be seen before it counts.
const TIMES: usize = 3;

/// A broker that scenarios run on.
pub trait Side: fmt::Debug + Send + Sync {
    /// A target for one run.
    ///
    /// # Errors
    /// If it cannot be reached or started.
    fn target(&self) -> Result<Target>;
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
    fn target(&self) -> Result<Target> {
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
    fn target(&self) -> Result<Target> {
        Target::emulated(self.version, self.runtime.handle())
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
        let seen = match on(scenario, sides[1], tick)? {
            // The other side is real, too, and had less luck.
            outcome if outcome.late => in_time(scenario, sides[1])?.1,
            outcome => outcome,
        };
        match difference(&expected.observed, &seen.observed) {
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
    let outcome = on(&recording.scenario, side, Duration::from_millis(recording.tick))?;
    Ok(difference(&recording.observed, &outcome.observed))
}

/// Runs a scenario with ticks long enough that no step was late.
fn in_time(scenario: &Scenario, side: &dyn Side) -> Result<(Duration, Outcome)> {
    // A machine that was too slow for a tick is likely to be so for the next scenario.
    static FIRST: AtomicUsize = AtomicUsize::new(0);
    // Looking at a quorum queue until it is quiet takes longer than the shortest tick allows.
    let least = usize::from(scenario.queues.iter().any(|queue| queue.kind == Kind::Quorum));
    for (place, &tick) in TICKS.iter().enumerate().skip(FIRST.load(Ordering::Relaxed).max(least)) {
        let outcome = on(scenario, side, tick)?;
        if !outcome.late {
            return Ok((tick, outcome));
        }
        if place + 2 < TICKS.len() {
            FIRST.store(place + 1, Ordering::Relaxed);
        }
    }
    bail!("the machine is too slow: steps took more than a tenth of {:?}", TICKS[TICKS.len() - 1])
}

fn on(scenario: &Scenario, side: &dyn Side, tick: Duration) -> Result<Outcome> {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    // Always of the same length: names count where lengths do.
    let prefix = format!("d{:07}x{:06}.", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
    run(scenario, side.target()?, &prefix, tick).with_context(|| format!("on {side:?}"))
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
