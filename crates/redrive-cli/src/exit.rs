//! Exit codes.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use anyhow::Context as _;

use crate::output::printable;

/// How a command ended. `check` has the codes of Nagios instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Ok,
    /// Failed: nothing was changed, or the error says what was.
    Failed,
    /// Wrong arguments or configuration, or a question that nobody can answer.
    Usage,
    /// A run ended early, or some of its entries are not done.
    Incomplete,
    /// The code of a check: 0 ok, 1 warning, 2 critical, 3 unknown.
    Check(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Ok => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Incomplete => 3,
            Exit::Check(code) => code,
        })
    }
}

/// An error of the user's input, and not of the broker.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for UsageError {}

/// The signals that ask the process to end: Ctrl-C, and SIGTERM, which does not end the first process of a container by itself.
/// From its creation on, they do not end the process by themselves.
pub(crate) struct EndSignals {
    interrupt: Interrupts,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
type Interrupts = tokio::signal::unix::Signal;
#[cfg(windows)]
type Interrupts = tokio::signal::windows::CtrlC;

impl EndSignals {
    pub(crate) fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: interrupts()?,
            #[cfg(unix)]
            terminate: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
                .context("cannot wait for SIGTERM")?,
        })
    }

    /// Waits for the next signal. Cancel safe.
    pub(crate) async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        #[cfg(windows)]
        self.interrupt.recv().await;
    }
}

fn interrupts() -> anyhow::Result<Interrupts> {
    #[cfg(unix)]
    let interrupts = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt());
    #[cfg(windows)]
    let interrupts = tokio::signal::windows::ctrl_c();
    interrupts.context("cannot wait for Ctrl-C")
}

/// Creates a [`UsageError`].
pub(crate) fn usage(text: impl Into<String>) -> anyhow::Error {
    UsageError(text.into()).into()
}

/// Prints an error, and returns its exit code. A check that cannot be made is unknown.
pub(crate) fn exit_code(error: &anyhow::Error, nagios: bool) -> ExitCode {
    let text = chain(error);
    if nagios {
        println!("UNKNOWN - {}", printable(&text).replace('\n', " "));
        return Exit::Check(3).into();
    }
    eprintln!("error: {}", printable(&text));
    if error.is::<UsageError>() { Exit::Usage.into() } else { Exit::Failed.into() }
}

/// Returns the texts of an error and its sources. Many errors repeat their source: nothing is said twice.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for part in error.chain().map(ToString::to_string).filter(|part| !part.is_empty()) {
        if text.is_empty() {
            text = part;
        } else if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_nothing_twice() {
        let error = anyhow::anyhow!("refused").context("cannot connect: refused").context("cannot read");
        assert_eq!(chain(&error), "cannot read: cannot connect: refused");
    }
}
