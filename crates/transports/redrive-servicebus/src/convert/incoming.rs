//! Reads messages of Service Bus.

use std::time::{Duration, SystemTime};

use fe2o3_amqp_types::messaging::annotations::OwnedKey;
use fe2o3_amqp_types::messaging::{MessageAnnotations, MessageId, Priority, Properties as WireProperties};
use fe2o3_amqp_types::primitives::Symbol;
use redrive_core::{Headers, Message, Properties, Timestamp, Value, header_names};
use redrive_transport::text::take_text;
use serde_amqp::Value as Amqp;

use super::body::WireMessage;
use super::changes::cut;
use super::copy_id::{CopySource, is_copy_id};
use super::names::{
    APP_ID, CLUSTER_ID, COPY_OF, COUNTED, DESCRIPTION, KEPT_DESCRIPTION, KEPT_REASON, NO_TTL_MILLIS, PARKED,
    PARTITION_KEY, PRIORITY, REASON, REMOVED, REPLY_TO_SESSION, SHELF, SHELF_OF, carried,
};
use super::values::from_property;
use super::{annotations, body};
use crate::entity::is_dead_letter_queue;

/// Headers that are never sent as application properties, because AMQP has fields for them. If a foreign property had such a
/// name, it would control where a copy is stored.
const NEVER_SENT: [&str; 4] =
    [REPLY_TO_SESSION, PARTITION_KEY, annotations::ANNOTATIONS, annotations::SYMBOLS];
/// The prefix of the header for a foreign property with such a name.
pub(super) const FOREIGN_PREFIX: &str = "foreign:";

/// The reason why the broker does not deliver a message in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetAside {
    /// Somebody deferred it: it is delivered only by its number.
    Deferred,
    /// It was sent for a later time.
    Scheduled,
}

/// A received message, with the data that the broker adds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Incoming {
    pub(crate) message: Message,
    pub(crate) sequence_number: i64,
    /// Set if the broker does not deliver it in its turn.
    pub(crate) set_aside: Option<SetAside>,
    /// The broker's count of earlier deliveries.
    pub(crate) delivery_count: u32,
    pub(crate) locked_until: Option<SystemTime>,
    /// The time when it came into its entity, by the broker's clock.
    pub(crate) enqueued_at: Option<SystemTime>,
    /// The reason of its dead-lettering, in a dead-letter queue.
    pub(crate) dead_letter_reason: Option<String>,
    pub(crate) dead_letter_description: Option<String>,
    /// Its mark in a dead-letter queue. Any program may have written it: see [`Incoming::is_parked`].
    pub(crate) shelf: Option<String>,
    /// The sequence number of the message that the mark was written on.
    pub(crate) shelf_of: Option<String>,
    /// Its sequence number, its count of deliveries, and its wait, when its history was last written on it.
    pub(crate) counted: Option<String>,
}

impl Incoming {
    /// Reads the reason and the description where the broker keeps them: takes them out of the headers if the message was read from a
    /// dead-letter queue. Elsewhere they are headers like all others: with `ForwardDeadLetteredMessagesTo` a work queue has messages
    /// that were dead-lettered before.
    pub(crate) fn read_from(mut self, path: &str) -> Self {
        if is_dead_letter_queue(path) {
            self.name_kept_reason_foreign();
            self.dead_letter_reason = take_text(self.message.headers_mut(), REASON);
            self.dead_letter_description = take_text(self.message.headers_mut(), DESCRIPTION);
        }
        self
    }

    /// Marks the headers of [`reason_of_others`](Self::reason_of_others) as foreign: redrive writes them only on what stays on a shelf
    /// outside of a dead-letter queue. Anywhere else another program wrote them.
    pub(crate) fn name_kept_reason_foreign(&mut self) {
        for name in [KEPT_REASON, KEPT_DESCRIPTION] {
            if let Some(value) = self.message.headers_mut().remove(name) {
                self.message.headers_mut().insert(format!("{FOREIGN_PREFIX}{name}"), value);
            }
        }
    }

    /// Returns the reason and the description of the dead-lettering, if that was not done by redrive, whose own are in its history: those
    /// that the broker keeps, or on a copy outside of a dead-letter queue those in its headers.
    pub(crate) fn reason_of_others(&self) -> [Option<Value>; 2] {
        let is_own = self.is_dead_lettered_by_redrive();
        let headers = self.message.headers();
        [(KEPT_REASON, &self.dead_letter_reason), (KEPT_DESCRIPTION, &self.dead_letter_description)].map(
            |(name, text)| {
                let text = text.as_deref().filter(|_| !is_own);
                text.map(Value::from).or_else(|| headers.get(name).cloned())
            },
        )
    }

    /// Returns a copy of it with [`reason_of_others`](Self::reason_of_others) in its headers, for a queue where the broker does not keep
    /// them.
    pub(crate) fn with_reason_of_others(&self, mut copy: Message) -> Message {
        for (name, value) in [KEPT_REASON, KEPT_DESCRIPTION].into_iter().zip(self.reason_of_others()) {
            match value {
                Some(value) => copy.headers_mut().insert(name, value),
                None => copy.headers_mut().remove(name),
            };
        }
        copy
    }

    /// Returns true if redrive parked it in its dead-letter queue. The mark counts if it names this message's number.
    pub(crate) fn is_parked(&self) -> bool {
        let number = self.shelf_of.as_deref().and_then(|number| number.parse().ok());
        self.shelf.as_deref() == Some(PARKED) && number == Some(self.sequence_number)
    }

    /// Returns true if redrive dead-lettered it: the dead-letter reason is the reason in its history.
    pub(crate) fn is_dead_lettered_by_redrive(&self) -> bool {
        let recorded_reason =
            self.message.headers().get(header_names::REASON).and_then(Value::as_str).map(cut);
        recorded_reason.is_some() && recorded_reason == self.dead_letter_reason
    }

    /// Returns what the ids of its copies are made from, for this message in this entity.
    pub(crate) fn copy_source<'a>(&self, entity: &'a str) -> CopySource<'a> {
        CopySource { entity, sequence_number: self.sequence_number, enqueued_at: self.enqueued_at }
    }

    /// Returns the count of its deliveries when its last failure was written on it. A count that was written on the original of
    /// this copy is ignored.
    pub(crate) fn counted_before(&self) -> u32 {
        self.given_back().map_or(0, |(count, _)| count)
    }

    /// Returns the count of its deliveries and the wait that were written on it when it was last given back to wait.
    pub(crate) fn given_back(&self) -> Option<(u32, Duration)> {
        let mut parts = self.counted.as_deref()?.split(':');
        let is_its_number = parts.next()?.parse() == Ok(self.sequence_number);
        let count = parts.next()?.parse().ok()?;
        let wait = Duration::from_millis(parts.next()?.parse().ok()?);
        (is_its_number && count <= self.delivery_count).then_some((count, wait))
    }
}

/// Returns a message that leaves its shelf: without the headers of [`Incoming::reason_of_others`].
pub(crate) fn without_reason_of_others(mut message: Message) -> Message {
    for name in [KEPT_REASON, KEPT_DESCRIPTION] {
        message.headers_mut().remove(name);
    }
    message
}

/// Reads a message. Never fails: unknown parts are skipped.
pub(crate) fn incoming(wire: WireMessage) -> Incoming {
    let mut found = Incoming::default();
    let header = wire.header.unwrap_or_default();
    found.delivery_count = header.delivery_count;
    let mut headers = Headers::new();
    let application_properties = wire.application_properties.unwrap_or_default();
    let symbols = annotations::symbols(&application_properties);
    for (name, value) in application_properties.0 {
        let value = from_property(value);
        if value.as_str() != Some(REMOVED) {
            headers.insert(header_name(name), value);
        }
    }
    take_packed(&mut headers);
    annotations::note_symbols(symbols, &mut headers);
    let mut properties = properties(wire.properties.unwrap_or_default(), &mut headers);
    let copied = take_copy_of(&mut headers, &mut properties);
    properties.persistent = Some(header.durable);
    properties.expiration =
        header.ttl.filter(|&ttl| ttl != NO_TTL_MILLIS).map(|ttl| Duration::from_millis(ttl.into()));
    take_own(&mut headers, &mut properties);
    if header.priority != Priority::default() && properties.priority.is_none() {
        properties.priority = Some(header.priority.0);
    }
    read_annotations(wire.message_annotations, &mut headers, &mut found);
    found.shelf = take_text(&mut headers, SHELF);
    found.shelf_of = take_text(&mut headers, SHELF_OF);
    found.counted = take_text(&mut headers, COUNTED);
    let body = body::read(wire.body, &mut headers, copied);
    found.message = Message::from_parts(body, headers, properties);
    found
}

fn properties(wire: WireProperties, headers: &mut Headers) -> Properties {
    if let Some(session) = wire.reply_to_group_id {
        headers.insert(REPLY_TO_SESSION, session);
    }
    let mut properties = Properties::default();
    properties.id = wire.message_id.map(id_text).filter(|id| !id.is_empty());
    properties.correlation_id = wire.correlation_id.map(id_text);
    properties.content_type = wire.content_type.map(Symbol::into_inner);
    properties.content_encoding = wire.content_encoding.map(Symbol::into_inner);
    properties.reply_to = wire.reply_to;
    properties.kind = wire.subject;
    properties.to = wire.to;
    if let Some(user) = wire.user_id {
        match String::from_utf8(user.into_vec()) {
            Ok(user) => properties.user_id = Some(user),
            Err(bytes) => drop(headers.insert(carried::USER_ID, Value::Bytes(bytes.into_bytes().into()))),
        }
    }
    properties.session_id = wire.group_id;
    properties.timestamp = wire.creation_time.map(|time| Timestamp::from_unix_millis(time.milliseconds()));
    properties
}

/// Prefixes names that are reserved for AMQP fields, so that a foreign property cannot pass for one.
fn header_name(property: String) -> String {
    if NEVER_SENT.contains(&property.as_str()) { format!("{FOREIGN_PREFIX}{property}") } else { property }
}

/// Gives a copy the id of its original, and returns true if the message is a copy. Another program may have written the property,
/// or forwarded it from a copy: a message whose own id is not that of such a copy keeps its id.
fn take_copy_of(headers: &mut Headers, properties: &mut Properties) -> bool {
    let Some(original) = headers.remove(COPY_OF) else { return false };
    match (&properties.id, original) {
        (Some(id), Value::String(original)) if is_copy_id(id, &original) => {
            properties.id = Some(original);
            true
        }
        (_, original) => {
            headers.insert(format!("{FOREIGN_PREFIX}{COPY_OF}"), original);
            false
        }
    }
}

/// Reads the headers for fields that AMQP lacks, and for fields that a copy takes from its original.
fn take_own(headers: &mut Headers, properties: &mut Properties) {
    if properties.id.is_none() {
        // It was dead-lettered with an id that redrive gave it on arrival.
        properties.id = headers.get(header_names::MESSAGE_ID).and_then(Value::as_str).map(str::to_owned);
    }
    take_carried(headers, properties);
    properties.app_id = take_text(headers, APP_ID);
    properties.cluster_id = take_text(headers, CLUSTER_ID);
    if let Some(Value::U8(priority)) = headers.get(PRIORITY) {
        properties.priority = Some(*priority);
        headers.remove(PRIORITY);
    }
    // The header has the publisher's expiration. The field then holds the time to live of the entity.
    if headers.contains(header_names::EXPIRATION) {
        properties.expiration = None;
    }
}

/// Reads the headers for fields that HTTP lacks. They never replace a field that is set: any program may have written them.
fn take_carried(headers: &mut Headers, properties: &mut Properties) {
    if properties.content_type.is_none() {
        properties.content_type = take_text(headers, carried::CONTENT_TYPE);
    }
    if properties.content_encoding.is_none() {
        properties.content_encoding = take_text(headers, carried::CONTENT_ENCODING);
    }
    if let (Some(Value::Timestamp(time)), None) = (headers.get(carried::TIMESTAMP), properties.timestamp) {
        properties.timestamp = Some(*time);
        headers.remove(carried::TIMESTAMP);
    }
    if let (Some(Value::Bytes(user)), None) = (headers.get(carried::USER_ID), &properties.user_id)
        && let Ok(user) = String::from_utf8(user.to_vec())
    {
        properties.user_id = Some(user);
        headers.remove(carried::USER_ID);
    }
}

/// Unpacks the properties whose names cannot be HTTP header names.
fn take_packed(headers: &mut Headers) {
    let Some(Value::Table(packed)) = headers.get(carried::PACKED).cloned() else { return };
    headers.remove(carried::PACKED);
    for (name, value) in packed.iter() {
        let name = header_name(name.to_owned());
        if !headers.contains(&name) {
            headers.insert(name, value.clone());
        }
    }
}

fn read_annotations(annotations: Option<MessageAnnotations>, headers: &mut Headers, found: &mut Incoming) {
    let annotations = annotations.map(|annotations| annotations.0).unwrap_or_default();
    annotations::read_annotations(&annotations, headers);
    for (key, value) in annotations {
        let OwnedKey::Symbol(key) = key else { continue };
        match (key.as_str(), value) {
            ("x-opt-sequence-number", Amqp::Long(number)) => found.sequence_number = number,
            ("x-opt-enqueued-time", Amqp::Timestamp(time)) => {
                found.enqueued_at = Timestamp::from_unix_millis(time.milliseconds()).to_system_time();
            }
            ("x-opt-locked-until", Amqp::Timestamp(time)) => {
                found.locked_until = Timestamp::from_unix_millis(time.milliseconds()).to_system_time();
            }
            ("x-opt-message-state", Amqp::Int(1)) => found.set_aside = Some(SetAside::Deferred),
            ("x-opt-message-state", Amqp::Int(2)) => found.set_aside = Some(SetAside::Scheduled),
            ("x-opt-partition-key", Amqp::String(key)) => {
                headers.insert(PARTITION_KEY, key);
            }
            _ => {}
        }
    }
}

pub(crate) fn id_text(id: MessageId) -> String {
    match id {
        MessageId::String(text) => text,
        MessageId::Ulong(number) => number.to_string(),
        MessageId::Uuid(uuid) => uuid::Uuid::from_bytes(uuid.into_inner()).to_string(),
        MessageId::Binary(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}
