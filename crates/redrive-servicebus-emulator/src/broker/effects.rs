//! Effects of a change of one entity on others: deadlines, the clients that may be served now, and changes for the state file.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::changes::Change;
use super::time::Timestamp;
use super::{EntityId, ReceiverId, SequenceNumber};

/// Something the server has to act on. Collected by [`Broker::take_wakes`](super::Broker::take_wakes).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Wake {
    /// The entity may have something for whoever waits on it: a message, or a session to accept.
    Entity(EntityId),
    /// The session that this receiver holds may have a message for it.
    Receiver(ReceiverId),
    /// The receiver's session lock ran out: detach its link.
    SessionLost(ReceiverId),
}

/// What happens when its time comes. Ordered, so that what is due at the same moment happens in the same order on
/// every run.
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
    /// How many bytes count against the quota of each entity.
    pub(super) used: Vec<u64>,
    /// `None`: nobody keeps them, so none are collected.
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

    /// The change is only built when it is kept.
    pub(super) fn note(&mut self, change: impl FnOnce() -> Change) {
        if let Some(journal) = &mut self.journal {
            journal.push(change());
        }
    }
}
