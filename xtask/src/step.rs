//! One command of a run: announced, shown live, timed.

use anyhow::{Context as _, Result};
use std::io::{BufRead as _, BufReader, IsTerminal as _};
use std::process::Command;
use std::time::{Duration, Instant};

/// Result of one command.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) passed: bool,
    pub(crate) took: Duration,
}

/// Runs `cargo` with `arguments`; shows its output live and passes it to `observe`.
pub(crate) fn cargo(
    arguments: &[&str],
    environment: &[(String, Option<String>)],
    mut observe: impl FnMut(&str),
) -> Result<Step> {
    let name = format!("cargo {}", arguments.join(" "));
    println!("==> {name}");
    let began = Instant::now();

    // One pipe for both streams: cargo names a test binary on stderr, the binary names its tests on stdout, and only their order
    // shows which belongs to which.
    let (output, input) = std::io::pipe()?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).stdout(input.try_clone()?).stderr(input);
    // Variables that `cargo run` sets for this program. Build scripts that read them would run again, with everything after them.
    for (variable, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|of_us| variable.to_string_lossy().starts_with(of_us))
        {
            command.env_remove(variable);
        }
    }
    for (variable, value) in environment {
        match value {
            Some(value) => command.env(variable, value),
            None => command.env_remove(variable),
        };
    }
    if std::io::stdout().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let mut child = command.spawn().with_context(|| format!("could not run `{name}`"))?;
    // The command holds the writing ends of the pipe: otherwise the output would never end.
    drop(command);

    for line in BufReader::new(output).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        // Cargo's JSON messages are not for people.
        if !line.starts_with('{') {
            println!("{line}");
        }
        observe(&line);
    }

    let step = Step { name, passed: child.wait()?.success(), took: began.elapsed() };
    println!("<== {step}");
    Ok(step)
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let result = if self.passed { "ok" } else { "FAILED" };
        write!(f, "{result}: {} ({:.1} s)", self.name, self.took.as_secs_f64())
    }
}
