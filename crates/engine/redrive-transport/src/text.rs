//! Converts headers to text and back, for brokers whose headers are text.
//!
//! A string is written unchanged. Every other value is written as text that begins with `redrive+json:` and names its type, so
//! that it is read back with that type ([`from_value`], [`to_value`]). [`headers`] and [`message`] convert all headers and
//! properties of a message.
//!
//! The transport decides two things for its broker:
//!
//! - The names that the broker accepts. Refuse also names that it acts on (`Nats-…`, `x-…`), so that no header of a message
//!   controls the broker.
//! - The texts that the broker carries unchanged. Replace the others by their [`typed_text`], for example texts with line breaks
//!   if a line break ends a header.
//!
//! ```
//! use redrive_core::{Message, Value};
//! use redrive_transport::text;
//!
//! let sent = Message::new("1 book").with_id("order-1").with_header("note", "two\nlines").with_header("Nats-Rollup", "all");
//!
//! let mut headers = text::headers(&sent, |name| name.is_ascii() && !name.starts_with("Nats-"));
//! for (_, value) in &mut headers {
//!     if value.contains(['\r', '\n']) || value.trim() != value {
//!         *value = text::typed_text(&Value::String(std::mem::take(value)));
//!     }
//! }
//! assert!(headers.iter().all(|(name, value)| name != "Nats-Rollup" && !value.contains('\n')));
//!
//! let arrived = text::message(headers, sent.body().clone());
//! assert_eq!(arrived, sent);
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use redrive_core::{Headers, Message, Timestamp, Value};
use serde_json::{Value as Json, json};

/// The prefix of a text that encodes a typed value.
const TYPED: &str = "redrive+json:";
/// The prefix of the names of headers that hold properties of the message.
const PROPERTY: &str = "redrive-property-";
/// The name of the header that holds all headers whose names the broker does not accept.
const OTHERS: &str = "redrive-other-headers";

/// Converts a value to text. [`to_value`] returns the same value, with its type.
#[must_use]
pub fn from_value(value: &Value) -> String {
    match value {
        // A string that looks like a typed value would be read back as that value.
        Value::String(text) if typed_value(text).is_none() => text.clone(),
        _ => typed_text(value),
    }
}

/// Converts a text of [`from_value`] or [`typed_text`] to its value. Any other text is a string.
#[must_use]
pub fn to_value(text: String) -> Value {
    typed_value(&text).unwrap_or(Value::String(text))
}

/// Converts a value to text that names its type, even if it is a string.
#[must_use]
pub fn typed_text(value: &Value) -> String {
    format!("{TYPED}{}", to_json(value))
}

/// Converts a text of [`typed_text`] to its value. Returns `None` for a text that [`typed_text`] would write differently: others
/// may have written it.
#[must_use]
pub fn typed_value(text: &str) -> Option<Value> {
    let text = text.strip_prefix(TYPED)?;
    let json: Json = serde_json::from_str(text).ok()?;
    let value = from_json(json.clone())?;
    let written = to_json(&value);
    // Compares lengths, not texts: the order of keys depends on the features of `serde_json`, which may differ at the sender.
    (written == json && written.to_string().len() == text.len()).then_some(value)
}

/// Converts all headers and properties of a message to names and texts. All headers whose names `takes` refuses share one header,
/// `redrive-other-headers`. Each property gets its own header, such as `redrive-property-id`.
///
/// If the broker has its own field for a property, take the property out of the message first, and set it again after
/// [`message`].
#[must_use]
pub fn headers(message: &Message, takes: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let is_reserved = |name: &str| name == OTHERS || name.starts_with(PROPERTY);
    let (mut texts, mut others) = (Vec::new(), Headers::new());
    for (name, value) in message.headers().iter() {
        if takes(name) && !is_reserved(name) {
            texts.push((name.to_owned(), from_value(value)));
        } else {
            others.insert(name, value.clone());
        }
    }
    if !others.is_empty() {
        texts.push((OTHERS.to_owned(), typed_text(&Value::Table(others))));
    }
    let properties = properties(message).into_iter();
    texts.extend(properties.map(|(name, value)| (format!("{PROPERTY}{name}"), from_value(&value))));
    texts
}

/// Builds a message from the texts of [`headers`] and a body. Never fails: a text that redrive did not write becomes a header.
#[must_use]
pub fn message(texts: impl IntoIterator<Item = (String, String)>, body: impl Into<Bytes>) -> Message {
    let mut message = Message::new(body);
    for (name, text) in texts {
        if name == OTHERS
            && let Some(Value::Table(others)) = typed_value(&text)
        {
            for (name, value) in others.iter() {
                message.headers_mut().insert(name, value.clone());
            }
            continue;
        }
        let value = to_value(text);
        let property = name.strip_prefix(PROPERTY);
        if property.is_none_or(|property| set_property(&mut message, property, &value).is_none()) {
            message.headers_mut().insert(name, value);
        }
    }
    message
}

/// Removes and returns a header if it is a string. Otherwise leaves it in place.
pub fn take_text(headers: &mut Headers, name: &str) -> Option<String> {
    headers.get(name)?.as_str()?;
    match headers.remove(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// Returns the properties that are set on a message, as values.
fn properties(message: &Message) -> Vec<(&'static str, Value)> {
    let known = message.properties();
    let millis = |time: std::time::Duration| Value::U64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let others = [
        ("priority", known.priority.map(Value::U8)),
        ("timestamp", known.timestamp.map(Value::Timestamp)),
        ("expiration", known.expiration.map(millis)),
        ("persistent", known.persistent.map(Value::Bool)),
    ];
    let texts = known.texts().map(|(name, text)| (name, text.map(Value::from)));
    texts.chain(others).filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Sets a property. Returns `None` if there is no such property, or if the value has the wrong type.
fn set_property(message: &mut Message, name: &str, value: &Value) -> Option<()> {
    let known = message.properties_mut();
    if let Some((_, text)) = known.texts_mut().find(|(text, _)| *text == name) {
        *text = Some(value.as_str()?.to_owned());
        return Some(());
    }
    match (name, value) {
        ("priority", Value::U8(priority)) => known.priority = Some(*priority),
        ("timestamp", Value::Timestamp(time)) => known.timestamp = Some(*time),
        ("expiration", Value::U64(millis)) => {
            known.expiration = Some(std::time::Duration::from_millis(*millis));
        }
        ("persistent", Value::Bool(persistent)) => known.persistent = Some(*persistent),
        _ => return None,
    }
    Some(())
}

/// Converts null, strings, signed 64-bit integers, booleans and lists directly; everything else to an object whose only key is
/// the type.
fn to_json(value: &Value) -> Json {
    let base64 = |bytes: &[u8]| STANDARD.encode(bytes);
    match value {
        Value::Null => Json::Null,
        Value::Bool(n) => json!(n),
        Value::I64(n) => json!(n),
        Value::String(text) => json!(text),
        Value::List(items) => items.iter().map(to_json).collect(),
        Value::Table(table) => {
            let entries: serde_json::Map<_, _> =
                table.iter().map(|(name, value)| (name.to_owned(), to_json(value))).collect();
            json!({ "table": entries })
        }
        Value::I8(n) => json!({ "i8": n }),
        Value::U8(n) => json!({ "u8": n }),
        Value::I16(n) => json!({ "i16": n }),
        Value::U16(n) => json!({ "u16": n }),
        Value::I32(n) => json!({ "i32": n }),
        Value::U32(n) => json!({ "u32": n }),
        Value::U64(n) => json!({ "u64": n }),
        // As bits: JSON has neither infinities nor NaN.
        Value::F32(n) => json!({ "f32": n.to_bits() }),
        Value::F64(n) => json!({ "f64": n.to_bits() }),
        Value::Decimal { scale, value } => json!({ "decimal": [scale, value] }),
        Value::Char(c) => json!({ "char": c }),
        Value::Timestamp(time) => json!({ "timestamp": time.unix_millis() }),
        Value::Uuid(bytes) => json!({ "uuid": base64(bytes) }),
        Value::RawString(bytes) => json!({ "raw": base64(bytes) }),
        Value::Bytes(bytes) => json!({ "bytes": base64(bytes) }),
        _ => Json::Null,
    }
}

fn from_json(json: Json) -> Option<Value> {
    Some(match json {
        Json::Null => Value::Null,
        Json::Bool(n) => Value::Bool(n),
        Json::Number(n) => Value::I64(n.as_i64()?),
        Json::String(text) => Value::String(text),
        Json::Array(items) => Value::List(items.into_iter().map(from_json).collect::<Option<_>>()?),
        Json::Object(object) => {
            let (kind, value) = object.into_iter().next()?;
            typed(&kind, value)?
        }
    })
}

fn typed(kind: &str, value: Json) -> Option<Value> {
    let bytes = |value: &Json| STANDARD.decode(value.as_str()?).ok();
    Some(match kind {
        "i8" => Value::I8(value.as_i64()?.try_into().ok()?),
        "u8" => Value::U8(value.as_u64()?.try_into().ok()?),
        "i16" => Value::I16(value.as_i64()?.try_into().ok()?),
        "u16" => Value::U16(value.as_u64()?.try_into().ok()?),
        "i32" => Value::I32(value.as_i64()?.try_into().ok()?),
        "u32" => Value::U32(value.as_u64()?.try_into().ok()?),
        "u64" => Value::U64(value.as_u64()?),
        "f32" => Value::F32(f32::from_bits(value.as_u64()?.try_into().ok()?)),
        "f64" => Value::F64(f64::from_bits(value.as_u64()?)),
        "decimal" => Value::Decimal {
            scale: value.get(0)?.as_u64()?.try_into().ok()?,
            value: value.get(1)?.as_u64()?.try_into().ok()?,
        },
        "char" => Value::Char(value.as_str()?.chars().next()?),
        "timestamp" => Value::Timestamp(Timestamp::from_unix_millis(value.as_i64()?)),
        "uuid" => Value::Uuid(bytes(&value)?.try_into().ok()?),
        "raw" => Value::RawString(Bytes::from(bytes(&value)?)),
        "bytes" => Value::Bytes(Bytes::from(bytes(&value)?)),
        "table" => {
            let Json::Object(entries) = value else { return None };
            let entries: Option<Vec<_>> =
                entries.into_iter().map(|(name, value)| Some((name, from_json(value)?))).collect();
            Value::Table(Headers::from_iter(entries?))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_value() -> Vec<Value> {
        let table = Headers::from_iter([
            ("list", Value::List(vec![Value::I64(i64::MIN), "two".into(), Value::List(vec![])])),
            ("empty", Value::Table(Headers::new())),
        ]);
        vec![
            Value::Null,
            Value::Bool(true),
            Value::I8(i8::MIN),
            Value::U8(u8::MAX),
            Value::I16(i16::MIN),
            Value::U16(u16::MAX),
            Value::I32(i32::MIN),
            Value::U32(u32::MAX),
            Value::I64(i64::MIN),
            Value::U64(u64::MAX),
            Value::F32(1.5),
            Value::F64(f64::NEG_INFINITY),
            Value::Decimal { scale: 2, value: 4711 },
            Value::Char('ä'),
            Value::Timestamp(Timestamp::from_unix_millis(-1)),
            Value::Uuid(*b"0123456789abcdef"),
            "Grüße 👋".into(),
            "".into(),
            Value::RawString(Bytes::from_static(b"caf\xe9")),
            Value::Bytes(Bytes::from_static(&[0, 255])),
            Value::Table(table),
        ]
    }

    #[test]
    fn every_value_is_read_back_with_its_type() {
        let all = every_value();
        for value in &all {
            assert_eq!(&to_value(from_value(value)), value);
        }
        let nested = Value::List(all);
        assert_eq!(to_value(from_value(&nested)), nested);
        assert_eq!(from_value(&"blue".into()), "blue");
        let odd = Value::String(typed_text(&Value::U8(7)));
        assert_eq!(to_value(from_value(&odd)), odd, "a string that looks like a typed value");
    }

    #[test]
    fn texts_that_redrive_did_not_write_stay_strings() {
        for text in [
            "redrive+json:",
            "redrive+json:{",
            "redrive+json:{\"u8\":256}",
            "redrive+json:{\"x\":1}",
            "redrive+json:{\"u8\":1,\"x\":2}",
            "redrive+json:{\"char\":\"ab\"}",
            "redrive+json:{\"decimal\":[1,2,3]}",
            "redrive+json: 7",
            "redrive+json:{\"table\":{\"a\":1,\"a\":2}}",
        ] {
            assert_eq!(to_value(text.to_owned()), text.into());
        }
    }

    #[test]
    fn the_order_of_keys_does_not_matter() {
        for text in [r#"{"table":{"a":1,"b":2}}"#, r#"{"table":{"b":2,"a":1}}"#] {
            assert!(
                typed_value(&format!("{TYPED}{text}")).is_some_and(|value| value.as_table().is_some()),
                "{text}"
            );
        }
    }

    fn full() -> Message {
        let mut message = Message::new("body")
            .with_header("tenant", "blue")
            .with_header("Größe", 7_i64)
            .with_header(format!("{PROPERTY}priority"), Value::U8(99))
            .with_header(OTHERS, "too");
        let known = message.properties_mut();
        for (number, (_, text)) in known.texts_mut().enumerate() {
            *text = Some(number.to_string());
        }
        known.session_id = Some("redrive+json:11".to_owned());
        (known.priority, known.persistent) = (Some(12), Some(false));
        known.timestamp = Some(Timestamp::from_unix_millis(13));
        known.expiration = Some(std::time::Duration::from_millis(14));
        message
    }

    #[test]
    fn a_message_is_read_back_with_all_headers_and_properties() {
        let message = full();
        let texts = headers(&message, str::is_ascii);
        assert!(texts.iter().all(|(name, _)| name.is_ascii()));
        assert!(texts.contains(&("tenant".to_owned(), "blue".to_owned())));
        let read = super::message(texts, message.body().clone());
        assert_eq!(read.properties(), message.properties());
        let sorted = |message: &Message| {
            let mut all: Vec<_> =
                message.headers().iter().map(|(name, value)| (name.to_owned(), value.clone())).collect();
            all.sort_by(|a, b| a.0.cmp(&b.0));
            all
        };
        assert_eq!(sorted(&read), sorted(&message));
    }

    #[test]
    fn texts_of_others_become_headers() {
        for (name, text) in [
            (format!("{PROPERTY}priority"), "high"),
            (format!("{PROPERTY}colour"), "red"),
            (OTHERS.to_owned(), "{}"),
        ] {
            let read = message([(name.clone(), text.to_owned())], "");
            assert_eq!(read.headers().get(&name).and_then(Value::as_str), Some(text));
        }
    }
}
