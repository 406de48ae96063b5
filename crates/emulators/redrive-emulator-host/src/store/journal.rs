//! The thread that writes the state file, and how callers wait for it.
//!
//! If the file cannot be written, for example on a full disk, the thread retries until it can. Meanwhile no client gets a response for
//! a change that is not on disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::StoreError;

/// Wait before writing is retried.
const RETRY: Duration = Duration::from_secs(1);

/// Error after the file was closed.
const CLOSED: &str = "the state file is closed";

/// Identifies all changes that were queued until now.
pub type Ticket = u64;

/// Queues changes for the thread that writes them. Changes that are queued during a write go to disk together after it: one
/// fsync for all waiting clients.
#[derive(Debug)]
pub struct Journal<C> {
    state: Mutex<State<C>>,
    progress: watch::Receiver<Progress>,
    /// Notified when writing works again.
    recovered: Arc<Notify>,
    abandoned: Arc<AtomicBool>,
}

/// Progress of writing.
#[derive(Debug, Clone, Default)]
struct Progress {
    /// All changes up to this ticket are on disk.
    done: Ticket,
    /// Number of times that writing began to fail.
    outages: u64,
    /// Why writing fails now.
    failing: Option<Arc<str>>,
}

#[derive(Debug)]
struct State<C> {
    handed_in: Ticket,
    /// `None` once it is stopped.
    sender: Option<Sender<(Ticket, Vec<C>)>>,
    thread: Option<JoinHandle<()>>,
}

impl<C> Journal<C> {
    /// Starts the thread that writes to the file: `write` writes all of these changes, or none, and is called again after an error.
    ///
    /// # Errors
    /// If the system refuses another thread.
    pub fn start(write: impl FnMut(&[C]) -> Result<(), StoreError> + Send + 'static) -> std::io::Result<Self>
    where
        C: Send + 'static,
    {
        let (sender, receiver) = channel();
        let (told, progress) = watch::channel(Progress::default());
        let (recovered, abandoned) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let writer = Writer {
            write,
            receiver,
            progress: told,
            recovered: Arc::clone(&recovered),
            abandoned: Arc::clone(&abandoned),
        };
        let thread = std::thread::Builder::new().name("state file".into());
        let thread = thread.spawn(move || writer.run())?;
        let state = State { handed_in: 0, sender: Some(sender), thread: Some(thread) };
        Ok(Self { state: Mutex::new(state), progress, recovered, abandoned })
    }

    /// Queues changes, in the order of the calls.
    pub fn hand_in(&self, changes: Vec<C>) {
        if changes.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        state.handed_in += 1;
        let ticket = state.handed_in;
        if let Some(sender) = &state.sender {
            // If the thread has ended, callers that wait for the ticket get the reason.
            let _ = sender.send((ticket, changes));
        }
    }

    /// Returns the ticket of the latest changes.
    pub fn ticket(&self) -> Ticket {
        self.state.lock().handed_in
    }

    /// Waits until everything up to the ticket is on disk. Cancel safe.
    ///
    /// # Errors
    /// If it cannot be written now; the text is the reason.
    pub async fn written(&self, ticket: Ticket) -> Result<(), String> {
        self.written_since(ticket, 0).await
    }

    /// As [`written`](Self::written), for a client that began after this many `outages`: during an outage it has changed nothing yet, and
    /// need not wait for its end. Cancel safe.
    ///
    /// # Errors
    /// As [`written`](Self::written).
    pub async fn written_since(&self, ticket: Ticket, outages: u64) -> Result<(), String> {
        let mut progress = self.progress.clone();
        let told = progress.wait_for(|now| now.done >= ticket || now.failing.is_some()).await;
        match told.as_deref() {
            Ok(Progress { done, .. }) if *done >= ticket => Ok(()),
            Ok(now) if now.outages == outages => Ok(()),
            Ok(now) => Err(now.failing.as_deref().unwrap_or_default().to_owned()),
            Err(_) => Err(CLOSED.to_owned()),
        }
    }

    /// Returns how often writing began to fail until now.
    pub fn outages(&self) -> u64 {
        self.progress.borrow().outages
    }

    /// Returns why writing fails now, if it does.
    pub fn failing(&self) -> Option<String> {
        if self.progress.has_changed().is_err() {
            return Some(CLOSED.to_owned());
        }
        self.progress.borrow().failing.as_deref().map(str::to_owned)
    }

    /// Resolves once each time that writing works again. Cancel safe.
    pub async fn recovered(&self) {
        self.recovered.notified().await;
    }

    /// Closes the file without the queued changes, as if the process were killed. Blocks until it is closed.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
        self.close();
    }

    /// Writes the queued changes, and closes the file. Blocks until it is closed.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.sender = None;
        if let Some(thread) = state.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes the state file panicked");
        }
    }
}

impl<C> Drop for Journal<C> {
    fn drop(&mut self) {
        self.close();
    }
}

/// State of the thread.
struct Writer<C, W> {
    write: W,
    receiver: Receiver<(Ticket, Vec<C>)>,
    progress: watch::Sender<Progress>,
    recovered: Arc<Notify>,
    abandoned: Arc<AtomicBool>,
}

impl<C, W: FnMut(&[C]) -> Result<(), StoreError>> Writer<C, W> {
    fn run(mut self) {
        while let Ok((mut ticket, mut changes)) = self.receiver.recv() {
            for (next, more) in self.receiver.try_iter() {
                ticket = next;
                changes.extend(more);
            }
            if !self.write_all(ticket, changes) {
                return;
            }
        }
    }

    /// Writes the changes up to the ticket, and retries until it succeeds. Returns false if the file is closed.
    fn write_all(&mut self, mut ticket: Ticket, mut changes: Vec<C>) -> bool {
        let mut closed = false;
        loop {
            if self.abandoned.load(Ordering::Relaxed) {
                return false;
            }
            match (self.write)(&changes) {
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
            self.recovered.notify_one();
        }
    }

    fn failed(&self, error: &str) {
        self.progress.send_if_modified(|progress| {
            if progress.failing.is_some() {
                return false;
            }
            tracing::error!(error, "the state file cannot be written: clients are refused, or their connections closed, until it can");
            progress.outages += 1;
            progress.failing = Some(error.into());
            true
        });
    }

    /// Collects queued changes until the next try. Returns false if no more will come.
    fn pause(&self, ticket: &mut Ticket, changes: &mut Vec<C>) -> bool {
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
