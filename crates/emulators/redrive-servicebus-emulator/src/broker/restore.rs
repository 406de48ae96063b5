//! Restores the state from the changes in a state file.

#[cfg(test)]
use std::sync::Arc;

use super::changes::Change;
#[cfg(test)]
use super::duplicates::Seen;
use super::stored::Stored;
use super::{Broker, EntityKind};

impl Broker {
    /// Applies a stored change, before the broker is used. Locks are not stored: messages that were locked can be received at once.
    pub(crate) fn restore(&mut self, change: Change) {
        let id = change.entity();
        let (entity, effects) = self.parts(id);
        match change {
            Change::Put { sequence, content, size, mut meta, .. } => {
                entity.remove(effects, sequence);
                // The configuration of the entity may have changed.
                let keeps_for_ever =
                    matches!(entity.kind, EntityKind::DeadLetterQueue | EntityKind::TransferDeadLetterQueue);
                meta.expires_at = meta.expires_at.filter(|_| !keeps_for_ever);
                let session = entity.session_of(&content);
                entity.insert(effects, sequence, Stored { content, size, session, meta, lock: None });
            }
            Change::Update { sequence, meta, .. } => {
                entity.change(effects, sequence, |stored| stored.meta = meta);
            }
            Change::Remove { sequence, .. } => drop(entity.remove(effects, sequence)),
            Change::NextSequence { next, .. } => entity.next_sequence = entity.next_sequence.max(next),
            Change::SessionState { session, state, .. } => {
                entity.sessions.change(&session, |session| session.state = state);
            }
            Change::Seen { message_id, at, .. } => {
                if let Some(seen) = &mut entity.seen {
                    seen.insert(message_id, at);
                }
            }
            Change::Forget { message_id, .. } => {
                if let Some(seen) = &mut entity.seen {
                    seen.remove(&message_id);
                }
            }
            Change::Rules { rules, .. } => entity.rules = rules,
        }
    }

    /// Returns everything that outlives a restart, as changes of an empty broker.
    #[cfg(test)]
    pub(crate) fn snapshot(&self) -> Vec<Change> {
        let mut changes = Vec::new();
        for entity in &self.entities {
            let id = entity.id;
            changes.push(Change::NextSequence { entity: id, next: entity.next_sequence });
            for (&sequence, stored) in &entity.messages {
                changes.push(Change::Put {
                    entity: id,
                    sequence,
                    content: Arc::clone(&stored.content),
                    size: stored.size,
                    meta: stored.meta.clone(),
                });
            }
            let mut states: Vec<_> = entity
                .sessions
                .iter()
                .filter_map(|(session, held)| Some((Arc::clone(session), held.state.clone()?)))
                .collect();
            states.sort();
            for (session, state) in states {
                changes.push(Change::SessionState { entity: id, session, state: Some(state) });
            }
            let mut seen: Vec<_> = entity.seen.iter().flat_map(Seen::iter).collect();
            seen.sort();
            for (message_id, at) in seen {
                changes.push(Change::Seen { entity: id, message_id: Arc::clone(message_id), at });
            }
            changes.push(Change::Rules { entity: id, rules: entity.rules.clone() });
        }
        changes
    }
}
