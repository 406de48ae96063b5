//! Messages of Service Bus and messages of redrive, both ways: [the table](https://github.com/redrive-rs/redrive/blob/main/docs/transports/servicebus.md#messages).

mod annotations;
pub(crate) mod body;
pub(crate) mod copy_id;
pub(crate) mod later;
pub(crate) mod values;

use std::time::{Duration, SystemTime};

use fe2o3_amqp_types::messaging::annotations::OwnedKey;
use fe2o3_amqp_types::messaging::{
    Body, Header, Message as Wire, MessageAnnotations, MessageId, Priority, Properties as WireProperties,
};
use fe2o3_amqp_types::primitives::{OrderedMap, SimpleValue, Symbol};
use redrive_core::{Headers, Message, Properties, Shelf, Timestamp, Value, header_names as names};
use serde_amqp::Value as Amqp;

use self::copy_id::{Source, is_copy_id};
use self::values::{from_property, to_property};

/// A message as the wire carries it.
pub(crate) type WireMessage = Wire<Body<Amqp>>;

/// Why a message was dead-lettered, in one word.
pub(crate) const REASON: &str = "DeadLetterReason";
/// The same in words.
pub(crate) const DESCRIPTION: &str = "DeadLetterErrorDescription";
/// On a message in the dead-letter queue: on which of redrive's shelves it rests there, where it is not the usual one.
pub(crate) const SHELF: &str = "x-servicebus-shelf";
/// With that mark: the sequence number of the message that it was written on. Others know it only when it is too late.
const SHELF_OF: &str = "x-servicebus-shelf-of";
/// The mark of parked messages.
pub(crate) const PARKED: &str = "parking";
/// On a message of a session that was given back with its history: its sequence number, and how often it had come back by then.
pub(crate) const COUNTED: &str = "x-servicebus-counted";
/// The annotation that says when a message is to be enqueued.
pub(crate) const SCHEDULED_AT: &str = "x-opt-scheduled-enqueue-time";
/// The most characters that the reason and the description of a dead letter may have, each.
const MAX_CHARS: usize = 4096;
/// The value of a header that was taken off: a native dead-lettering can set properties, and remove none.
const REMOVED: &str = "redrive:removed";
/// On a copy: the id of its original. Believed where the id of the message itself is that of a copy of it.
const COPY_OF: &str = "x-servicebus-copy-of";
const APP_ID: &str = "x-servicebus-app-id";
const CLUSTER_ID: &str = "x-servicebus-cluster-id";
const PRIORITY: &str = "x-servicebus-priority";
const REPLY_TO_SESSION: &str = "x-servicebus-reply-to-session-id";
const PARTITION_KEY: &str = "x-servicebus-partition-key";
/// Headers that redrive never sends as properties: what they stand for has a place of its own on the wire. On a property that
/// has such a name they would say where a copy is stored.
const NEVER_SENT: [&str; 4] =
    [REPLY_TO_SESSION, PARTITION_KEY, annotations::ANNOTATIONS, annotations::SYMBOLS];
/// What the header of such a property begins with.
const FORGED: &str = "foreign:";
/// What HTTP has no place for: carried as properties, and put back where it came from, whoever reads it.
pub(crate) mod carried {
    pub(crate) const CONTENT_TYPE: &str = "x-servicebus-content-type";
    pub(crate) const CONTENT_ENCODING: &str = "x-servicebus-content-encoding";
    pub(crate) const TIMESTAMP: &str = "x-servicebus-timestamp";
    pub(crate) const USER_ID: &str = "x-servicebus-user-id";
    /// A table of properties whose names no header can have.
    pub(crate) const TOGETHER: &str = "x-servicebus-properties";
}
/// Service Bus says so where a message has no time to live of its own.
const FOR_EVER: u32 = u32::MAX;

/// What marks a message in a dead-letter queue as parked.
pub(crate) fn parked(sequence_number: i64) -> [(String, SimpleValue); 2] {
    let text = |text: &str| SimpleValue::String(text.to_owned());
    [(SHELF.to_owned(), text(PARKED)), (SHELF_OF.to_owned(), text(&sequence_number.to_string()))]
}

/// What takes a mark off that somebody else wrote.
pub(crate) fn unmarked() -> (String, SimpleValue) {
    (SHELF.to_owned(), SimpleValue::String(REMOVED.to_owned()))
}

/// A copy for the queue of dead letters, where there is one. Parked messages may rest there too, and are marked.
pub(crate) fn marked(mut copy: Message, shelf: Shelf) -> Message {
    match shelf {
        Shelf::Parking => copy.headers_mut().insert(SHELF, PARKED),
        _ => copy.headers_mut().remove(SHELF),
    };
    copy
}

/// A text cut to the length that the reason and the description of a dead letter may have. The broker counts as .NET does, in
/// UTF-16.
pub(crate) fn cut(text: &str) -> String {
    let mut units = 0;
    text.chars()
        .take_while(|c| {
            units += c.len_utf16();
            units <= MAX_CHARS
        })
        .collect()
}

/// Whether a property says on which shelf a message rests.
pub(crate) fn is_mark(name: &str) -> bool {
    name == SHELF || name == SHELF_OF
}

/// A message that arrived, and what the broker says of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Incoming {
    pub(crate) message: Message,
    pub(crate) sequence_number: i64,
    /// How often it was handed out before, as far as that counts.
    pub(crate) delivery_count: u32,
    pub(crate) locked_until: Option<SystemTime>,
    /// When it came into its entity, by the broker's clock.
    pub(crate) enqueued_at: Option<SystemTime>,
    /// In a dead-letter queue: why it is there.
    pub(crate) dead_letter_reason: Option<String>,
    pub(crate) dead_letter_description: Option<String>,
    /// Its mark, in a dead-letter queue. Anybody may have written it: see [`Incoming::is_parked`].
    pub(crate) shelf: Option<String>,
    pub(crate) shelf_of: Option<String>,
    /// How often it had come back when its history was last written on it, and on which message that was.
    pub(crate) counted: Option<String>,
}

impl Incoming {
    /// Whether redrive parked it in the dead-letter queue where it lies. A mark is believed that names this very message, or
    /// where redrive itself dead-lettered it: then the reason is that of its history, as on what older versions parked.
    pub(crate) fn is_parked(&self) -> bool {
        let number = self.shelf_of.as_deref().and_then(|number| number.parse().ok());
        let is_believed = number == Some(self.sequence_number) || self.is_dead_lettered_by_redrive();
        self.shelf.as_deref() == Some(PARKED) && is_believed
    }

    /// Whether the reason of its dead-lettering is that of its history.
    pub(crate) fn is_dead_lettered_by_redrive(&self) -> bool {
        let of_story = self.message.headers().get(names::REASON).and_then(Value::as_str).map(cut);
        of_story.is_some() && of_story == self.dead_letter_reason
    }

    /// What copies of it are told apart by, as it lies in this entity.
    pub(crate) fn source<'a>(&self, entity: &'a str) -> Source<'a> {
        Source { entity, sequence_number: self.sequence_number, enqueued_at: self.enqueued_at }
    }

    /// How often it had come back when its last failure was written on it. What was written on another message, of which
    /// this one is a copy, says nothing.
    pub(crate) fn counted_before(&self) -> u32 {
        let counted = self.counted.as_deref().and_then(|counted| counted.split_once(':'));
        let counted = counted.filter(|(number, _)| number.parse() == Ok(self.sequence_number));
        let counted = counted.and_then(|(_, count)| count.parse().ok());
        counted.filter(|&count| count <= self.delivery_count).unwrap_or_default()
    }
}

/// What [`Incoming::counted_before`] is read from.
pub(crate) fn counted(sequence_number: i64, count: u32) -> (String, SimpleValue) {
    (COUNTED.to_owned(), SimpleValue::String(format!("{sequence_number}:{count}")))
}

/// How a copy is sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outgoing {
    /// An id for the copy; the message's own goes with it. `None`: the message's own is its id.
    pub(crate) copy_id: Option<String>,
    /// When it is to be enqueued; `None`: now.
    pub(crate) enqueue_at: Option<SystemTime>,
}

/// Reads a message. Total: whatever is on it, something is read.
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
    take_together(&mut headers);
    annotations::note_symbols(symbols, &mut headers);
    let mut properties = properties(wire.properties.unwrap_or_default(), &mut headers);
    let copied = take_copy_of(&mut headers, &mut properties);
    properties.persistent = Some(header.durable);
    properties.expiration =
        header.ttl.filter(|&ttl| ttl != FOR_EVER).map(|ttl| Duration::from_millis(ttl.into()));
    take_own(&mut headers, &mut properties);
    if header.priority != Priority::default() && properties.priority.is_none() {
        properties.priority = Some(header.priority.0);
    }
    read_annotations(wire.message_annotations, &mut headers, &mut found);
    found.dead_letter_reason = take_text(&mut headers, REASON);
    found.dead_letter_description = take_text(&mut headers, DESCRIPTION);
    found.shelf = take_text(&mut headers, SHELF);
    found.shelf_of = take_text(&mut headers, SHELF_OF);
    found.counted = take_text(&mut headers, COUNTED);
    let body = body::read(wire.body, &mut headers, copied);
    found.message = Message::from_parts(body, headers, properties);
    found
}

/// Writes a message.
pub(crate) fn outgoing(message: &Message, outgoing: Outgoing) -> WireMessage {
    let properties = message.properties();
    let mut headers = message.headers().clone();
    let mut wire_properties = WireProperties {
        message_id: properties.id.clone().map(MessageId::String),
        user_id: user_id(properties, &mut headers).map(Into::into),
        to: properties.to.clone(),
        subject: properties.kind.clone(),
        reply_to: properties.reply_to.clone(),
        correlation_id: properties.correlation_id.clone().map(MessageId::String),
        content_type: properties.content_type.clone().map(Symbol::from),
        content_encoding: properties.content_encoding.clone().map(Symbol::from),
        absolute_expiry_time: None,
        creation_time: properties.timestamp.map(|time| time.unix_millis().into()),
        group_id: properties.session_id.clone(),
        group_sequence: None,
        reply_to_group_id: take_text(&mut headers, REPLY_TO_SESSION),
    };
    if let Some(id) = outgoing.copy_id {
        if let Some(MessageId::String(original)) = wire_properties.message_id.take() {
            headers.insert(COPY_OF, original);
        }
        wire_properties.message_id = Some(MessageId::String(id));
    }
    for (name, value) in [(APP_ID, &properties.app_id), (CLUSTER_ID, &properties.cluster_id)] {
        if let Some(value) = value {
            headers.insert(name, value.clone());
        }
    }
    if let Some(priority) = properties.priority {
        headers.insert(PRIORITY, priority);
    }
    let mut message_annotations = OrderedMap::new();
    annotations::write_annotations(&mut headers, &mut message_annotations);
    if let Some(key) = take_text(&mut headers, PARTITION_KEY) {
        message_annotations.insert(symbol("x-opt-partition-key"), Amqp::String(key));
    }
    if let Some(time) = outgoing.enqueue_at {
        let millis = Timestamp::from(time).unix_millis();
        message_annotations.insert(symbol(SCHEDULED_AT), Amqp::Timestamp(millis.into()));
    }
    let body = body::write(message.body(), &mut headers);
    Wire {
        header: Some(Header {
            durable: true,
            priority: properties.priority.map_or_else(Priority::default, Priority),
            ttl: properties.expiration.map(|ttl| u32::try_from(ttl.as_millis()).unwrap_or(FOR_EVER)),
            ..Header::default()
        }),
        delivery_annotations: None,
        message_annotations: (!message_annotations.is_empty())
            .then_some(MessageAnnotations(message_annotations)),
        properties: Some(wire_properties),
        application_properties: Some(annotations::write_properties(headers)),
        body,
        footer: None,
    }
}

/// What a native dead-lettering must change on the message that was delivered, so that it reads like `copy`.
pub(crate) fn changes(delivered: &Headers, copy: &Message) -> Vec<(String, SimpleValue)> {
    let headers = copy.headers();
    let set = headers
        .iter()
        .filter(|(name, value)| delivered.get(name) != Some(value))
        .map(|(name, value)| (name.to_owned(), to_property(value)));
    let removed = delivered
        .iter()
        .filter(|(name, _)| !headers.contains(name))
        .map(|(name, _)| (name.to_owned(), SimpleValue::String(REMOVED.to_owned())));
    set.chain(removed).collect()
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

/// The header that a property becomes. What stands for a place of its own is that only where it comes from there.
fn header_name(property: String) -> String {
    if NEVER_SENT.contains(&property.as_str()) { format!("{FORGED}{property}") } else { property }
}

/// Gives a copy the id of its original; answers whether it is one. Anybody may have written the property, or taken it over from
/// a copy: where the id of the message is not that of such a copy, it keeps its id.
fn take_copy_of(headers: &mut Headers, properties: &mut Properties) -> bool {
    let Some(original) = headers.remove(COPY_OF) else { return false };
    match (&properties.id, original) {
        (Some(id), Value::String(original)) if is_copy_id(id, &original) => {
            properties.id = Some(original);
            true
        }
        (_, original) => {
            headers.insert(format!("{FORGED}{COPY_OF}"), original);
            false
        }
    }
}

/// What has no place of its own on the wire, and what a copy carries of its original.
fn take_own(headers: &mut Headers, properties: &mut Properties) {
    if properties.id.is_none() {
        // Dead-lettered under an id that it was given on arrival.
        properties.id = headers.get(names::MESSAGE_ID).and_then(Value::as_str).map(str::to_owned);
    }
    take_carried(headers, properties);
    properties.app_id = take_text(headers, APP_ID);
    properties.cluster_id = take_text(headers, CLUSTER_ID);
    if let Some(Value::U8(priority)) = headers.get(PRIORITY) {
        properties.priority = Some(*priority);
        headers.remove(PRIORITY);
    }
    // Written down by redrive, the publisher's expiration counts by that; what is left is the entity's own.
    if headers.contains(names::EXPIRATION) {
        properties.expiration = None;
    }
}

/// What HTTP had no place for. Nothing that is there otherwise gives way to it: anybody may have written it.
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

/// Properties whose names no header of HTTP can have.
fn take_together(headers: &mut Headers) {
    let Some(Value::Table(together)) = headers.get(carried::TOGETHER).cloned() else { return };
    headers.remove(carried::TOGETHER);
    for (name, value) in together.iter() {
        let name = header_name(name.to_owned());
        if !headers.contains(&name) {
            headers.insert(name, value.clone());
        }
    }
}

/// One that is not UTF-8 is a header here.
fn user_id(properties: &Properties, headers: &mut Headers) -> Option<Vec<u8>> {
    match (&properties.user_id, headers.get(carried::USER_ID)) {
        (Some(user), _) => Some(user.clone().into_bytes()),
        (None, Some(Value::Bytes(user))) => {
            let user = user.to_vec();
            headers.remove(carried::USER_ID);
            Some(user)
        }
        (None, _) => None,
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

fn take_text(headers: &mut Headers, name: &str) -> Option<String> {
    headers.get(name)?.as_str()?;
    match headers.remove(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

fn symbol(name: &str) -> OwnedKey {
    OwnedKey::Symbol(Symbol::from(name))
}

#[cfg(test)]
mod tests;
