//! How a command ends: exit codes, and the signals that ask for it.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;
use std::sync::LazyLock;

use anyhow::Context as _;
use tokio::sync::watch;

use crate::output::{note, printable};
use crate::secret::may_hold_secret;

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

/// The signals that ask the process to end, for a command that ends in its own way: as long as this exists, they do nothing else.
pub(crate) struct EndSignals {
    claims: watch::Receiver<Claims>,
    /// The signals that were heard.
    heard: u64,
}

/// Decides who hears a signal.
#[derive(Debug, Default)]
struct Claims {
    /// Commands that end in their own way.
    commands: usize,
    /// Signals for them, since the process began.
    signals: u64,
}

static CLAIMS: LazyLock<watch::Sender<Claims>> = LazyLock::new(watch::Sender::default);

impl EndSignals {
    pub(crate) fn claim() -> Self {
        let mut heard = 0;
        // Together: a signal in between would be nobody's.
        CLAIMS.send_modify(|claims| {
            claims.commands += 1;
            heard = claims.signals;
        });
        Self { claims: CLAIMS.subscribe(), heard }
    }

    /// Waits for the next signal. Cancel safe.
    pub(crate) async fn next(&mut self) {
        let heard = self.heard;
        // Its sender lives as long as the process.
        let _ = self.claims.wait_for(|claims| claims.signals > heard).await;
        self.heard += 1;
    }
}

impl Drop for EndSignals {
    fn drop(&mut self) {
        CLAIMS.send_modify(|claims| claims.commands -= 1);
    }
}

/// Hands a signal to the command that listens to [`EndSignals`]. Returns false if there is none.
pub(crate) fn hand_on_signal() -> bool {
    CLAIMS.send_if_modified(|claims| {
        let is_claimed = claims.commands > 0;
        claims.signals += u64::from(is_claimed);
        is_claimed
    })
}

/// Ctrl-C; SIGTERM, which does not end the first process of a container by itself; and SIGHUP, unless it was ignored when the process began
/// (`nohup`). From its creation on, they do not end the process by themselves.
pub(crate) struct Signals {
    interrupt: Interrupts,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    hang_up: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
type Interrupts = tokio::signal::unix::Signal;
#[cfg(windows)]
type Interrupts = tokio::signal::windows::CtrlC;

impl Signals {
    #[cfg(unix)]
    pub(crate) fn listen() -> anyhow::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let hang_up = (!ignores_hang_up()).then(|| signal(SignalKind::hangup()));
        Ok(Self {
            interrupt: interrupts()?,
            terminate: signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?,
            hang_up: hang_up.transpose().context("cannot wait for SIGHUP")?,
        })
    }

    #[cfg(windows)]
    pub(crate) fn listen() -> anyhow::Result<Self> {
        Ok(Self { interrupt: interrupts()? })
    }

    /// Waits for the next signal. Cancel safe.
    pub(crate) async fn next(&mut self) {
        #[cfg(unix)]
        {
            let hang_up = async {
                match &mut self.hang_up {
                    Some(hang_up) => drop(hang_up.recv().await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
                () = hang_up => {}
            }
        }
        #[cfg(windows)]
        self.interrupt.recv().await;
    }
}

/// Returns true if the process began with SIGHUP ignored. A handler of ours would change that.
#[cfg(unix)]
fn ignores_hang_up() -> bool {
    // Asked before the first handler: later the answer would be that of the handler.
    static IGNORED: LazyLock<bool> = LazyLock::new(|| {
        std::fs::read_to_string("/proc/self/status").is_ok_and(|status| is_hang_up_ignored(&status))
    });
    *IGNORED
}

/// Reads the status of a process as Linux tells it: SIGHUP is signal 1.
#[cfg(unix)]
fn is_hang_up_ignored(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 != 0)
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
    let text = without_addresses(chain(error), std::env::args_os().skip(1));
    if nagios {
        let line = format!("UNKNOWN - {}", printable(&text).replace('\n', " "));
        crate::output::print(&line);
        return Exit::Check(3).into();
    }
    note!("error: {}", printable(&text));
    if error.is::<UsageError>() { Exit::Usage.into() } else { Exit::Failed.into() }
}

/// Replaces arguments that may hold a password: one that stands at the place of a name or a file is repeated by who looked for it.
fn without_addresses(text: String, arguments: impl Iterator<Item = std::ffi::OsString>) -> String {
    let addresses = arguments.map(|argument| argument.to_string_lossy().into_owned());
    addresses.filter(|argument| may_hold_secret(argument)).fold(text, |text, argument| {
        let value = argument.split_once('=').filter(|(name, _)| name.starts_with("--"));
        text.replace(value.map_or(&*argument, |(_, value)| value), "(an address that is not shown)")
    })
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

    #[cfg(unix)]
    #[test]
    fn a_process_that_nohup_began_is_not_ended_by_its_terminal() {
        assert!(is_hang_up_ignored("Name:\tredrive\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"));
        assert!(!is_hang_up_ignored("SigIgn:\t0000000000001000\n"));
        assert!(!is_hang_up_ignored("") && !is_hang_up_ignored("SigIgn:\tx\n"));
    }

    #[test]
    fn an_address_at_the_place_of_a_name_is_not_repeated() {
        let arguments =
            ["shelves", "amqp://ops:hunter2@host", "--state=sb://a;SharedAccessKey=hunter2", "a:b@c"];
        let text = "no queue `amqp://ops:hunter2@host`, no folder sb://a;SharedAccessKey=hunter2, no a:b@c";
        assert_eq!(
            without_addresses(text.into(), arguments.into_iter().map(Into::into)),
            "no queue `(an address that is not shown)`, no folder (an address that is not shown), no a:b@c"
        );
    }

    #[test]
    fn an_error_says_nothing_twice() {
        let error = anyhow::anyhow!("refused").context("cannot connect: refused").context("cannot read");
        assert_eq!(chain(&error), "cannot read: cannot connect: refused");
    }
}
