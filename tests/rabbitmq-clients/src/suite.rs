//! Runs the scenarios of one language, and counts the results.

use crate::install::Language;
use crate::scene::On;
use crate::stage::Stage;
use anyhow::{Context as _, Result};
use redrive_brokers::report;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

/// Time limit of a whole suite.
const LONGEST: Duration = Duration::from_secs(1800);

/// The environment variable with the names of the only scenarios to run, for a person who looks into one.
const SCENARIO_VARIABLE: &str = "REDRIVE_RABBITMQ_SCENARIO";

/// Runs the scenarios of a language on a broker, and reports the results; or reports that its clients cannot be installed here.
///
/// # Panics
/// When a scenario fails, or fewer than `at_least` are there.
pub async fn must_hold(language: Result<Language>, on: On, at_least: usize) {
    let language = match language {
        Ok(language) => language,
        Err(why) => return report(&format!("NOT RUN: scenarios of other clients on {on}: {why:#}")),
    };
    let chosen = std::env::var(SCENARIO_VARIABLE).unwrap_or_default();
    let chosen: Vec<_> = chosen.split_whitespace().collect();
    let outcome = run(&language, on, &chosen).await.expect("the suite runs");
    let (held, all) = (outcome.held.len(), outcome.held.len() + outcome.failed.len());
    let seconds = outcome.took.as_secs_f64();
    report(&format!("{on} by {}: {held} of {all} scenarios held ({seconds:.1} s)", language.name));
    assert!(outcome.failed.is_empty(), "these scenarios failed: {:?}", outcome.failed);
    assert!(outcome.whole, "the suite broke off");
    assert!(
        held >= at_least || !chosen.is_empty(),
        "only {held} scenarios ran; there are at least {at_least}"
    );
}

async fn run(language: &Language, on: On, chosen: &[&str]) -> Result<Outcome> {
    let began = Instant::now();
    let stage = Stage::open(on).await?;
    let mut child = Command::new(&language.program)
        .arg(&language.suite)
        .args(chosen)
        .env("REDRIVE_STAGE", stage.address().to_string())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("{} cannot be run", language.program.display()))?;
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

/// Results of the scenarios of one language.
#[derive(Debug, Default)]
struct Outcome {
    held: Vec<String>,
    failed: Vec<String>,
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
        for line in
            ["scenario one ... ok (0.1 s)", "AssertionError: scenario", "scenario two ... FAILED (3.0 s)"]
        {
            outcome.read(line);
        }
        assert_eq!((outcome.held, outcome.failed), (vec!["one".to_owned()], vec!["two".to_owned()]));
    }
}
