//! `cargo xtask soak`: random faults for a given time, then the balance.

use crate::step;
use anyhow::Result;
use redrive_brokers::{Version, install};
use std::process::ExitCode;

/// Soaks one broker after the other.
pub(crate) fn run(versions: &[Version], minutes: u64, seed: Option<u64>) -> Result<ExitCode> {
    let mut environment = vec![("REDRIVE_SOAK_MINUTES".to_owned(), Some(minutes.to_string()))];
    if let Some(seed) = seed {
        environment.push(("REDRIVE_SOAK_SEED".to_owned(), Some(seed.to_string())));
    }
    let mut passed = true;
    for &version in versions {
        install::install(version)?;
        let test = format!("{}::", version.mark());
        let arguments =
            ["test", "--package", "redrive-system-tests", "--test", "soak", "--", "--nocapture", &test];
        passed &= step::cargo(&arguments, &environment, |_| {})?.passed;
    }
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
