//! Parts of the programs' `main`.

use std::io::{self, Write as _};
use std::net::SocketAddr;

use tracing_subscriber::EnvFilter;

/// Logs to stderr what `RUST_LOG` says; by default warnings and errors.
pub fn log_to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
}

/// Prints the addresses, those for HTTP first. Flushes: a parent process waits for these lines, and stdout may be a pipe.
///
/// # Errors
/// Those of stdout.
pub fn announce(http: &[SocketAddr], main: &[SocketAddr]) -> io::Result<()> {
    let mut out = io::stdout();
    for address in http {
        writeln!(out, "listening for HTTP on {address}")?;
    }
    for address in main {
        writeln!(out, "listening on {address}")?;
    }
    out.flush()
}

/// Resolves on Ctrl-C, or on SIGTERM, which Docker, systemd and CI send. Installs the signal handlers at the call: call it before
/// [`announce`].
///
/// # Errors
/// If the system refuses the signal handlers.
#[cfg(unix)]
pub fn told_to_end() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Resolves on Ctrl-C or Ctrl-Break. Installs the signal handlers at the call: call it before [`announce`].
///
/// # Errors
/// If the system refuses the signal handlers.
#[cfg(windows)]
pub fn told_to_end() -> io::Result<impl Future<Output = ()>> {
    let (mut pressed, mut shutdown) =
        (tokio::signal::windows::ctrl_c()?, tokio::signal::windows::ctrl_break()?);
    Ok(async move {
        tokio::select! {
            _ = pressed.recv() => {}
            _ = shutdown.recv() => {}
        }
    })
}
