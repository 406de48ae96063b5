//! Notifies a connection's task that there is something to do.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// A link of a connection: its session's channel and its handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LinkKey {
    pub(crate) channel: u16,
    pub(crate) handle: u32,
}

/// What a connection is told.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    /// There may be something for these links.
    pub(crate) wake: BTreeSet<LinkKey>,
    /// These links lost their session.
    pub(crate) session_lost: BTreeSet<LinkKey>,
    /// Detach the links to these entities by force.
    pub(crate) detach: Vec<String>,
    /// The clock was put forward: links may be idle by now.
    pub(crate) time_moved: bool,
    /// Vanish without a word.
    pub(crate) drop: bool,
    /// Say goodbye: the emulator ends.
    pub(crate) close: bool,
}

/// Bounded: links are in it once, however often they are woken.
#[derive(Debug)]
pub(crate) struct Mailbox {
    pub(crate) id: u64,
    mail: Mutex<Mail>,
    changed: Notify,
}

impl Mailbox {
    pub(crate) fn new(id: u64) -> Self {
        Self { id, mail: Mutex::default(), changed: Notify::new() }
    }

    /// Tells the connection.
    pub(crate) fn post(&self, write: impl FnOnce(&mut Mail)) {
        write(&mut self.mail.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
    }

    /// Waits until something was posted. Cancel safe.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// What was posted since the last time.
    pub(crate) fn take(&self) -> Mail {
        std::mem::take(&mut self.mail.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
