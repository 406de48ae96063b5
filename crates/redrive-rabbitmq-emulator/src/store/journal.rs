//! The thread that writes the state file, and how callers wait for it.
//!
//! If the file cannot be written, for example on a full disk, the thread retries until it can. Meanwhile no client
//! gets a response for a change that is not on disk: its connection is closed with the reason.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::Store;
use crate::broker::Change;

/// Wait before writing is retried.
const RETRY: Duration = Duration::from_secs(1);

/// Error after the file was closed.
const CLOSED: &str = "the state file is closed";

/// Identifies all changes that were queued until now.
pub(crate) type Ticket = u64;

/// Queues changes for the thread that writes them. Changes that are queued during a write go to disk together after it: one
/// fsync for all waiting clients.
#[derive(Debug)]
pub(crate) struct Journal {
    state: Mutex<State>,
    progress: watch::Receiver<Progress>,
    abandoned: Arc<AtomicBool>,
}

/// Progress of writing.
#[derive(Debug, Clone, Default)]
struct Progress {
    /// All changes up to this ticket are on disk.
    done: Ticket,
    /// Why writing fails now.
    failing: Option<Arc<str>>,
}

#[derive(Debug)]
struct State {
    handed_in: Ticket,
    /// `None` once it is stopped.
    sender: Option<Sender<(Ticket, Vec<Change>)>>,
    thread: Option<JoinHandle<()>>,
}

impl Journal {
    /// Starts the thread that writes to the file.
    ///
    /// # Errors
    /// If the system refuses another thread.
    pub(crate) fn start(store: Store) -> std::io::Result<Self> {
        let (sender, receiver) = channel();
        let (told, progress) = watch::channel(Progress::default());
        let abandoned = Arc::new(AtomicBool::new(false));
        let writer = Writer { store, receiver, progress: told, abandoned: Arc::clone(&abandoned) };
        let thread = std::thread::Builder::new().name("state file".into());
        let thread = thread.spawn(move || writer.run())?;
        let state = State { handed_in: 0, sender: Some(sender), thread: Some(thread) };
        Ok(Self { state: Mutex::new(state), progress, abandoned })
    }

    /// Queues changes, in the order of the calls.
    pub(crate) fn hand_in(&self, changes: Vec<Change>) {
        if changes.is_empty() {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.handed_in += 1;
        let ticket = state.handed_in;
        if let Some(sender) = &state.sender {
            // If the thread has ended, callers that wait for the ticket get the reason.
            let _ = sender.send((ticket, changes));
        }
    }

    /// Returns the ticket of the latest changes.
    pub(crate) fn ticket(&self) -> Ticket {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).handed_in
    }

    /// Waits until everything up to the ticket is on disk. Cancel safe.
    ///
    /// # Errors
    /// If it cannot be written now; the text is the reason.
    pub(crate) async fn written(&self, ticket: Ticket) -> Result<(), String> {
        let mut progress = self.progress.clone();
        let told = progress.wait_for(|now| now.done >= ticket || now.failing.is_some()).await;
        match told.as_deref() {
            Ok(Progress { done, .. }) if *done >= ticket => Ok(()),
            Ok(now) => Err(now.failing.as_deref().unwrap_or_default().to_owned()),
            Err(_) => Err(CLOSED.to_owned()),
        }
    }

    /// Closes the file without the queued changes, as if the process were killed. Blocks until it is closed.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
        self.close();
    }

    /// Writes the queued changes, and closes the file. Blocks until it is closed.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.sender = None;
        if let Some(thread) = state.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes the state file panicked");
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.close();
    }
}

/// State of the thread.
struct Writer {
    store: Store,
    receiver: Receiver<(Ticket, Vec<Change>)>,
    progress: watch::Sender<Progress>,
    abandoned: Arc<AtomicBool>,
}

impl Writer {
    fn run(mut self) {
        while let Ok((mut ticket, mut changes)) = self.receiver.recv() {
            for (next, more) in self.receiver.try_iter() {
                ticket = next;
                changes.extend(more);
            }
            if !self.write(ticket, changes) {
                return;
            }
        }
    }

    /// Writes the changes up to the ticket, and retries until it succeeds. Returns false if the file is closed.
    fn write(&mut self, mut ticket: Ticket, mut changes: Vec<Change>) -> bool {
        let mut closed = false;
        loop {
            if self.abandoned.load(Ordering::Relaxed) {
                return false;
            }
            match self.store.write(&changes) {
                Ok(()) => {
                    self.wrote(ticket);
                    return !closed;
                }
                Err(error) if closed => {
                    tracing::error!(%error, changes = changes.len(), "closed without what could not be written");
                    return false;
                }
                Err(error) => self.failed(&error.to_string()),
            }
            closed = !self.pause(&mut ticket, &mut changes);
        }
    }

    fn wrote(&self, ticket: Ticket) {
        let mut recovered = false;
        self.progress.send_modify(|progress| {
            progress.done = ticket;
            recovered = progress.failing.take().is_some();
        });
        if recovered {
            tracing::warn!("the state file can be written again");
        }
    }

    fn failed(&self, error: &str) {
        self.progress.send_if_modified(|progress| {
            if progress.failing.is_some() {
                return false;
            }
            tracing::error!(error, "the state file cannot be written: connections are closed until it can");
            progress.failing = Some(error.into());
            true
        });
    }

    /// Collects queued changes until the next try. Returns false if no more will come.
    fn pause(&self, ticket: &mut Ticket, changes: &mut Vec<Change>) -> bool {
        let end = Instant::now() + RETRY;
        loop {
            match self.receiver.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok((next, more)) => {
                    *ticket = next;
                    changes.extend(more);
                }
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
    }
}
