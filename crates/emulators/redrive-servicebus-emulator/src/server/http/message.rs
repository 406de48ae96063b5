//! Converts between a message and headers with a body.

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use serde_json::Value as Any;

use super::properties::{self, ascii, http_date};
use crate::amqp::{Message, Value};
use crate::broker::{Delivered, Timestamp};

const BROKER_PROPERTIES: HeaderName = HeaderName::from_static("brokerproperties");
/// Content type that Service Bus reports for a message without one.
const NO_CONTENT_TYPE: HeaderValue =
    HeaderValue::from_static("application/atom+xml;type=entry;charset=utf-8");
/// Headers of HTTP itself; every other header is a property of the message.
const OF_HTTP: &[&str] = &[
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "authorization",
    "brokerproperties",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "date",
    "expect",
    "from",
    "host",
    "keep-alive",
    "location",
    "origin",
    "pragma",
    "proxy-authorization",
    "proxy-connection",
    "referer",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "via",
    "warning",
    "servicebusauthorization",
    "servicebussupplementaryauthorization",
];

/// Headers that decide how the response is read: a property with such a name cannot be delivered.
const FRAMING: &[&str] =
    &["connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];

/// Reads the message of a request.
pub(super) fn read(headers: &HeaderMap, body: Bytes, now: Timestamp) -> Result<Message, String> {
    let mut message = Message::with_data(body);
    if let Some(value) = headers.get(&BROKER_PROPERTIES) {
        properties::read(text(value)?, &mut message, now)?;
    }
    if let Some(value) = headers.get(CONTENT_TYPE) {
        message.properties.content_type = Some(text(value)?.to_owned());
    }
    for (name, value) in headers {
        if !OF_HTTP.contains(&name.as_str()) {
            message.application_properties.insert(name.as_str(), property(text(value)?));
        }
    }
    Ok(message)
}

/// Writes the headers of a delivered message. Leaves out the message's own properties that are no valid header names or values; the
/// names lose their case.
pub(super) fn write(delivered: &Delivered, location: Option<&str>, headers: &mut HeaderMap) {
    let message = &delivered.message;
    let content_type = message.properties.content_type.as_deref();
    let content_type = content_type.and_then(|text| HeaderValue::from_str(text).ok());
    headers.insert(CONTENT_TYPE, content_type.unwrap_or(NO_CONTENT_TYPE));
    if let Ok(value) = HeaderValue::try_from(properties::write(delivered)) {
        headers.insert(BROKER_PROPERTIES, value);
    }
    if let Some(value) = location.and_then(|location| HeaderValue::from_str(location).ok()) {
        headers.insert(LOCATION, value);
    }
    for (name, value) in message.application_properties.iter() {
        let name = name.as_text().and_then(|name| HeaderName::try_from(name).ok());
        let name = name.filter(|name| !FRAMING.contains(&name.as_str()));
        let value = written(value).and_then(|value| HeaderValue::try_from(value).ok());
        if let (Some(name), Some(value)) = (name, value) {
            // Beside a header of HTTP with this name.
            headers.append(name, value);
        }
    }
}

/// Returns the bytes of the body; for a text, its UTF-8.
pub(super) fn body(message: &Message) -> Bytes {
    match message.value() {
        Some(Value::String(text)) => text.into(),
        Some(Value::Binary(bytes)) => bytes,
        Some(Value::Null) => Bytes::new(),
        Some(_) => message.body.clone(),
        None => match message.data() {
            Ok(sections) if sections.len() == 1 => sections.into_iter().next().unwrap_or_default(),
            Ok(sections) => sections.concat().into(),
            Err(_) => message.body.clone(),
        },
    }
}

/// Parses a text in quotes, a number, or a boolean. Anything else is taken as text.
fn property(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(Any::String(text)) => Value::String(text),
        Ok(Any::Bool(yes)) => Value::Bool(yes),
        Ok(Any::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => Value::Long(number),
            (None, Some(number)) => Value::Double(number),
            (None, None) => Value::String(text.to_owned()),
        },
        _ => Value::String(text.to_owned()),
    }
}

fn written(value: &Value) -> Option<String> {
    let quoted = |text: String| Some(ascii(&Any::String(text)));
    match value {
        Value::String(text) | Value::Symbol(text) => quoted(text.clone()),
        Value::Bool(yes) => Some(yes.to_string()),
        Value::Timestamp(millis) => quoted(http_date(Timestamp::from_millis(*millis))),
        Value::Uuid(uuid) => quoted(uuid.to_string()),
        Value::Char(c) => quoted(c.to_string()),
        Value::Float(number) => {
            serde_json::Number::from_f64(f64::from(*number)).map(|number| number.to_string())
        }
        Value::Double(number) => serde_json::Number::from_f64(*number).map(|number| number.to_string()),
        Value::Ulong(number) => Some(number.to_string()),
        number => number.as_i64().map(|number| number.to_string()),
    }
}

fn text(value: &HeaderValue) -> Result<&str, String> {
    std::str::from_utf8(value.as_bytes()).map_err(|_| "A header is not UTF-8.".to_owned())
}
