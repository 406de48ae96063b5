//! Runs the scenarios of one client, and counts the results.

use crate::install::Client;
use crate::stage::{Broker, Stage};
use anyhow::{Context as _, Result};
use redrive_brokers::report;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

/// Time limit of a whole suite.
const LONGEST: Duration = Duration::from_secs(1800);

/// Environment variable that requests everything: a client that cannot run is then a failure.
const ALL_VARIABLE: &str = "REDRIVE_SERVICEBUS_SDKS";

/// The environment variable with the names of the only scenarios to run, for a person who looks into one.
const SCENARIO_VARIABLE: &str = "REDRIVE_SCENARIO";

/// Everything was asked for, by `cargo xtask test --servicebus-sdks`.
#[must_use]
pub fn all_is_asked_for() -> bool {
    std::env::var_os(ALL_VARIABLE).is_some()
}

/// The only scenarios to run, if somebody said so.
#[must_use]
pub fn chosen() -> Vec<String> {
    let names = std::env::var(SCENARIO_VARIABLE).unwrap_or_default();
    names.split_whitespace().map(str::to_owned).collect()
}

/// Reports that a client did not run, and why.
///
/// # Panics
/// When everything was asked for.
pub fn not_run(broker: impl Broker, client: &str, why: &str) {
    assert!(!all_is_asked_for(), "{client} cannot run: {why}");
    report(&format!("NOT RUN: {broker} by {client}: {why}"));
}

/// Runs the scenarios of `client` on `broker`, and reports the results.
///
/// # Panics
/// When one of them fails, or fewer than `at_least` are there.
pub async fn must_hold(broker: impl Broker, client: &Client, arguments: &[&str], at_least: usize) {
    let chosen = chosen();
    let mut words = arguments.to_vec();
    words.extend(chosen.iter().map(String::as_str));
    let outcome = run(broker, client, &words).await.expect("the suite runs");
    let (held, all) = (outcome.held.len(), outcome.held.len() + outcome.failed.len());
    let seconds = outcome.took.as_secs_f64();
    report(&format!("{broker} by {}: {held} of {all} scenarios held ({seconds:.1} s)", client.name));
    for scenario in &outcome.not_run {
        report(&format!("NOT RUN: {}: {scenario}", client.name));
    }
    assert!(outcome.failed.is_empty(), "these scenarios failed: {:?}", outcome.failed);
    assert!(outcome.whole, "the suite broke off");
    assert!(
        held >= at_least || !chosen.is_empty(),
        "only {held} scenarios ran; there are at least {at_least}"
    );
}

/// Runs the scenarios of `client` with `arguments`, and shows what they print.
async fn run(broker: impl Broker, client: &Client, arguments: &[&str]) -> Result<Outcome> {
    let began = Instant::now();
    let stage = Stage::open(broker).await?;
    let mut child = Command::new(&client.program)
        .args(&client.suite)
        .args(arguments)
        .env("REDRIVE_STAGE", stage.address().to_string())
        .env("REDRIVE_SERVICEBUS_CLIENT", &client.package)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("{} cannot be run", client.program.display()))?;
    let mut lines = BufReader::new(child.stdout.take().context("it has no output")?).lines();
    let mut outcome = Outcome::default();
    let reading = async {
        while let Some(line) = lines.next_line().await? {
            println!("{line}");
            outcome.read(&line);
            outcome.whole |= line.starts_with("suite result: ");
        }
        child.wait().await
    };
    let status = tokio::time::timeout(LONGEST, reading).await.context("the suite does not end")??;
    outcome.whole &= status.success() == outcome.failed.is_empty();
    outcome.took = began.elapsed();
    Ok(outcome)
}

/// Results of the scenarios of one client.
#[derive(Debug, Default)]
struct Outcome {
    held: Vec<String>,
    failed: Vec<String>,
    /// What this version of the client cannot do, and why.
    not_run: Vec<String>,
    /// The suite said its last line, and ended as that line says.
    whole: bool,
    took: Duration,
}

impl Outcome {
    /// Takes one line of what a suite prints: `scenario NAME ... ok (1.2 s)`.
    fn read(&mut self, line: &str) {
        let Some((name, rest)) = line.strip_prefix("scenario ").and_then(|rest| rest.split_once(" ... "))
        else {
            return;
        };
        if let Some(why) = rest.strip_prefix("not run: ") {
            return self.not_run.push(format!("{name}: {why}"));
        }
        let held = rest.starts_with("ok ");
        if held { &mut self.held } else { &mut self.failed }.push(name.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_are_counted_by_what_came_of_them() {
        let mut outcome = Outcome::default();
        for line in [
            "scenario one ... ok (0.1 s)",
            "--- two",
            "AssertionError: scenario",
            "scenario two ... FAILED (30.0 s)",
            "scenario three ... ok (0.1 s)",
            "scenario four ... not run: before 7.14 it speaks no WebSockets without TLS",
            "suite result: 2 ok, 1 failed",
        ] {
            outcome.read(line);
        }
        assert_eq!(outcome.held, ["one", "three"]);
        assert_eq!(outcome.failed, ["two"]);
        assert_eq!(outcome.not_run, ["four: before 7.14 it speaks no WebSockets without TLS"]);
    }
}
