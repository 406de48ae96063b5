//! Settles a message that was handed out.

use std::collections::HashSet;
use std::sync::Arc;

use uuid::Uuid;

use super::changes::Change;
use super::route::Reason;
use super::send::MAX_HEADER;
use super::stored::{Place, SequenceNumber};
use super::{Broker, BrokerError, EntityId, EntityKind, Timestamp, content};
use crate::amqp::{Map, Value, encoded_len};

/// Maximum number of characters of a dead-letter reason and of its description, as .NET counts them.
const MAX_REASON: usize = 4096;

/// How a client settles a message. Properties replace the message's own.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Settlement {
    /// Done: the message is removed.
    Complete,
    /// Failed: back to its place, with one more failed delivery; dead-lettered at the limit.
    Abandon {
        /// Replace the message's application properties of the same names.
        properties: Map,
    },
    /// Not tried: back to its place, without being counted.
    Release,
    /// Deferred: from now on it can only be received by its number.
    Defer {
        /// Replace the message's application properties of the same names.
        properties: Map,
    },
    /// Dead-lettered.
    DeadLetter {
        /// At most 4096 characters.
        reason: Option<String>,
        /// At most 4096 characters.
        description: Option<String>,
        /// Replace the message's application properties of the same names.
        properties: Map,
    },
}

impl Broker {
    /// Settles the messages with these locks, all or none.
    ///
    /// # Errors
    /// [`BrokerError::MessageLockLost`], or [`BrokerError::SessionLockLost`] if sessions are required, for a lock that expired or
    /// was used already; [`BrokerError::NotAllowed`] for dead-lettering in a dead-letter queue; texts or properties that are too
    /// long.
    pub fn settle(
        &mut self,
        at: EntityId,
        tokens: &[Uuid],
        settlement: &Settlement,
        now: Timestamp,
    ) -> Result<(), BrokerError> {
        self.advance(now);
        self.check_settle(at, tokens, settlement)?;
        self.apply_settle(at, tokens, settlement);
        Ok(())
    }

    pub(super) fn check_settle(
        &self,
        at: EntityId,
        tokens: &[Uuid],
        settlement: &Settlement,
    ) -> Result<(), BrokerError> {
        let entity = self.entity(at);
        if let Settlement::DeadLetter { reason, description, .. } = settlement {
            if matches!(entity.kind, EntityKind::DeadLetterQueue | EntityKind::TransferDeadLetterQueue) {
                return Err(entity
                    .not_allowed("A message of a dead-letter queue cannot be dead-lettered; complete it."));
            }
            let too_long = |text: &Option<String>| {
                text.as_ref().is_some_and(|text| text.encode_utf16().count() > MAX_REASON)
            };
            if too_long(reason) || too_long(description) {
                return Err(
                    entity.argument("A dead-letter reason or description has at most 4096 characters.")
                );
            }
        }
        let mut settled = HashSet::new();
        for &token in tokens {
            let number = entity.locked(token)?;
            if !settled.insert(token) {
                return Err(entity.argument("A lock can be settled only once."));
            }
            if let Some(stored) = entity.messages.get(&number) {
                let now = stored.size.saturating_sub(stored.content.body.len() as u64);
                let size = now + settlement.added_bytes();
                if settlement.added_bytes() > 0 && size > MAX_HEADER {
                    return Err(entity.too_large(size, MAX_HEADER));
                }
            }
        }
        Ok(())
    }

    pub(super) fn apply_settle(&mut self, at: EntityId, tokens: &[Uuid], settlement: &Settlement) {
        for &token in tokens {
            if let Ok(number) = self.entity(at).locked(token) {
                self.apply_to_one(at, number, settlement);
            }
        }
    }

    fn apply_to_one(&mut self, at: EntityId, number: SequenceNumber, settlement: &Settlement) {
        match settlement {
            Settlement::Complete => {
                let (entity, effects) = self.parts(at);
                if entity.remove(effects, number).is_some() {
                    entity.tally.completed += 1;
                }
            }
            Settlement::Abandon { properties } => {
                self.write_properties(at, number, properties);
                self.delivery_failed(at, number);
            }
            Settlement::Release => self.unlock(at, number),
            Settlement::Defer { properties } => {
                self.write_properties(at, number, properties);
                let (entity, effects) = self.parts(at);
                entity.change(effects, number, |stored| {
                    stored.lock = None;
                    stored.meta.place = Place::Deferred;
                });
            }
            Settlement::DeadLetter { reason, description, properties } => {
                let reason = Reason {
                    reason: reason.clone(),
                    description: description.clone(),
                    properties: properties.clone(),
                };
                self.remove_to_dead_letters(at, number, &reason);
            }
        }
    }

    /// Counts a failed delivery when a lock ends without success; dead-letters at the limit. Counts nothing in a dead-letter queue,
    /// which has no dead-letter queue itself.
    pub(super) fn delivery_failed(&mut self, at: EntityId, number: SequenceNumber) {
        let (entity, effects) = self.parts(at);
        let (limit, counted) = (entity.settings.max_delivery_count, entity.dead_letters.is_some());
        let mut count = 0;
        entity.change(effects, number, |stored| {
            stored.lock = None;
            stored.meta.delivery_count += u32::from(counted);
            count = stored.meta.delivery_count;
        });
        if counted && count >= limit {
            let description = format!("Message could not be consumed after {limit} delivery attempts.");
            let reason = Reason::system("MaxDeliveryCountExceeded", description);
            self.remove_to_dead_letters(at, number, &reason);
        } else {
            self.expire_if_due(at, number);
        }
    }

    pub(super) fn unlock(&mut self, at: EntityId, number: SequenceNumber) {
        let (entity, effects) = self.parts(at);
        entity.change(effects, number, |stored| stored.lock = None);
        self.expire_if_due(at, number);
    }

    fn write_properties(&mut self, at: EntityId, number: SequenceNumber, properties: &Map) {
        if properties.is_empty() {
            return;
        }
        let (entity, effects) = self.parts(at);
        let (id, account) = (entity.id, entity.account);
        let Some(stored) = entity.messages.get_mut(&number) else { return };
        let content = Arc::make_mut(&mut stored.content);
        content::merge(properties, content);
        let used = &mut effects.used[account.index()];
        *used -= stored.size;
        stored.size = content.to_bytes().len() as u64;
        *used += stored.size;
        effects.note(|| Change::Put {
            entity: id,
            sequence: number,
            content: Arc::clone(&stored.content),
            size: stored.size,
            meta: stored.meta.clone(),
        });
    }
}

impl Settlement {
    fn added_bytes(&self) -> u64 {
        let bytes_of = |properties: &Map| match properties.is_empty() {
            true => 0,
            false => encoded_len(&Value::Map(properties.clone())),
        };
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let added = match self {
            Self::Complete | Self::Release => 0,
            Self::Abandon { properties } | Self::Defer { properties } => bytes_of(properties),
            Self::DeadLetter { reason, description, properties } => {
                bytes_of(properties) + text(reason) + text(description)
            }
        };
        added as u64
    }
}
