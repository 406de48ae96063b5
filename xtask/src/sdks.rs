//! `cargo xtask test --servicebus-sdks`: the Service Bus emulator with clients of other projects.

use crate::closing::Closing;
use crate::step;
use crate::tally::{Tally, Tested};
use anyhow::Result;
use redrive_brokers::{REPORT_VARIABLE, Version};
use std::process::ExitCode;
use std::time::Instant;

/// If set, a client that cannot be installed is a failure, and slow scenarios run too.
const ALL_VARIABLE: &str = "REDRIVE_SERVICEBUS_SDKS";

/// The Rust client's scenarios are tests of the emulator's crate.
const RUST: &[&str] = &["test", "-p", "redrive-servicebus-emulator", "--test", "fe2o3"];

/// Python and JavaScript.
const OTHERS: &[&str] = &["test", "-p", "redrive-clients", "--test", "servicebus"];

/// Installs the clients and runs every scenario of each.
pub(crate) fn run() -> Result<ExitCode> {
    let began = Instant::now();
    let report = std::env::temp_dir().join(format!("redrive-report-{}", std::process::id()));
    std::fs::write(&report, "")?;
    let environment = [
        (REPORT_VARIABLE.to_owned(), Some(report.display().to_string())),
        (ALL_VARIABLE.to_owned(), Some("all".to_owned())),
    ];
    let mut tally = Tally::default();
    let rust = step::cargo(RUST, &environment, |line| tally.read(line))?;
    let counts = tally.total();
    let others = step::cargo(OTHERS, &environment, |line| tally.read(line))?;

    let mut reported = vec![format!(
        "Service Bus emulator by Rust fe2o3-amqp: {} of {} scenarios held ({:.1} s, with compiling)",
        counts.passed,
        counts.passed + counts.failed,
        rust.took.as_secs_f64()
    )];
    reported.extend(std::fs::read_to_string(&report)?.lines().map(str::to_owned));
    std::fs::remove_file(&report)?;
    let mut closing = Closing::default();
    for step in [rust, others] {
        // Failed tests are listed by name.
        if tally.failed.is_empty() { closing.take(step) } else { closing.steps.push(step) }
    }
    closing.take_tests(Tested { tally, servers: Vec::new(), reported, took: began.elapsed() }, &Version::ALL);
    Ok(closing.print(began.elapsed()))
}
