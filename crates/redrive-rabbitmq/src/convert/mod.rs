//! Converts messages of lapin to messages of redrive and back, and those that are read from frames or written as frames; without loss.

mod frame_size;
mod packed_history;
mod taken;
mod written;

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, DecimalValue, FieldArray, FieldTable, LongString, ShortString};
use redrive_core::{
    Bytes, Headers, Message, Properties, Timestamp, TransportError, TransportErrorKind, Value, header_names,
};
use redrive_transport::text::take_text;

pub(crate) use frame_size::{check_header_size, max_header_bytes};
pub(crate) use taken::taken;
pub(crate) use written::write_properties;

/// Headers for properties of other brokers that AMQP 0-9-1 does not have.
const TO: &str = "redrive-to";
const SESSION_ID: &str = "redrive-session-id";

/// Header that names what was left out of the headers of a message that is too large to be read: for people. It is never stored and
/// never trusted.
const LEFT_OUT: &str = "redrive-left-out";

/// Headers that RabbitMQ writes itself. On a copy, it would interpret them (`CC`, and `x-death` up to 3.12), or they would
/// contradict its own.
const WRITTEN_BY_THE_BROKER: [&str; 6] =
    ["x-delivery-count", "x-acquired-count", "CC", "BCC", "x-stream-offset", "x-opt-delivery-time"];
/// Headers in which RabbitMQ tells how a message died. A copy on a shelf keeps them.
const DEATHS: &str = "x-death";
const DEATHS_PREFIXES: [&str; 2] = ["x-first-death-", "x-last-death-"];

const NOT_PERSISTENT: u8 = 1;
const PERSISTENT: u8 = 2;

/// How a message is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A message of the service: persistent if it does not say otherwise.
    Published,
    /// A copy: persistent whatever it says.
    Copy,
    /// A copy that a consumer stores on a shelf: the same, and it may fill its frame, because the broker adds nothing to it there.
    Shelved,
    /// A copy that waits: the same, and its story is packed.
    WaitingCopy,
    /// A copy that an operator stores on a shelf: persistent, and it keeps what RabbitMQ wrote about its deaths. A queue that
    /// dead-letters nothing does not interpret that, and a redrive removes it.
    OnShelf,
}

impl Form {
    fn delivery_mode(self, properties: &Properties) -> u8 {
        match (self, properties.persistent) {
            (Self::Published, Some(false)) => NOT_PERSISTENT,
            _ => PERSISTENT,
        }
    }
}

/// Converts a received message. Also returns what was left out of its headers, if they are not complete.
pub(crate) fn message(properties: &BasicProperties, body: Vec<u8>) -> (Message, Option<String>) {
    let mut headers = properties.headers().as_ref().map(headers_from).unwrap_or_default();
    let left_out = unwrap_headers(&mut headers);
    let text = |value: &Option<ShortString>| value.as_ref().map(|text| text.as_str().to_owned());
    let mut mine = Properties::default();
    mine.id = text(properties.message_id());
    mine.correlation_id = text(properties.correlation_id());
    mine.content_type = text(properties.content_type());
    mine.content_encoding = text(properties.content_encoding());
    mine.reply_to = text(properties.reply_to());
    mine.kind = text(properties.kind());
    mine.to = take_text(&mut headers, TO);
    mine.user_id = text(properties.user_id());
    mine.app_id = text(properties.app_id());
    mine.cluster_id = text(properties.cluster_id());
    mine.session_id = take_text(&mut headers, SESSION_ID);
    mine.priority = *properties.priority();
    mine.timestamp = properties.timestamp().map(Timestamp::from_unix_seconds);
    mine.expiration = properties.expiration().as_ref().and_then(|text| milliseconds(text.as_str()));
    mine.persistent = properties.delivery_mode().map(|mode| mode == PERSISTENT);
    (Message::from_parts(Bytes::from(body), headers, mine), left_out)
}

/// Returns the name of the header that replaces left-out ones. It differs in each process, so that no publisher can write it.
pub(crate) fn left_out_mark() -> &'static str {
    static MARK: LazyLock<String> = LazyLock::new(|| format!("redrive-left-out-{:016x}", fastrand::u64(..)));
    &MARK
}

/// Reads what is not a header of the message itself: the mark of what was left out, which stays for people, and the packed story.
fn unwrap_headers(headers: &mut Headers) -> Option<String> {
    packed_history::unpack(headers);
    let left_out = take_text(headers, left_out_mark())?;
    headers.insert(LEFT_OUT, &*left_out);
    Some(left_out)
}

/// Prepares a message for publishing: removes the broker's own headers, and moves a `user_id` that the broker would refuse into
/// a header.
pub(crate) fn for_publishing(mut message: Message, user: &str, form: Form) -> Message {
    if message.headers().iter().any(|(name, _)| is_removed(name, form)) {
        message.headers_mut().retain(|name, _| !is_removed(name, form));
    }
    if message.properties().user_id.as_deref().is_some_and(|id| id != user) {
        let id = message.properties_mut().user_id.take().unwrap_or_default();
        if !message.headers().contains(header_names::USER_ID) {
            message.headers_mut().insert(header_names::USER_ID, id);
        }
    }
    for (name, value) in
        [(TO, message.properties().to.clone()), (SESSION_ID, message.properties().session_id.clone())]
    {
        if let Some(value) = value {
            message.headers_mut().insert(name, value);
        }
    }
    message
}

/// Turns the expiration of a message into a header, so that it does not expire in its target queue. A consumer reads the header as a
/// deadline.
pub(crate) fn expiration_as_header(message: &mut Message) {
    if let Some(expiration) = message.properties().expiration {
        message.properties_mut().expiration = None;
        let millis = i64::try_from(expiration.as_millis()).unwrap_or(i64::MAX);
        message.headers_mut().insert(header_names::EXPIRATION, millis);
    }
}

/// Converts the properties and headers of a message that went through [`for_publishing`].
pub(crate) fn properties(message: &Message, form: Form) -> Result<BasicProperties, TransportError> {
    let mine = message.properties();
    let mut out = BasicProperties::default();
    let mut set = |value: &Option<String>, name, set: fn(BasicProperties, ShortString) -> BasicProperties| {
        if let Some(value) = value {
            out = set(std::mem::take(&mut out), short(value, name)?);
        }
        Ok::<_, TransportError>(())
    };
    set(&mine.id, "message-id", BasicProperties::with_message_id)?;
    set(&mine.correlation_id, "correlation-id", BasicProperties::with_correlation_id)?;
    set(&mine.content_type, "content-type", BasicProperties::with_content_type)?;
    set(&mine.content_encoding, "content-encoding", BasicProperties::with_content_encoding)?;
    set(&mine.reply_to, "reply-to", BasicProperties::with_reply_to)?;
    set(&mine.kind, "type", BasicProperties::with_type)?;
    set(&mine.user_id, "user-id", BasicProperties::with_user_id)?;
    set(&mine.app_id, "app-id", BasicProperties::with_app_id)?;
    set(&mine.cluster_id, "cluster-id", BasicProperties::with_cluster_id)?;
    set(
        &mine.expiration.map(|wait| wait.as_millis().to_string()),
        "expiration",
        BasicProperties::with_expiration,
    )?;
    if let Some(priority) = mine.priority {
        out = out.with_priority(priority);
    }
    if let Some(timestamp) = mine.timestamp {
        out = out.with_timestamp(timestamp.unix_seconds());
    }
    out = out.with_delivery_mode(form.delivery_mode(mine));
    if let Some(packed) = packed_history::packed(message.headers(), form) {
        out = out.with_headers(table_from(packed.iter())?);
    } else if !message.headers().is_empty() {
        out = out.with_headers(table_from(message.headers().iter())?);
    }
    Ok(out)
}

/// Converts a value of a queue argument or header.
pub(crate) fn value_to(value: &Value) -> Result<AMQPValue, TransportError> {
    Ok(match value {
        Value::Null => AMQPValue::Void,
        Value::Bool(flag) => AMQPValue::Boolean(*flag),
        Value::I8(n) => AMQPValue::ShortShortInt(*n),
        Value::U8(n) => AMQPValue::ShortShortUInt(*n),
        Value::I16(n) => AMQPValue::ShortInt(*n),
        Value::U16(n) => AMQPValue::ShortUInt(*n),
        Value::I32(n) => AMQPValue::LongInt(*n),
        Value::U32(n) => AMQPValue::LongUInt(*n),
        Value::I64(n) => AMQPValue::LongLongInt(*n),
        // RabbitMQ's AMQP 0-9-1 has no unsigned 64-bit integer.
        Value::U64(n) => match i64::try_from(*n) {
            Ok(n) => AMQPValue::LongLongInt(n),
            Err(_) => AMQPValue::LongString(n.to_string().into()),
        },
        // RabbitMQ closes the connection over a number that is not finite.
        Value::F32(n) if n.is_finite() => AMQPValue::Float(*n),
        Value::F64(n) if n.is_finite() => AMQPValue::Double(*n),
        Value::Decimal { scale, value } => {
            AMQPValue::DecimalValue(DecimalValue { scale: *scale, value: *value })
        }
        Value::Char(c) => AMQPValue::LongString(c.to_string().into()),
        Value::Timestamp(time) => AMQPValue::Timestamp(time.unix_seconds()),
        Value::Uuid(bytes) => AMQPValue::ByteArray(bytes.to_vec().into()),
        Value::String(text) => AMQPValue::LongString(text.as_str().into()),
        Value::RawString(bytes) => AMQPValue::LongString(LongString::from(bytes.to_vec())),
        Value::Bytes(bytes) => AMQPValue::ByteArray(bytes.to_vec().into()),
        Value::List(items) => {
            let items = items.iter().map(value_to).collect::<Result<Vec<_>, _>>()?;
            AMQPValue::FieldArray(FieldArray::from(items))
        }
        Value::Table(table) => AMQPValue::FieldTable(table_from(table.iter())?),
        other => return Err(not_carried(other)),
    })
}

fn not_carried(value: &Value) -> TransportError {
    let message = format!("RabbitMQ cannot carry the header value {value:?}");
    TransportError::new(TransportErrorKind::Refused, message)
}

/// Converts a text of at most 255 bytes.
pub(crate) fn short(text: &str, what: &str) -> Result<ShortString, TransportError> {
    check_short(text, what)?;
    Ok(ShortString::from(text))
}

/// Checks a text that [`short`] will convert later.
pub(crate) fn check_short(text: &str, what: &str) -> Result<(), TransportError> {
    if text.len() <= usize::from(u8::MAX) {
        return Ok(());
    }
    let message = format!("`{what}` takes {} bytes, and AMQP 0-9-1 carries 255 at most", text.len());
    Err(TransportError::new(TransportErrorKind::TooLarge, message))
}

fn is_removed(name: &str, form: Form) -> bool {
    // Most names are redrive's own.
    if name.starts_with(header_names::PREFIX) {
        return false;
    }
    WRITTEN_BY_THE_BROKER.contains(&name) || form != Form::OnShelf && tells_of_deaths(name)
}

fn tells_of_deaths(name: &str) -> bool {
    name == DEATHS || DEATHS_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn headers_from(table: &FieldTable) -> Headers {
    table.into_iter().map(|(name, value)| (name.as_str(), value_from(value))).collect()
}

fn value_from(value: &AMQPValue) -> Value {
    match value {
        AMQPValue::Boolean(flag) => Value::Bool(*flag),
        AMQPValue::ShortShortInt(n) => Value::I8(*n),
        AMQPValue::ShortShortUInt(n) => Value::U8(*n),
        AMQPValue::ShortInt(n) => Value::I16(*n),
        AMQPValue::ShortUInt(n) => Value::U16(*n),
        AMQPValue::LongInt(n) => Value::I32(*n),
        AMQPValue::LongUInt(n) => Value::U32(*n),
        AMQPValue::LongLongInt(n) => Value::I64(*n),
        AMQPValue::Float(n) => Value::F32(*n),
        AMQPValue::Double(n) => Value::F64(*n),
        AMQPValue::DecimalValue(n) => Value::Decimal { scale: n.scale, value: n.value },
        AMQPValue::ShortString(text) => Value::String(text.as_str().to_owned()),
        AMQPValue::LongString(text) => match std::str::from_utf8(text.as_bytes()) {
            Ok(text) => Value::String(text.to_owned()),
            Err(_) => Value::RawString(Bytes::copy_from_slice(text.as_bytes())),
        },
        AMQPValue::FieldArray(items) => Value::List(items.as_slice().iter().map(value_from).collect()),
        AMQPValue::Timestamp(seconds) => Value::Timestamp(Timestamp::from_unix_seconds(*seconds)),
        AMQPValue::FieldTable(table) => Value::Table(headers_from(table)),
        AMQPValue::ByteArray(bytes) => Value::Bytes(Bytes::copy_from_slice(bytes.as_slice())),
        AMQPValue::Void => Value::Null,
    }
}

fn table_from<'a>(headers: impl Iterator<Item = (&'a str, &'a Value)>) -> Result<FieldTable, TransportError> {
    let entry = |(name, value)| Ok((short(name, "the name of a header")?, value_to(value)?));
    // Building the table at once costs half of inserting the entries one by one.
    let entries = headers.map(entry).collect::<Result<BTreeMap<_, _>, TransportError>>()?;
    Ok(entries.into())
}

fn milliseconds(text: &str) -> Option<Duration> {
    text.trim().parse().ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests;
