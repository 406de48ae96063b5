//! Converts received messages.

use std::time::Duration;

use redrive_amqp091 as amqp;
use redrive_core::{Bytes, Headers, Message, Properties, Timestamp, Value};
use redrive_transport::text::take_text;

use super::{PERSISTENT, SESSION_ID, TO, unwrap_headers};

/// Converts a message from the payload of its content header, and its body. Also returns what was left out of the headers, if they are
/// not complete.
pub(crate) fn read(header: &Bytes, body: Bytes) -> (Message, Option<String>) {
    match amqp::ContentHeader::decode(header) {
        Ok(amqp::ContentHeader { properties, .. }) => message(properties, body),
        Err(_) => {
            let why = "all of them: RabbitMQ sent what is no content header".to_owned();
            (Message::from_parts(body, Headers::new(), Properties::default()), Some(why))
        }
    }
}

/// Does the same from decoded properties.
pub(super) fn message(properties: amqp::Properties, body: Bytes) -> (Message, Option<String>) {
    let mut headers = properties.headers.as_ref().map(headers_from).unwrap_or_default();
    let left_out = unwrap_headers(&mut headers);
    let text = |text: Option<amqp::ShortStr>| text.map(|text| text.to_str().into_owned());
    let mut mine = Properties::default();
    mine.id = text(properties.message_id);
    mine.correlation_id = text(properties.correlation_id);
    mine.content_type = text(properties.content_type);
    mine.content_encoding = text(properties.content_encoding);
    mine.reply_to = text(properties.reply_to);
    mine.kind = text(properties.kind);
    mine.to = take_text(&mut headers, TO);
    mine.user_id = text(properties.user_id);
    mine.app_id = text(properties.app_id);
    mine.cluster_id = text(properties.cluster_id);
    mine.session_id = take_text(&mut headers, SESSION_ID);
    mine.priority = properties.priority;
    mine.timestamp = properties.timestamp.map(Timestamp::from_unix_seconds);
    mine.expiration = properties.expiration.and_then(|text| milliseconds(&text.to_str()));
    mine.persistent = properties.delivery_mode.map(|mode| mode == PERSISTENT);
    (Message::from_parts(body, headers, mine), left_out)
}

fn headers_from(table: &amqp::RawTable) -> Headers {
    entries(table.entries())
}

fn entries(entries: impl Iterator<Item = (amqp::ShortStr, amqp::Value)>) -> Headers {
    entries.map(|(name, value)| (name.to_str().into_owned(), value_from(value))).collect()
}

fn value_from(value: amqp::Value) -> Value {
    match value {
        amqp::Value::Bool(flag) => Value::Bool(flag),
        amqp::Value::I8(n) => Value::I8(n),
        amqp::Value::U8(n) => Value::U8(n),
        amqp::Value::I16(n) => Value::I16(n),
        amqp::Value::U16(n) => Value::U16(n),
        amqp::Value::I32(n) => Value::I32(n),
        amqp::Value::U32(n) => Value::U32(n),
        amqp::Value::I64(n) => Value::I64(n),
        // RabbitMQ knows signed 64-bit integers only.
        amqp::Value::U64(n) => Value::I64(n.cast_signed()),
        amqp::Value::F32(n) => Value::F32(n),
        amqp::Value::F64(n) => Value::F64(n),
        amqp::Value::Decimal(n) => Value::Decimal { scale: n.scale, value: n.value.cast_unsigned() },
        amqp::Value::LongStr(bytes) => match std::str::from_utf8(&bytes) {
            Ok(text) => Value::String(text.to_owned()),
            Err(_) => Value::RawString(bytes),
        },
        amqp::Value::Binary(bytes) => Value::Bytes(bytes),
        amqp::Value::Timestamp(seconds) => Value::Timestamp(Timestamp::from_unix_seconds(seconds)),
        amqp::Value::Array(items) => Value::List(items.into_iter().map(value_from).collect()),
        amqp::Value::Table(table) => Value::Table(entries(table.into_iter())),
        amqp::Value::Void => Value::Null,
    }
}

fn milliseconds(text: &str) -> Option<Duration> {
    text.trim().parse().ok().map(Duration::from_millis)
}
