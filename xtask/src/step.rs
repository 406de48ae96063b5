//! One command of a run: announced, shown live, timed.

use anyhow::{Context as _, Result};
use std::io::{ErrorKind, IsTerminal as _, Read as _, Write as _};
use std::process::Command;
use std::time::{Duration, Instant};

/// What came of one command.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) passed: bool,
    pub(crate) took: Duration,
}

/// Runs `cargo` with `arguments`; shows its output live and gives it to `observe`.
pub(crate) fn cargo(
    arguments: &[&str],
    environment: &[(String, Option<String>)],
    mut observe: impl FnMut(&str),
) -> Result<Step> {
    let name = format!("cargo {}", arguments.join(" "));
    println!("==> {name}");
    let began = Instant::now();

    // One pipe for both streams: cargo names a test binary on stderr, the binary names its tests on stdout,
    // and only their order tells which belongs to which.
    let (mut output, input) = std::io::pipe()?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).stdout(input.try_clone()?).stderr(input);
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
    // It holds the writing ends of the pipe; the output would never end.
    drop(command);

    let mut piece = [0; 8192];
    let mut line = Vec::new();
    loop {
        let length = match output.read(&mut piece) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read?,
        };
        std::io::stdout().write_all(&piece[..length])?;
        std::io::stdout().flush()?;
        for &byte in &piece[..length] {
            if byte == b'\n' {
                observe(&String::from_utf8_lossy(&line));
                line.clear();
            } else {
                line.push(byte);
            }
        }
        if length == 0 {
            break;
        }
    }
    if !line.is_empty() {
        observe(&String::from_utf8_lossy(&line));
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
