//! The end of a command by a signal in the middle of a look: RabbitMQ counts a delivery for everything that a process holds when it dies.

use std::process::exit;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use parking_lot::Mutex;
use redrive::Shelves;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::exit::{Exit, Signals, hand_on_signal};
use crate::output::note;

/// The exit code of a command that a signal ended.
pub(crate) const INTERRUPTED: i32 = 130;
/// After this time somebody who pressed Ctrl-C is told what is waited for.
const TOLD_AFTER: Duration = Duration::from_millis(300);
/// A broker that does not answer keeps a process no longer.
const AT_MOST: Duration = Duration::from_secs(30);

/// The shelves that the command reads.
static READ: Mutex<Vec<Arc<dyn Shelves>>> = Mutex::new(Vec::new());

/// Notes shelves that the command may read.
pub(crate) fn note_shelves(shelves: &Arc<dyn Shelves>) {
    READ.lock().push(Arc::clone(shelves));
}

/// Waits until the brokers have back whatever was held.
async fn given_back() {
    let shelves = READ.lock().clone();
    for shelves in shelves {
        shelves.given_back().await;
    }
}

/// Runs a command. If a signal ends it, and also if it fails or runs out of time, everything that it holds is given back first.
///
/// # Errors
///
/// That of the command, or that the process cannot wait for signals.
pub(crate) async fn uninterrupted(command: impl Future<Output = Result<Exit>>) -> Result<Exit> {
    let interrupted = Arc::new(Notify::new());
    tokio::spawn(end_on_signal(Signals::listen()?, Arc::clone(&interrupted)));
    let ended = tokio::select! {
        ended = command => ended,
        // The command is dropped, and gives back what it held. The other task ends the process then.
        () = interrupted.notified() => std::future::pending().await,
    };
    let _ = timeout(AT_MOST, given_back()).await;
    ended
}

/// Ends the process, also while the command waits for an answer from the terminal.
async fn end_on_signal(mut signals: Signals, interrupted: Arc<Notify>) {
    loop {
        signals.next().await;
        // A run, a page and an exporter end in their own way.
        if !hand_on_signal() {
            break;
        }
    }
    interrupted.notify_one();
    if timeout(TOLD_AFTER, given_back()).await.is_err() {
        note!(
            "giving back the messages that were read. Ctrl-C again ends at once; RabbitMQ then counts a delivery for each message still held"
        );
        tokio::select! {
            _ = timeout(AT_MOST, given_back()) => {}
            () = signals.next() => {}
        }
    }
    exit(INTERRUPTED);
}
