//! Running a program to its end, with errors that say what was run and what it said.

use anyhow::{Context as _, Result, bail};
use std::process::{Command, Stdio};

/// Runs `command` to its end and gives back its standard output.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("could not run `{shown}`"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{shown}` ended with {}: {}", output.status, tail(&format!("{stdout}{stderr}"), 15));
    }
    Ok(stdout)
}

/// The last `lines` lines of `text`: where programs say what went wrong.
pub(crate) fn tail(text: &str, lines: usize) -> String {
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
