//! Effects of a change of one entity on others: deadlines, clients that may be served now, and changes for the state file.

use std::collections::BTreeSet;
use std::sync::Arc;

use redrive_emulator_host::Timestamp;

use super::changes::Change;
use super::{EntityId, ReceiverId, SequenceNumber};

/// A notification for the server. [`Broker::take_wakes`](super::Broker::take_wakes) returns them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Wake {
    /// The entity may have something for waiting clients: a message, or a session to accept.
    Entity(EntityId),
    /// The session that this receiver holds may have a message for it.
    Receiver(ReceiverId),
    /// The receiver's session lock expired: detach its link.
    SessionLost(ReceiverId),
}

/// An event with a deadline. Ordered, so that events that are due at the same time happen in the same order on every run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    Activate(EntityId, SequenceNumber),
    Unlock(EntityId, SequenceNumber),
    UnlockSession(EntityId, Arc<str>),
    Expire(EntityId, SequenceNumber),
    ForgetTransaction(u64),
}

#[derive(Debug, Default)]
pub(super) struct Effects {
    pub(super) due: BTreeSet<(Timestamp, Due)>,
    pub(super) wakes: BTreeSet<Wake>,
    /// Number of bytes that count against the quota of each entity.
    pub(super) used: Vec<u64>,
    /// `None` if changes are not kept; then none are collected.
    pub(super) journal: Option<Vec<Change>>,
}

impl Effects {
    pub(super) fn at(&mut self, time: Timestamp, due: Due) {
        self.due.insert((time, due));
    }

    pub(super) fn not_at(&mut self, time: Timestamp, due: Due) {
        self.due.remove(&(time, due));
    }

    pub(super) fn wake(&mut self, wake: Wake) {
        self.wakes.insert(wake);
    }

    /// Records a change; builds it only if changes are kept.
    pub(super) fn note(&mut self, change: impl FnOnce() -> Change) {
        if let Some(journal) = &mut self.journal {
            journal.push(change());
        }
    }
}
