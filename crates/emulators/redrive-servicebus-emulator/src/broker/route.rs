//! Routes an active message: it stays here, or goes to another entity, to every matching subscription, or to a dead-letter queue.
//! Routing cannot fail: a message that cannot be forwarded goes to a dead-letter queue.

use std::sync::Arc;
use std::time::Duration;

use super::content::{merge, session_id, time_to_live};
use super::entity::Entity;
use super::rules::{Copies, copies, size_of_copy};
use super::stored::{Meta, Place, SequenceNumber, Stored};
use super::{Broker, EntityId, EntityKind, Timestamp};
use crate::amqp::{Map, Message};

/// Maximum number of times that a message is forwarded: two entities may forward to each other.
const MAX_HOPS: u32 = 4;

/// A message between two entities.
#[derive(Debug, Clone)]
pub(super) struct Parcel {
    pub(super) content: Arc<Message>,
    pub(super) size: u64,
    /// Its number in the entity that it was first sent to; `None` while it is still there.
    came_as: Option<SequenceNumber>,
    dead_letter_source: Option<Arc<str>>,
    /// When it arrived in the entity that it is leaving.
    enqueued_at: Option<Timestamp>,
    /// Maximum time to live that the topic sets.
    at_most: Option<Duration>,
    hops: u32,
}

/// Why a message is dead-lettered.
#[derive(Debug, Clone, Default)]
pub(super) struct Reason {
    pub(super) reason: Option<String>,
    pub(super) description: Option<String>,
    pub(super) properties: Map,
}

impl Parcel {
    pub(super) fn new(content: Arc<Message>, size: u64) -> Self {
        Self {
            content,
            size,
            came_as: None,
            dead_letter_source: None,
            enqueued_at: None,
            at_most: None,
            hops: 0,
        }
    }
}

impl Reason {
    pub(super) fn system(reason: &str, description: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), description: Some(description.into()), properties: Map::new() }
    }

    fn write(&self, into: &mut Message) {
        merge(&self.properties, into);
        for (key, text) in
            [("DeadLetterReason", &self.reason), ("DeadLetterErrorDescription", &self.description)]
        {
            if let Some(text) = text {
                into.application_properties.insert(key, text.as_str());
            }
        }
    }
}

impl Broker {
    pub(super) fn arrive(&mut self, at: EntityId, parcel: Parcel) {
        let entity = self.entity(at);
        match (entity.kind, entity.forward_to) {
            (EntityKind::Topic, _) => self.fan_out(at, &parcel),
            (_, Some(to)) => {
                let number = self.reserve_number(at);
                self.hand_on(at, number, to, parcel);
            }
            (_, None) => self.rest(at, parcel),
        }
    }

    fn fan_out(&mut self, topic: EntityId, parcel: &Parcel) {
        let number = self.reserve_number(topic);
        let subscriptions = self.entity(topic).subscriptions.clone();
        let at_most = self.entity(topic).settings.default_time_to_live;
        self.entities[topic.index()].tally.fanned_out += 1;
        for subscription in subscriptions {
            let entity = self.entity(subscription);
            let came_as = parcel.came_as.or(Some(number));
            let copy_of = |content| {
                let size = size_of_copy(&parcel.content, parcel.size, &content);
                Parcel { content, size, came_as, at_most, ..parcel.clone() }
            };
            match copies(&entity.rules, &parcel.content) {
                Copies::Of(contents) => {
                    for content in contents {
                        self.entities[topic.index()].tally.copies += 1;
                        self.arrive(subscription, copy_of(content));
                    }
                }
                Copies::Failed(error) if entity.settings.dead_letter_on_filter_errors => {
                    self.entities[topic.index()].tally.copies += 1;
                    let number = self.reserve_number(subscription);
                    let reason = Reason::system("FilterEvaluationException", error);
                    self.dead_letter(subscription, number, copy_of(Arc::clone(&parcel.content)), &reason, 0);
                }
                Copies::Failed(_) => {}
            }
        }
    }

    fn hand_on(&mut self, from: EntityId, number: SequenceNumber, to: EntityId, mut parcel: Parcel) {
        parcel.hops += 1;
        parcel.came_as = parcel.came_as.or(Some(number));
        if parcel.hops > MAX_HOPS {
            let reason =
                Reason::system("MaxTransferHopCountExceeded", "The message was forwarded 4 times already.");
            return self.set_aside(from, number, parcel, &reason, 0);
        }
        if let Err(error) = self.check_room(to, parcel.size) {
            let reason = Reason::system(error.condition(), error.to_string());
            return self.set_aside(from, number, parcel, &reason, 0);
        }
        if self.is_duplicate(to, &parcel) {
            return;
        }
        self.arrive(to, parcel);
    }

    /// Dead-letters a message that could not be forwarded.
    fn set_aside(
        &mut self,
        from: EntityId,
        number: SequenceNumber,
        mut parcel: Parcel,
        reason: &Reason,
        delivery_count: u32,
    ) {
        let shelf = self.entity(from).transfer_dead_letters;
        reason.write_to(&mut parcel);
        self.shelve(shelf, number, parcel, delivery_count);
    }

    fn rest(&mut self, at: EntityId, parcel: Parcel) {
        let now = self.now;
        let number = self.reserve_number(at);
        let entity = self.entity(at);
        if entity.settings.requires_session && session_id(&parcel.content).is_none() {
            let reason = Reason::system(
                "Session ID is null",
                "The entity requires sessions, and the message has no session id.",
            );
            return self.dead_letter(at, number, parcel, &reason, 0);
        }
        let (entity, effects) = self.parts(at);
        let asked = time_to_live(&parcel.content);
        let time_to_live =
            [asked, entity.settings.default_time_to_live, parcel.at_most].into_iter().flatten().min();
        let meta = Meta {
            place: Place::Active,
            delivery_count: 0,
            enqueued_at: now,
            enqueued_sequence: parcel.came_as.unwrap_or(number),
            expires_at: time_to_live.map(|time| now + time),
            dead_letter_source: parcel.dead_letter_source,
        };
        let session = entity.session_of(&parcel.content);
        let stored = Stored { content: parcel.content, size: parcel.size, session, meta, lock: None };
        entity.insert(effects, number, stored);
    }

    /// Moves message `number` of the entity to its dead-letter queue, or to where that forwards.
    pub(super) fn dead_letter(
        &mut self,
        from: EntityId,
        number: SequenceNumber,
        mut parcel: Parcel,
        reason: &Reason,
        delivery_count: u32,
    ) {
        reason.write_to(&mut parcel);
        let entity = self.entity(from);
        let (shelf, onward, source) =
            (entity.dead_letters, entity.forward_dead_letters_to, Arc::clone(&entity.path));
        match onward {
            Some(to) if parcel.hops < MAX_HOPS => {
                parcel.dead_letter_source = Some(source);
                self.hand_on(from, number, to, parcel);
            }
            _ => self.shelve(shelf, number, parcel, delivery_count),
        }
    }

    /// Stores a message in a dead-letter queue, which keeps number, enqueue time, properties and body, and sets no time to live.
    fn shelve(
        &mut self,
        shelf: Option<EntityId>,
        number: SequenceNumber,
        parcel: Parcel,
        delivery_count: u32,
    ) {
        let now = self.now;
        let Some(shelf) = shelf else { return };
        let (entity, effects) = self.parts(shelf);
        let meta = Meta {
            place: Place::Active,
            delivery_count,
            enqueued_at: parcel.enqueued_at.unwrap_or(now),
            enqueued_sequence: parcel.came_as.unwrap_or(number),
            expires_at: None,
            dead_letter_source: parcel.dead_letter_source,
        };
        let stored = Stored { content: parcel.content, size: parcel.size, session: None, meta, lock: None };
        entity.insert(effects, number, stored);
    }

    /// Removes a message from its entity and dead-letters it.
    pub(super) fn remove_to_dead_letters(&mut self, from: EntityId, number: SequenceNumber, reason: &Reason) {
        let (entity, effects) = self.parts(from);
        let Some(stored) = entity.remove(effects, number) else { return };
        let parcel = Parcel {
            came_as: (stored.meta.enqueued_sequence != number).then_some(stored.meta.enqueued_sequence),
            dead_letter_source: stored.meta.dead_letter_source,
            enqueued_at: Some(stored.meta.enqueued_at),
            ..Parcel::new(stored.content, stored.size)
        };
        self.dead_letter(from, number, parcel, reason, stored.meta.delivery_count);
    }
}

impl Reason {
    fn write_to(&self, parcel: &mut Parcel) {
        let content = Arc::make_mut(&mut parcel.content);
        self.write(content);
        parcel.size = content.to_bytes().len() as u64;
    }
}

impl Entity {
    /// Returns the session of the message, if the entity has sessions.
    pub(super) fn session_of(&self, content: &Message) -> Option<Arc<str>> {
        if self.settings.requires_session { session_id(content).map(Arc::from) } else { None }
    }
}
