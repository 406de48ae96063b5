//! One queue, topic, subscription or dead-letter queue: its messages, and the indexes that make every call cheap.
//!
//! A message's indexes follow from its state alone: every change removes the message from all indexes, changes it, and inserts it
//! again. No operation is linear in the number of messages.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use uuid::Uuid;

use super::changes::Change;
use super::duplicates::Seen;
use super::effects::{Due, Effects, Wake};
use super::rules::Rule;
use super::sessions::Sessions;
use super::settings::{EntityStatus, Settings};
use super::stored::{Place, SequenceNumber, Stored};
use super::{BrokerError, EntityId};

/// Number of partitions of an entity that has them.
const PARTITIONS: SequenceNumber = 4;

/// The kind of an entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntityKind {
    /// Accepts and hands out messages.
    Queue,
    /// Accepts messages for its subscriptions.
    Topic,
    /// Hands out the messages that its topic accepted.
    Subscription,
    /// Hands out dead-lettered messages.
    DeadLetterQueue,
    /// Hands out messages that could not be forwarded.
    TransferDeadLetterQueue,
}

/// Number of messages that left an entity for good, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Tally {
    /// Completed, or received and deleted.
    pub completed: u64,
    /// Expired, and not dead-lettered.
    pub expired: u64,
    /// Dropped as duplicates.
    pub duplicates: u64,
    /// Scheduled and then cancelled.
    pub cancelled: u64,
    /// Arrived at a topic.
    pub fanned_out: u64,
    /// Copies that a topic made for its subscriptions.
    pub copies: u64,
}

#[derive(Debug)]
pub(super) struct Entity {
    pub(super) id: EntityId,
    pub(super) path: Arc<str>,
    pub(super) kind: EntityKind,
    pub(super) settings: Settings,
    pub(super) status: EntityStatus,
    pub(super) forward_to: Option<EntityId>,
    pub(super) forward_dead_letters_to: Option<EntityId>,
    pub(super) dead_letters: Option<EntityId>,
    pub(super) transfer_dead_letters: Option<EntityId>,
    /// The entity whose quota its messages count against: for a queue and its dead letters, the queue.
    pub(super) account: EntityId,
    pub(super) subscriptions: Vec<EntityId>,
    pub(super) rules: Vec<Rule>,
    pub(super) next_sequence: SequenceNumber,
    pub(super) messages: BTreeMap<SequenceNumber, Stored>,
    /// Messages to receive next, if the entity has no sessions.
    pub(super) ready: BTreeSet<SequenceNumber>,
    pub(super) locks: HashMap<Uuid, SequenceNumber>,
    pub(super) sessions: Sessions,
    pub(super) seen: Option<Seen>,
    pub(super) tally: Tally,
}

impl Entity {
    pub(super) fn new(
        id: EntityId,
        path: String,
        kind: EntityKind,
        account: EntityId,
        settings: Settings,
    ) -> Self {
        Self {
            id,
            path: path.into(),
            kind,
            status: EntityStatus::Active,
            forward_to: None,
            forward_dead_letters_to: None,
            dead_letters: None,
            transfer_dead_letters: None,
            account,
            subscriptions: Vec::new(),
            rules: Vec::new(),
            next_sequence: 1,
            messages: BTreeMap::new(),
            ready: BTreeSet::new(),
            locks: HashMap::new(),
            sessions: Sessions::default(),
            seen: settings.duplicate_detection.map(Seen::new),
            tally: Tally::default(),
            settings,
        }
    }

    pub(super) fn path(&self) -> String {
        self.path.to_string()
    }

    pub(super) fn next_number(&mut self, effects: &mut Effects) -> SequenceNumber {
        let number = self.next_sequence;
        self.next_sequence += 1;
        let entity = self.id;
        effects.note(|| Change::NextSequence { entity, next: number + 1 });
        // Each partition counts by itself in Azure; here the numbers of all are different.
        if self.settings.partitioned { ((number % PARTITIONS) << 48) | number } else { number }
    }

    pub(super) fn insert(&mut self, effects: &mut Effects, sequence: SequenceNumber, stored: Stored) {
        let entity = self.id;
        effects.note(|| Change::Put {
            entity,
            sequence,
            content: Arc::clone(&stored.content),
            size: stored.size,
            meta: stored.meta.clone(),
        });
        effects.used[self.account.index()] += stored.size;
        self.index(effects, sequence, &stored);
        self.messages.insert(sequence, stored);
    }

    pub(super) fn remove(&mut self, effects: &mut Effects, sequence: SequenceNumber) -> Option<Stored> {
        let stored = self.messages.remove(&sequence)?;
        self.unindex(effects, sequence, &stored);
        effects.used[self.account.index()] -= stored.size;
        let entity = self.id;
        effects.note(|| Change::Remove { entity, sequence });
        Some(stored)
    }

    /// Changes the broker's data of a message, not its content.
    pub(super) fn change(
        &mut self,
        effects: &mut Effects,
        sequence: SequenceNumber,
        change: impl FnOnce(&mut Stored),
    ) {
        let Some(mut stored) = self.messages.remove(&sequence) else { return };
        self.unindex(effects, sequence, &stored);
        let before = stored.meta.clone();
        change(&mut stored);
        // The state file does not contain locks, so receiving writes nothing.
        if before != stored.meta {
            let entity = self.id;
            let (size, meta) = (stored.size, stored.meta.clone());
            effects.note(|| Change::Update { entity, sequence, size, meta });
        }
        self.index(effects, sequence, &stored);
        self.messages.insert(sequence, stored);
    }

    fn index(&mut self, effects: &mut Effects, sequence: SequenceNumber, stored: &Stored) {
        if let Some(expiry) = stored.expiry() {
            effects.at(expiry, Due::Expire(self.id, sequence));
        }
        if let Place::Scheduled(at) = stored.meta.place {
            effects.at(at, Due::Activate(self.id, sequence));
        }
        if let Some(lock) = stored.lock {
            self.locks.insert(lock.token, sequence);
        }
        let is_ready = stored.meta.place == Place::Active && stored.lock.is_none();
        match &stored.session {
            Some(session) => {
                let holder = self.sessions.change(session, |session| {
                    session.messages.insert(sequence);
                    if is_ready {
                        session.ready.insert(sequence);
                    }
                    if stored.lock.is_some() {
                        session.locked.insert(sequence);
                    }
                    session.lock
                });
                if is_ready {
                    effects.wake(holder.map_or(Wake::Entity(self.id), |lock| Wake::Receiver(lock.receiver)));
                }
            }
            None => {
                if let Some(lock) = stored.lock {
                    effects.at(lock.until, Due::Unlock(self.id, sequence));
                }
                if is_ready {
                    self.ready.insert(sequence);
                    effects.wake(Wake::Entity(self.id));
                }
            }
        }
    }

    fn unindex(&mut self, effects: &mut Effects, sequence: SequenceNumber, stored: &Stored) {
        if let Some(expiry) = stored.expiry() {
            effects.not_at(expiry, Due::Expire(self.id, sequence));
        }
        if let Place::Scheduled(at) = stored.meta.place {
            effects.not_at(at, Due::Activate(self.id, sequence));
        }
        if let Some(lock) = stored.lock {
            self.locks.remove(&lock.token);
        }
        match &stored.session {
            Some(session) => self.sessions.change(session, |session| {
                session.messages.remove(&sequence);
                session.ready.remove(&sequence);
                session.locked.remove(&sequence);
            }),
            None => {
                if let Some(lock) = stored.lock {
                    effects.not_at(lock.until, Due::Unlock(self.id, sequence));
                }
                self.ready.remove(&sequence);
            }
        }
    }

    /// Returns the message with this lock.
    pub(super) fn locked(&self, token: Uuid) -> Result<SequenceNumber, BrokerError> {
        self.locks.get(&token).copied().ok_or_else(|| {
            if self.settings.requires_session {
                BrokerError::SessionLockLost { path: self.path(), session: "of the message".into() }
            } else {
                BrokerError::MessageLockLost { path: self.path() }
            }
        })
    }

    pub(super) fn not_found(&self, sequence_number: SequenceNumber) -> BrokerError {
        BrokerError::MessageNotFound { path: self.path(), sequence_number }
    }

    /// Checks that the entity is neither disabled nor `closed` for this operation.
    pub(super) fn check_status(&self, closed: EntityStatus) -> Result<(), BrokerError> {
        if self.status == EntityStatus::Disabled || self.status == closed {
            return Err(BrokerError::EntityDisabled { path: self.path(), status: self.status });
        }
        Ok(())
    }

    pub(super) fn not_allowed(&self, reason: &'static str) -> BrokerError {
        BrokerError::NotAllowed { path: self.path(), reason }
    }

    pub(super) fn too_large(&self, size: u64, limit: u64) -> BrokerError {
        BrokerError::MessageSizeExceeded { path: self.path(), size, limit }
    }

    pub(super) fn argument(&self, reason: impl Into<String>) -> BrokerError {
        BrokerError::Argument { path: self.path(), reason: reason.into() }
    }
}
