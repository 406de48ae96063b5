//! The signal that asks a process to end.

/// Resolves when the process is asked to end: by Ctrl-C or SIGTERM (Unix), or by Ctrl-C, Ctrl-Break, or the closing of the
/// console (Windows). Pass it to [`Runner::run_until`](crate::Runner::run_until) or
/// [`Consumers::run_until`](crate::Consumers::run_until); the grace period begins when it resolves.
///
/// From its first poll on, and for the rest of the process, these signals no longer end the process by themselves. A second
/// signal during the grace period ends the process at once, with exit code 130: the operator does not want to wait. The broker
/// then delivers again what was in flight.
///
/// Cancel safe. Any number of callers may wait; each sees the signals that arrive after its first poll.
///
/// # Panics
///
/// Panics outside a tokio runtime, and if the operating system refuses a signal handler.
pub async fn shutdown_signal() {
    let mut signals = Signals::listen();
    signals.next().await;
    tracing::info!("shutdown requested; a second signal ends the process at once");
    tokio::spawn(async move {
        signals.next().await;
        tracing::warn!("second shutdown signal: the process ends now; messages in flight are redelivered");
        std::process::exit(130);
    });
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| signal(kind).expect("the operating system takes a signal handler");
        Self { interrupt: listen(SignalKind::interrupt()), terminate: listen(SignalKind::terminate()) }
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(windows)]
struct Signals {
    interrupt: tokio::signal::windows::CtrlC,
    stop: tokio::signal::windows::CtrlBreak,
    close: tokio::signal::windows::CtrlClose,
    shutdown: tokio::signal::windows::CtrlShutdown,
}

#[cfg(windows)]
impl Signals {
    fn listen() -> Self {
        use tokio::signal::windows::{ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown};
        const TAKEN: &str = "the operating system takes a signal handler";
        Self {
            interrupt: ctrl_c().expect(TAKEN),
            stop: ctrl_break().expect(TAKEN),
            close: ctrl_close().expect(TAKEN),
            shutdown: ctrl_shutdown().expect(TAKEN),
        }
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.stop.recv() => {}
            _ = self.close.recv() => {}
            _ = self.shutdown.recv() => {}
        }
    }
}
