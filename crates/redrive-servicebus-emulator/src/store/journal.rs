//! The thread that writes the state file, and how others wait for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::watch;

use super::{Store, StoreError};
use crate::broker::Change;

/// Names the changes that were handed in until now.
pub(crate) type Ticket = u64;

/// Hands changes to the thread that writes them. What is handed in while it writes goes to disk together after that: one
/// fsync for all clients that wait, however many they are.
#[derive(Debug)]
pub(crate) struct Journal {
    state: Mutex<State>,
    written: watch::Receiver<Result<Ticket, String>>,
    abandoned: Arc<AtomicBool>,
}

#[derive(Debug)]
struct State {
    handed_in: Ticket,
    /// `None` once it is stopped.
    sender: Option<Sender<(Ticket, Vec<Change>)>>,
    thread: Option<JoinHandle<()>>,
}

impl Journal {
    /// Begins to write to the file.
    ///
    /// # Errors
    /// The system has no more threads.
    pub(crate) fn start(store: Store) -> std::io::Result<Self> {
        let (sender, receiver) = channel();
        let (done, written) = watch::channel(Ok(0));
        let thread = std::thread::Builder::new().name("state file".into());
        let abandoned = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&abandoned);
        let thread = thread.spawn(move || write_all(store, &receiver, &done, &stop))?;
        let state = State { handed_in: 0, sender: Some(sender), thread: Some(thread) };
        Ok(Self { state: Mutex::new(state), written, abandoned })
    }

    /// Takes changes to be written, in the order of the calls.
    pub(crate) fn hand_in(&self, changes: Vec<Change>) {
        if changes.is_empty() {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.handed_in += 1;
        let ticket = state.handed_in;
        if let Some(sender) = &state.sender {
            // A thread that ended said why, to those who wait.
            let _ = sender.send((ticket, changes));
        }
    }

    /// What was handed in until now.
    pub(crate) fn ticket(&self) -> Ticket {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).handed_in
    }

    /// Waits until everything up to the ticket is on disk. Cancel safe.
    ///
    /// # Errors
    /// It cannot be written, now or ever: the text says why.
    pub(crate) async fn written(&self, ticket: Ticket) -> Result<(), String> {
        let mut written = self.written.clone();
        let reached =
            |written: &Result<Ticket, String>| written.as_ref().map_or(true, |done| *done >= ticket);
        match written.wait_for(reached).await {
            Ok(written) => written.clone().map(drop),
            Err(_) => Err("the state file is closed".to_owned()),
        }
    }

    /// Closes the file without what was handed in and is not written: as when the process is killed. Blocks until it is
    /// closed.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
        self.close();
    }

    /// Writes what was handed in, and closes the file. Blocks for as long as that takes.
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

fn write_all(
    mut store: Store,
    receiver: &Receiver<(Ticket, Vec<Change>)>,
    done: &watch::Sender<Result<Ticket, String>>,
    abandoned: &AtomicBool,
) {
    while let Ok((mut ticket, mut changes)) = receiver.recv() {
        if abandoned.load(Ordering::Relaxed) {
            return;
        }
        for (next, more) in receiver.try_iter() {
            ticket = next;
            changes.extend(more);
        }
        match store.write(&changes) {
            Ok(()) => {
                drop(done.send_replace(Ok(ticket)));
            }
            // Nobody is told of what did not get to disk: their connections end, and so does the next one.
            Err(error) => return failed(&error, done),
        }
    }
}

fn failed(error: &StoreError, done: &watch::Sender<Result<Ticket, String>>) {
    tracing::error!(%error, "the state file cannot be written: clients get no answers any more");
    drop(done.send_replace(Err(error.to_string())));
}
