//! The sessions of one entity: which messages each has, who holds it, and which may be accepted next.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use redrive_emulator_host::Timestamp;

use super::ReceiverId;
use super::stored::SequenceNumber;

#[derive(Debug, Default)]
pub(super) struct Sessions {
    by_id: HashMap<Arc<str>, Session>,
    /// Sessions without a holder and with a message to receive; the next to be accepted comes first.
    available: BTreeSet<(SequenceNumber, Arc<str>)>,
}

#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) messages: BTreeSet<SequenceNumber>,
    pub(super) ready: BTreeSet<SequenceNumber>,
    pub(super) locked: BTreeSet<SequenceNumber>,
    pub(super) state: Option<(Bytes, Timestamp)>,
    pub(super) lock: Option<SessionLock>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SessionLock {
    pub(super) receiver: ReceiverId,
    pub(super) until: Timestamp,
}

impl Sessions {
    pub(super) fn session(&self, id: &str) -> Option<&Session> {
        self.by_id.get(id)
    }

    pub(super) fn next_available(&self) -> Option<Arc<str>> {
        self.available.first().map(|(_, id)| Arc::clone(id))
    }

    /// Changes a session. All changes go through here, so that the available sessions stay correct, and a session without messages,
    /// state and holder takes no memory.
    pub(super) fn change<T>(&mut self, id: &Arc<str>, change: impl FnOnce(&mut Session) -> T) -> T {
        let session = self.by_id.entry(Arc::clone(id)).or_default();
        if let Some(turn) = session.turn() {
            self.available.remove(&(turn, Arc::clone(id)));
        }
        let answer = change(session);
        if let Some(turn) = session.turn() {
            self.available.insert((turn, Arc::clone(id)));
        }
        if session.is_forgotten() {
            self.by_id.remove(id);
        }
        answer
    }

    /// Returns all of them, in any order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Session)> {
        self.by_id.iter()
    }
}

impl Session {
    /// Returns its position among the available sessions: the number of its first message.
    fn turn(&self) -> Option<SequenceNumber> {
        if self.lock.is_some() { None } else { self.ready.first().copied() }
    }

    fn is_forgotten(&self) -> bool {
        self.messages.is_empty() && self.state.is_none() && self.lock.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_with_the_oldest_message_is_next_unless_it_is_held() {
        let mut sessions = Sessions::default();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        for (session, number) in [(&b, 2), (&a, 1)] {
            sessions.change(session, |session| {
                session.messages.insert(number);
                session.ready.insert(number);
            });
        }
        assert_eq!(sessions.next_available().as_deref(), Some("a"));
        let lock = SessionLock { receiver: ReceiverId(1), until: Timestamp::EPOCH };
        sessions.change(&a, |session| session.lock = Some(lock));
        assert_eq!(sessions.next_available().as_deref(), Some("b"));
        sessions.change(&a, |session| session.lock = None);
        assert_eq!(sessions.next_available().as_deref(), Some("a"));
    }

    #[test]
    fn a_session_with_nothing_in_it_takes_no_memory() {
        let mut sessions = Sessions::default();
        let a: Arc<str> = "a".into();
        sessions.change(&a, |session| session.messages.insert(1));
        assert!(sessions.session("a").is_some());
        sessions.change(&a, |session| session.messages.remove(&1));
        assert!(sessions.session("a").is_none());
    }
}
