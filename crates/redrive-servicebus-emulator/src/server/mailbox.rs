//! Notifies a connection's task of events.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// A link of a connection: its session's channel and its handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LinkKey {
    pub(crate) channel: u16,
    pub(crate) handle: u32,
}

/// Notifications for a connection.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    /// Links that may be served.
    pub(crate) wake: BTreeSet<LinkKey>,
    /// Links that lost their session.
    pub(crate) session_lost: BTreeSet<LinkKey>,
    /// Entities whose links must be detached by force.
    pub(crate) detach: Vec<String>,
    /// The clock was advanced: links may be idle now.
    pub(crate) time_moved: bool,
    /// End without a close.
    pub(crate) drop: bool,
    /// Close in order: the emulator ends.
    pub(crate) close: bool,
}

/// Bounded: it contains each link once, however often the link is woken.
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

    /// Adds a notification.
    pub(crate) fn post(&self, write: impl FnOnce(&mut Mail)) {
        write(&mut self.mail.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
    }

    /// Waits for a notification. Cancel safe.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns the notifications since the last call.
    pub(crate) fn take(&self) -> Mail {
        std::mem::take(&mut self.mail.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
