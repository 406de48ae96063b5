//! Sends messages, at once or scheduled.
//!
//! `check_…` refuses before anything changes: the rest cannot fail. A batch is accepted as a whole or not at all, and so is a
//! transaction.

use std::collections::HashMap;
use std::sync::Arc;

use super::changes::Change;
use super::content::{Incoming, message_id, scheduled_at, session_id};
use super::route::Parcel;
use super::stored::{Meta, Place, SequenceNumber, Stored};
use super::{Broker, BrokerError, EntityId, Timestamp};

/// Maximum number of characters of message ids, session ids and partition keys.
const MAX_ID: usize = 128;
/// Maximum number of bytes of a message without its body.
pub(super) const MAX_HEADER: u64 = 64 * 1024;

/// Bytes that earlier parts of the same batch or transaction will take, by the entity with the quota.
pub(super) type Reserved = HashMap<EntityId, u64>;

impl Broker {
    /// Accepts all of the messages, or none. A message with a later enqueue time is kept until then.
    ///
    /// # Errors
    /// If the entity is no queue or topic, or full; if a message, or all together, are too large; if an id is too long, or a session
    /// id is missing.
    pub fn send(&mut self, to: EntityId, messages: Vec<Incoming>, now: Timestamp) -> Result<(), BrokerError> {
        self.advance(now);
        self.check_send(to, &messages, &mut Reserved::new())?;
        self.apply_send(to, messages);
        Ok(())
    }

    /// Accepts all of the messages, or none, each for its enqueue time. Returns the numbers by which they can be cancelled; they
    /// get other numbers when they become active.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn schedule(
        &mut self,
        to: EntityId,
        messages: Vec<Incoming>,
        now: Timestamp,
    ) -> Result<Vec<SequenceNumber>, BrokerError> {
        self.advance(now);
        self.check_send(to, &messages, &mut Reserved::new())?;
        let numbers = self.reserve_numbers(to, messages.len());
        self.apply_schedule(to, messages, &numbers);
        Ok(numbers)
    }

    /// Removes scheduled messages, all or none.
    ///
    /// # Errors
    /// [`BrokerError::MessageNotFound`] if one does not exist, or is no longer scheduled.
    pub fn cancel(
        &mut self,
        at: EntityId,
        numbers: &[SequenceNumber],
        now: Timestamp,
    ) -> Result<(), BrokerError> {
        self.advance(now);
        self.check_cancel(at, numbers)?;
        self.apply_cancel(at, numbers);
        Ok(())
    }

    pub(super) fn check_send(
        &self,
        to: EntityId,
        messages: &[Incoming],
        reserved: &mut Reserved,
    ) -> Result<(), BrokerError> {
        self.check_sender(to)?;
        let entity = self.entity(to);
        for incoming in messages {
            let message = &incoming.message;
            let id = message_id(message).unwrap_or_default();
            let session = session_id(message);
            if id.chars().count() > MAX_ID || session.is_some_and(|id| id.chars().count() > MAX_ID) {
                return Err(entity.argument("A message id or session id has at most 128 characters."));
            }
            if entity.settings.requires_session && session.is_none() {
                return Err(entity.not_allowed(
                    "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that have session \
                     support enabled can only receive messages that have the SessionId set to a valid value.",
                ));
            }
            if incoming.header_size() > MAX_HEADER {
                return Err(entity.too_large(incoming.header_size(), MAX_HEADER));
            }
        }
        let size = messages.iter().map(|incoming| incoming.size).sum();
        if size > entity.settings.max_message_size {
            return Err(entity.too_large(size, entity.settings.max_message_size));
        }
        let reserved = reserved.entry(entity.account).or_default();
        *reserved += size;
        self.check_room(to, *reserved)
    }

    pub(super) fn check_room(&self, at: EntityId, bytes: u64) -> Result<(), BrokerError> {
        let account = self.entity(self.entity(at).account);
        let limit = account.settings.max_size;
        if self.effects.used[account.id.index()].saturating_add(bytes) > limit {
            return Err(BrokerError::QuotaExceeded { path: account.path(), limit });
        }
        Ok(())
    }

    pub(super) fn apply_send(&mut self, to: EntityId, messages: Vec<Incoming>) {
        for incoming in messages {
            let scheduled = scheduled_at(&incoming.message).is_some_and(|at| at > self.now);
            let parcel = self.pack(incoming);
            if self.is_duplicate(to, &parcel) {
                continue;
            }
            if scheduled {
                let number = self.reserve_number(to);
                self.keep_scheduled(to, parcel, number);
            } else {
                self.arrive(to, parcel);
            }
        }
    }

    pub(super) fn apply_schedule(
        &mut self,
        to: EntityId,
        messages: Vec<Incoming>,
        numbers: &[SequenceNumber],
    ) {
        for (incoming, &number) in messages.into_iter().zip(numbers) {
            let parcel = self.pack(incoming);
            if !self.is_duplicate(to, &parcel) {
                self.keep_scheduled(to, parcel, number);
            }
        }
    }

    pub(super) fn check_cancel(&self, at: EntityId, numbers: &[SequenceNumber]) -> Result<(), BrokerError> {
        let entity = self.entity(at);
        for &number in numbers {
            let place = entity.messages.get(&number).map(|stored| stored.meta.place);
            if !matches!(place, Some(Place::Scheduled(_))) {
                return Err(entity.not_found(number));
            }
        }
        Ok(())
    }

    pub(super) fn apply_cancel(&mut self, at: EntityId, numbers: &[SequenceNumber]) {
        let (entity, effects) = self.parts(at);
        for &number in numbers {
            if entity.remove(effects, number).is_some() {
                entity.tally.cancelled += 1;
            }
        }
    }

    /// Assigns numbers before a transaction ends, for its client.
    pub(super) fn reserve_numbers(&mut self, at: EntityId, count: usize) -> Vec<SequenceNumber> {
        (0..count).map(|_| self.reserve_number(at)).collect()
    }

    pub(super) fn reserve_number(&mut self, at: EntityId) -> SequenceNumber {
        let (entity, effects) = self.parts(at);
        entity.next_number(effects)
    }

    fn keep_scheduled(&mut self, at: EntityId, parcel: Parcel, number: SequenceNumber) {
        let now = self.now;
        let due = scheduled_at(&parcel.content).unwrap_or(now);
        let (entity, effects) = self.parts(at);
        let session = entity.session_of(&parcel.content);
        let meta = Meta {
            place: Place::Scheduled(due),
            delivery_count: 0,
            enqueued_at: now,
            enqueued_sequence: number,
            expires_at: None,
            dead_letter_source: None,
        };
        let stored = Stored { content: parcel.content, size: parcel.size, session, meta, lock: None };
        entity.insert(effects, number, stored);
    }

    /// Assigns an id to a message without one: SDKs need it.
    fn pack(&mut self, incoming: Incoming) -> Parcel {
        let Incoming { mut message, size } = incoming;
        if message.properties.message_id.is_null() {
            message.properties.message_id = self.tokens.next().simple().to_string().into();
        }
        // Built one by one, a map of a single pair has capacity for four: 240 bytes for every waiting message.
        message.application_properties.0.shrink_to_fit();
        message.message_annotations.0.shrink_to_fit();
        Parcel::new(Arc::new(message), size)
    }

    /// Returns true if the entity saw the id within its window; otherwise records the id.
    pub(super) fn is_duplicate(&mut self, at: EntityId, parcel: &Parcel) -> bool {
        let now = self.now;
        let (entity, effects) = self.parts(at);
        let Some(seen) = &mut entity.seen else { return false };
        let id = entity.id;
        for message_id in seen.forget(now) {
            effects.note(|| Change::Forget { entity: id, message_id });
        }
        let message_id: Arc<str> = message_id(&parcel.content).unwrap_or_default().into();
        if seen.contains(&message_id, now) {
            entity.tally.duplicates += 1;
            return true;
        }
        effects.note(|| Change::Seen { entity: id, message_id: Arc::clone(&message_id), at: now });
        seen.insert(message_id, now);
        false
    }
}
