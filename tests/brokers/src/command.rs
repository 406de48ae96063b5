//! Runs a program to its end; errors contain the command and its output.

use anyhow::{Context as _, Result, bail};
use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

/// Pauses before further tries of an operation that needs the network.
const AGAIN: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(10), Duration::from_secs(30)];

/// Options of `apt-get`: gives up a stalled download after a minute and retries it, and reports an update that is incomplete.
pub const APT_DOWNLOADS: [&str; 8] = [
    "-o",
    "Acquire::Retries=5",
    "-o",
    "Acquire::http::Timeout=60",
    "-o",
    "Acquire::https::Timeout=60",
    "-o",
    "APT::Update::Error-Mode=any",
];

/// Runs an operation that needs the network, and retries it, because mirrors and networks fail for moments. Gives up after a minute.
///
/// # Errors
/// That of the last attempt.
pub fn patiently<T>(attempt: impl Fn() -> Result<T>) -> Result<T> {
    for wait in AGAIN {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) => println!("note: tried again in {wait:?}: {error:#}"),
        }
        std::thread::sleep(wait);
    }
    attempt()
}

/// Runs `command` to its end and gives back its standard output.
///
/// # Errors
/// If it cannot be run, or does not succeed; with the last lines of its output.
pub fn run(command: &mut Command) -> Result<String> {
    run_with_input(command, "")
}

/// [`run`] for a command that reads this input: less than a pipe holds.
pub(crate) fn run_with_input(command: &mut Command, input: &str) -> Result<String> {
    let shown = show(command);
    let (read, mut write) = std::io::pipe()?;
    write.write_all(input.as_bytes())?;
    drop(write);
    let output = command.stdin(read).output().with_context(|| format!("could not run `{shown}`"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{shown}` ended with {}: {}", output.status, tail(&format!("{stdout}{stderr}"), 15));
    }
    Ok(stdout)
}

/// Returns the last `lines` lines of `text`, where programs report errors.
#[must_use]
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

fn show(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|part| part.to_string_lossy().lines().next().unwrap_or_default().to_owned())
        .collect::<Vec<_>>()
        .join(" ")
}
