//! Notifies a connection's task of events.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::errors::amqp_error;
use crate::amqp::state::AmqpError;
use crate::broker::BrokerError;

/// A link of a connection: its session's channel and its handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LinkKey {
    pub(crate) channel: u16,
    pub(crate) handle: u32,
}

/// Links that must be detached: those to one entity.
#[derive(Debug, Clone)]
pub(crate) struct Detaching {
    pub(crate) entity: String,
    pub(crate) error: AmqpError,
    pub(crate) receivers: bool,
    pub(crate) senders: bool,
    /// Those to `$management`.
    pub(crate) management: bool,
}

impl Detaching {
    /// Those that send to or receive from this entity, as Azure does with idle links.
    pub(crate) fn forced(entity: &str) -> Self {
        let text = "The link was detached by force. Attach again.";
        Self {
            entity: entity.to_owned(),
            error: AmqpError::new("amqp:link:detach-forced", text),
            receivers: true,
            senders: true,
            management: false,
        }
    }

    pub(crate) fn with_error(self, error: &BrokerError) -> Self {
        Self { error: amqp_error(error), ..self }
    }
}

/// Notifications for a connection.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    /// Links that may be served.
    pub(crate) wake: BTreeSet<LinkKey>,
    /// Links that lost their session.
    pub(crate) session_lost: BTreeSet<LinkKey>,
    /// Links that must be detached.
    pub(crate) detach: Vec<Detaching>,
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
        write(&mut self.mail.lock());
        self.changed.notify_one();
    }

    /// Waits for a notification. Cancel safe.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns the notifications since the last call.
    pub(crate) fn take(&self) -> Mail {
        std::mem::take(&mut self.mail.lock())
    }
}
