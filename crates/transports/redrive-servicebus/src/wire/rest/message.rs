//! Converts messages to HTTP headers and bodies and back:
//! [the table](https://github.com/redrive-rs/redrive/blob/main/docs/transports/servicebus.md#rest).

use std::time::{Duration, SystemTime};

use azure_messaging_servicebus::service_bus::SettableBrokerProperties;
use fe2o3_amqp_types::messaging::annotations::OwnedKey;
use fe2o3_amqp_types::messaging::{
    ApplicationProperties, Batch, Body, Data, Header, Message, MessageAnnotations, MessageId, Properties,
};
use fe2o3_amqp_types::primitives::{OrderedMap, SimpleValue, Symbol};
use redrive_core::{Headers, Timestamp, Value};
use redrive_transport::text::typed_text;
use serde_amqp::Value as Amqp;
use serde_json::Value as Any;
use time::OffsetDateTime;
use uuid::Uuid;

use super::client::{Answer, Content};
use super::properties::{BrokerProperties, ascii, time};
use super::{Refusal, WireError};
use crate::convert::body;
use crate::convert::values::{from_property, to_property};
use crate::convert::{self, DESCRIPTION, Incoming, REASON, WireMessage, carried};
use crate::entity::ASSUMED_LOCK_DURATION;

/// The most properties that have a header line of their own. All others are packed into one line.
const MAX_PROPERTY_LINES: usize = 48;
/// The content type that Service Bus reports for a message without one.
const NO_CONTENT_TYPE: &str = "application/atom+xml;type=entry";
/// The time by which a lock may be shorter than reported: HTTP reports times in whole seconds.
const ROUNDING: Duration = Duration::from_secs(1);
/// The headers that are no properties of a message. A property with such a name is packed when it is sent: a proxy may act on it. In
/// a response the form of the value tells it from a header of HTTP.
const HTTP_HEADERS: &[&str] = &[
    "accept",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "alt-svc",
    "authorization",
    "brokerproperties",
    "cache-control",
    "connection",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-range",
    "content-security-policy",
    "content-type",
    "cookie",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "keep-alive",
    "last-modified",
    "link",
    "location",
    "max-forwards",
    "origin",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "referer",
    "refresh",
    "retry-after",
    "server",
    "set-cookie",
    "strict-transport-security",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
];

/// A message that a request locked.
#[derive(Debug)]
pub(super) struct PeekLocked {
    pub(super) incoming: Incoming,
    pub(super) lock: Uuid,
    /// The duration of a lock in this entity.
    pub(super) lasts: Duration,
}

/// Writes a message.
pub(super) fn outgoing(message: WireMessage) -> Result<Content, WireError> {
    let mut properties = message.application_properties.unwrap_or_default().0;
    let mut annotations = message.message_annotations.map(|annotations| annotations.0).unwrap_or_default();
    let mut annotation = |name: &str| annotations.swap_remove(&OwnedKey::Symbol(Symbol::from(name)));
    let mut written = message.properties.unwrap_or_default();
    let ttl = message.header.and_then(|header| header.ttl).filter(|&ttl| ttl != u32::MAX);
    let broker = SettableBrokerProperties {
        message_id: written.message_id.take().map(convert::id_text),
        correlation_id: written.correlation_id.take().map(convert::id_text),
        session_id: written.group_id.take(),
        reply_to_session_id: written.reply_to_group_id.take(),
        label: written.subject.take(),
        reply_to: written.reply_to.take(),
        to: written.to.take(),
        time_to_live: ttl.map(|millis| Duration::from_millis(millis.into())),
        partition_key: match annotation("x-opt-partition-key") {
            Some(Amqp::String(key)) => Some(key),
            _ => None,
        },
        scheduled_enqueue_time_utc: match annotation("x-opt-scheduled-enqueue-time") {
            Some(Amqp::Timestamp(time)) => Some(whole_seconds(time.milliseconds())),
            _ => None,
        },
    };
    let content_type = written.content_type.take().map(Symbol::into_inner);
    let (content_type, unusual_content_type) =
        content_type.map_or((None, None), |text| match is_plain(&text) && !text.is_empty() {
            true => (Some(text), None),
            false => (None, Some(text)),
        });
    // HTTP has no headers for these fields, or its headers have another meaning.
    let lacking_in_http = [
        (carried::CONTENT_TYPE, unusual_content_type.map(SimpleValue::String)),
        (
            carried::CONTENT_ENCODING,
            written.content_encoding.take().map(|encoding| SimpleValue::String(encoding.into_inner())),
        ),
        (carried::TIMESTAMP, written.creation_time.take().map(SimpleValue::Timestamp)),
        (carried::USER_ID, written.user_id.take().map(SimpleValue::Binary)),
    ];
    for (name, value) in lacking_in_http {
        if let Some(value) = value {
            properties.insert(name.to_owned(), value);
        }
    }
    let mut headers = Headers::new();
    let body = body::read(message.body, &mut headers, false);
    for (name, value) in headers.iter() {
        properties.insert(name.to_owned(), to_property(value));
    }
    let broker = serde_json::to_string(&broker)
        .map_err(|error| WireError::new(Refusal::Other, format!("the message cannot be written: {error}")))?;
    let mut lines = lines(properties);
    lines.push(("brokerproperties".to_owned(), ascii(&broker)));
    Ok(Content { content_type, lines, body })
}

/// Reads a message. Returns `None` if the response does not name its lock.
pub(super) fn incoming(answer: Answer, now: SystemTime) -> Option<PeekLocked> {
    let Answer { mut headers, body, .. } = answer;
    let mut take = |name: &str| {
        let of_http = |(known, value): &(String, String)| known == name && is_of_http(name, value);
        headers.iter().position(of_http).map(|at| headers.swap_remove(at).1)
    };
    let broker = BrokerProperties::read(&take("brokerproperties").unwrap_or_default());
    let location = take("location").unwrap_or_default();
    let content_type = take("content-type").filter(|text| !text.starts_with(NO_CONTENT_TYPE));
    let response_time = take("date").and_then(|text| time(&text));
    let (number, lock) = of_location(&location);
    let lock = broker.lock().or(lock)?;
    let sequence_number = broker.number("SequenceNumber").or(number)?;
    let lasts = lasts(broker.time("LockedUntilUtc"), response_time.unwrap_or(now));
    let mut annotations = OrderedMap::new();
    let mut annotate = |name: &str, value| {
        annotations.insert(OwnedKey::Symbol(Symbol::from(name)), value);
    };
    annotate("x-opt-sequence-number", Amqp::Long(sequence_number));
    let until = Timestamp::from(now + lasts).unix_millis();
    annotate("x-opt-locked-until", Amqp::Timestamp(until.into()));
    if let Some(at) = broker.time("EnqueuedTimeUtc") {
        annotate("x-opt-enqueued-time", Amqp::Timestamp(Timestamp::from(at).unix_millis().into()));
    }
    if let Some(key) = broker.text("PartitionKey") {
        annotate("x-opt-partition-key", Amqp::String(key));
    }
    let mut properties = OrderedMap::new();
    for (name, text) in headers {
        if !is_of_http(&name, &text) {
            properties.insert(known_name(name), property(text));
        }
    }
    let millis = broker.time_to_live().map(|time| u32::try_from(time.as_millis()).unwrap_or(u32::MAX));
    let message: WireMessage = Message {
        header: Some(Header {
            durable: true,
            ttl: millis,
            delivery_count: broker.delivery_count(),
            ..Header::default()
        }),
        delivery_annotations: None,
        message_annotations: Some(MessageAnnotations(annotations)),
        properties: Some(Properties {
            message_id: broker.text("MessageId").map(MessageId::String),
            correlation_id: broker.text("CorrelationId").map(MessageId::String),
            subject: broker.text("Label"),
            to: broker.text("To"),
            reply_to: broker.text("ReplyTo"),
            group_id: broker.text("SessionId"),
            reply_to_group_id: broker.text("ReplyToSessionId"),
            content_type: content_type.map(Symbol::from),
            ..Properties::default()
        }),
        application_properties: Some(ApplicationProperties(properties)),
        body: Body::Data(Batch::new(vec![Data(body.to_vec().into())])),
        footer: None,
    };
    Some(PeekLocked { incoming: convert::incoming(message), lock, lasts })
}

/// Writes properties as header lines. HTTP header names have no upper case and few characters: a property whose name would not
/// survive is packed, with its name, into one line for all such properties.
fn lines(properties: OrderedMap<String, SimpleValue>) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    let mut packed = Headers::new();
    for (name, value) in properties {
        if is_name(&name) && lines.len() < MAX_PROPERTY_LINES {
            lines.push((name, line(value)));
        } else {
            packed.insert(name, from_property(value));
        }
    }
    if !packed.is_empty() {
        let text = typed_text(&Value::Table(packed));
        lines.push((carried::PACKED.to_owned(), line(SimpleValue::String(text))));
    }
    lines
}

/// Writes a property as a header line. Texts are quoted, and booleans and the numbers of the API are not. Other types are text
/// with a type prefix.
fn line(value: SimpleValue) -> String {
    let json = match value {
        SimpleValue::String(text) => Any::String(text),
        SimpleValue::Symbol(symbol) => Any::String(symbol.into_inner()),
        SimpleValue::Bool(yes) => Any::Bool(yes),
        SimpleValue::Long(number) => Any::from(number),
        other => match from_property(other) {
            Value::F64(number) if number.is_finite() => Any::from(number),
            value => Any::String(typed_text(&value)),
        },
    };
    ascii(&json.to_string())
}

/// Reads a header line as a property. A line that is not in the format of the API is text.
fn property(text: String) -> SimpleValue {
    match serde_json::from_str(&text) {
        Ok(Any::String(text)) => SimpleValue::String(text),
        Ok(Any::Bool(yes)) => SimpleValue::Bool(yes),
        Ok(Any::Number(number)) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), ..) => SimpleValue::Long(number),
            (None, Some(number), _) => SimpleValue::Ulong(number),
            (None, None, Some(number)) => SimpleValue::Double(number.into()),
            _ => SimpleValue::String(text),
        },
        _ => SimpleValue::String(text),
    }
}

/// Restores the upper case of the broker's property names, which HTTP headers lose.
fn known_name(name: String) -> String {
    let known = [REASON, DESCRIPTION].into_iter().find(|known| known.eq_ignore_ascii_case(&name));
    known.map_or(name, str::to_owned)
}

/// Returns true if a line of a response is a header of HTTP, and no property of the message. The service writes properties as JSON:
/// texts in quotes, numbers, and booleans. No header of HTTP in a response has such a value, but for the length of the body. Where it
/// cannot be told (`age: 5`, written by a proxy), the line is a property: none must be lost.
fn is_of_http(name: &str, value: &str) -> bool {
    let json = || serde_json::from_str(value).ok();
    name == "content-length"
        || is_http_name(name) && !matches!(json(), Some(Any::String(_) | Any::Bool(_) | Any::Number(_)))
}

fn is_http_name(name: &str) -> bool {
    HTTP_HEADERS.contains(&name) || name.starts_with("x-ms-")
}

fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
    let is_free = !is_http_name(name) && name != carried::PACKED;
    (1..=128).contains(&name.len()) && name.chars().all(fits) && is_free
}

fn is_plain(text: &str) -> bool {
    text.chars().all(|c| matches!(c, ' '..='~')) && !text.starts_with(NO_CONTENT_TYPE) && text.trim() == text
}

/// Reads the sequence number and the lock of `…/messages/NUMBER/LOCK`. The host is ignored: requests with tokens only go to the
/// namespace.
fn of_location(location: &str) -> (Option<i64>, Option<Uuid>) {
    let mut parts = location.rsplit('/');
    let lock = parts.next().and_then(|lock| Uuid::try_parse(lock).ok());
    (parts.next().and_then(|number| number.parse().ok()), lock)
}

/// Returns the duration of a lock. It uses only the broker's clock if the response has its time.
fn lasts(until: Option<SystemTime>, response_time: SystemTime) -> Duration {
    let lasts =
        until.and_then(|until| until.duration_since(response_time).ok()).unwrap_or(ASSUMED_LOCK_DURATION);
    lasts.saturating_sub(ROUNDING).max(Duration::from_millis(500))
}

/// Rounds a time up to whole seconds, the resolution of HTTP: a message must not be enqueued too early.
fn whole_seconds(millis: i64) -> OffsetDateTime {
    let seconds = millis.div_euclid(1000) + i64::from(millis.rem_euclid(1000) > 0);
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
