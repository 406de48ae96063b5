//! Converts messages that are published.

use redrive_amqp091 as amqp;
use redrive_core::{Bytes, Message, Timestamp, TransportError, TransportErrorKind, Value};

use super::{Form, check_short, packed_history};

/// Converts the properties and headers of a message that went through [`for_publishing`](super::for_publishing).
pub(crate) fn properties(message: &Message, form: Form) -> Result<amqp::Properties, TransportError> {
    let mine = message.properties();
    let headers = message.headers();
    let expiration = mine.expiration.map(|wait| wait.as_millis().to_string());
    Ok(amqp::Properties {
        content_type: text(&mine.content_type, "content-type")?,
        content_encoding: text(&mine.content_encoding, "content-encoding")?,
        headers: match packed_history::packed(headers, form) {
            Some(packed) => Some(table(packed.iter())?),
            None if headers.is_empty() => None,
            None => Some(table(headers.iter())?),
        },
        delivery_mode: Some(form.delivery_mode(mine)),
        priority: mine.priority,
        correlation_id: text(&mine.correlation_id, "correlation-id")?,
        reply_to: text(&mine.reply_to, "reply-to")?,
        expiration: text(&expiration, "expiration")?,
        message_id: text(&mine.id, "message-id")?,
        timestamp: mine.timestamp.map(Timestamp::unix_seconds),
        kind: text(&mine.kind, "type")?,
        user_id: text(&mine.user_id, "user-id")?,
        app_id: text(&mine.app_id, "app-id")?,
        cluster_id: text(&mine.cluster_id, "cluster-id")?,
    })
}

fn text(text: &Option<String>, name: &str) -> Result<Option<amqp::ShortStr>, TransportError> {
    text.as_deref().map(|text| short(text, name)).transpose()
}

fn short(text: &str, what: &str) -> Result<amqp::ShortStr, TransportError> {
    check_short(text, what)?;
    Ok(amqp::ShortStr::truncated(text))
}

/// Converts headers, or arguments of a queue.
pub(super) fn table<'a>(
    headers: impl Iterator<Item = (&'a str, &'a Value)>,
) -> Result<amqp::RawTable, TransportError> {
    entries(headers).collect()
}

fn entries<'a>(
    headers: impl Iterator<Item = (&'a str, &'a Value)>,
) -> impl Iterator<Item = Result<(amqp::ShortStr, amqp::Value), TransportError>> {
    headers.map(|(name, value)| Ok((short(name, "the name of a header")?, value_to(value)?)))
}

fn value_to(value: &Value) -> Result<amqp::Value, TransportError> {
    let text = |text: &str| amqp::Value::from(text);
    let bytes = |bytes: &[u8]| amqp::Value::Binary(Bytes::copy_from_slice(bytes));
    Ok(match value {
        Value::Null => amqp::Value::Void,
        Value::Bool(flag) => amqp::Value::Bool(*flag),
        Value::I8(n) => amqp::Value::I8(*n),
        Value::U8(n) => amqp::Value::U8(*n),
        Value::I16(n) => amqp::Value::I16(*n),
        Value::U16(n) => amqp::Value::U16(*n),
        Value::I32(n) => amqp::Value::I32(*n),
        Value::U32(n) => amqp::Value::U32(*n),
        Value::I64(n) => amqp::Value::I64(*n),
        // RabbitMQ's AMQP 0-9-1 has no unsigned 64-bit integer.
        Value::U64(n) => i64::try_from(*n).map_or_else(|_| text(&n.to_string()), amqp::Value::I64),
        // RabbitMQ closes the connection over a number that is not finite.
        Value::F32(n) if n.is_finite() => amqp::Value::F32(*n),
        Value::F64(n) if n.is_finite() => amqp::Value::F64(*n),
        Value::Decimal { scale, value } => {
            amqp::Value::Decimal(amqp::Decimal { scale: *scale, value: value.cast_signed() })
        }
        Value::Char(c) => text(c.encode_utf8(&mut [0; 4])),
        Value::Timestamp(time) => amqp::Value::Timestamp(time.unix_seconds()),
        Value::Uuid(uuid) => bytes(uuid),
        Value::String(string) => text(string),
        Value::RawString(bytes) => amqp::Value::LongStr(bytes.clone()),
        Value::Bytes(bytes) => amqp::Value::Binary(bytes.clone()),
        Value::List(items) => amqp::Value::Array(items.iter().map(value_to).collect::<Result<_, _>>()?),
        Value::Table(table) => amqp::Value::Table(entries(table.iter()).collect::<Result<_, _>>()?),
        other => {
            let message = format!("RabbitMQ cannot carry the header value {other:?}");
            return Err(TransportError::new(TransportErrorKind::Refused, message));
        }
    })
}
