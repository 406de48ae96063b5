//! The requests to the `$management` node of an entity.
//! The operations: <https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-request-response>.

use std::time::SystemTime;

use fe2o3_amqp::transaction::Transaction;
use fe2o3_amqp_types::messaging::Body;
use fe2o3_amqp_types::messaging::annotations::OwnedKey;
use fe2o3_amqp_types::messaging::message::__private::Serializable;
use fe2o3_amqp_types::messaging::message::DecodeIntoMessage as _;
use fe2o3_amqp_types::primitives::{Array, OrderedMap, SimpleValue, Symbol};
use redrive_core::Timestamp;
use serde_amqp::Value;
use tracing::warn;
use uuid::Uuid;

use super::requests::{Reply, Requests, unreadable_reply};
use super::waits::REPLY_WAIT;
use super::{SessionRef, SettleAs, SettleKind};
use crate::convert::{SCHEDULED_AT, WireMessage, id_text};
use crate::error::{Refusal, WireError};

const DISPOSITION: &str = "com.microsoft:update-disposition";
const RENEW_LOCK: &str = "com.microsoft:renew-lock";
const PEEK: &str = "com.microsoft:peek-message";
const SCHEDULE: &str = "com.microsoft:schedule-message";

/// Settles locked messages.
pub(super) async fn settle(
    node: &Requests,
    locks: &[Uuid],
    how: &SettleAs,
    transaction: Option<&Transaction<'_>>,
) -> Result<(), WireError> {
    let status = match &how.kind {
        SettleKind::Complete => "completed",
        SettleKind::Abandon => "abandoned",
        SettleKind::DeadLetter { .. } => "suspended",
    };
    let mut body = vec![("disposition-status", text(status)), ("lock-tokens", uuids(locks))];
    if let SettleKind::DeadLetter { reason, description } = &how.kind {
        let texts = [("deadletter-reason", reason), ("deadletter-description", description)];
        let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
        body.extend(texts.map(|(name, value)| (name, text(value))));
    }
    if !how.properties.is_empty() {
        let properties = how.properties.iter();
        let properties = properties.map(|(name, value)| (text(name), Value::from(value.clone())));
        body.push(("properties-to-modify", Value::Map(properties.collect())));
    }
    ask(node, DISPOSITION, body, how.session.as_ref(), transaction).await.map(|_| ())
}

/// Renews locks, and returns the expiry time of each.
pub(super) async fn renew(node: &Requests, locks: &[Uuid]) -> Result<Vec<SystemTime>, WireError> {
    let mut reply = ask(node, RENEW_LOCK, vec![("lock-tokens", uuids(locks))], None, None).await?;
    let times = items(reply.take("expirations")).into_iter().filter_map(time).collect::<Vec<_>>();
    if times.len() == locks.len() { Ok(times) } else { Err(unreadable_reply(RENEW_LOCK)) }
}

/// Returns messages from this sequence number on, without locking them. Messages that cannot be read are skipped, so that one of
/// them does not hide the others. If none of them can be read, that is an error, because an empty result means that there are no
/// more.
pub(super) async fn peek(node: &Requests, from: i64, count: i32) -> Result<Vec<WireMessage>, WireError> {
    let body = vec![("from-sequence-number", Value::Long(from)), ("message-count", Value::Int(count))];
    let mut reply = match ask(node, PEEK, body, None, None).await {
        Ok(reply) => reply,
        // Some brokers answer with 404 if there are no messages.
        Err(error) if error.refusal == Refusal::Other && error.to_string().starts_with("404") => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    let entries = items(reply.take("messages"));
    let found = entries.len();
    let messages: Vec<_> = entries.into_iter().filter_map(decode).collect();
    if messages.len() < found {
        warn!(
            unreadable = found - messages.len(),
            "some of the peeked messages cannot be read; they are skipped"
        );
    }
    if messages.is_empty() && found > 0 { Err(unreadable_reply(PEEK)) } else { Ok(messages) }
}

/// Schedules a message within a transaction.
pub(super) async fn schedule(
    node: &Requests,
    message: &WireMessage,
    transaction: &Transaction<'_>,
) -> Result<(), WireError> {
    let mut message = message.clone();
    let annotations = &mut message.message_annotations.get_or_insert_default().0;
    if !annotations.contains_key(&OwnedKey::from(Symbol::from(SCHEDULED_AT))) {
        let millis = Timestamp::from(SystemTime::now()).unix_millis();
        annotations.insert(Symbol::from(SCHEDULED_AT).into(), Value::Timestamp(millis.into()));
    }
    let properties = message.properties.clone().unwrap_or_default();
    let mut entry = vec![("message-id", text(&properties.message_id.map(id_text).unwrap_or_default()))];
    entry.extend(properties.group_id.map(|session| ("session-id", Value::String(session))));
    let encoded = serde_amqp::to_vec(&Serializable(message))
        .map_err(|error| WireError::new(Refusal::Other, error.to_string()))?;
    entry.push(("message", Value::Binary(encoded.into())));
    let entry = entry.into_iter().map(|(name, value)| (text(name), value)).collect();
    let body = vec![("messages", Value::List(vec![Value::Map(entry)]))];
    ask(node, SCHEDULE, body, None, Some(transaction)).await.map(drop)
}

/// Sends a request and checks the answer. A request about messages of a session names the session and the link that holds it.
pub(super) async fn ask(
    node: &Requests,
    operation: &str,
    mut body: Vec<(&str, Value)>,
    session: Option<&SessionRef>,
    transaction: Option<&Transaction<'_>>,
) -> Result<Reply, WireError> {
    let mut properties = OrderedMap::new();
    properties.insert("operation".to_owned(), SimpleValue::String(operation.to_owned()));
    let millis = u32::try_from(REPLY_WAIT.as_millis()).unwrap_or(u32::MAX);
    properties.insert("com.microsoft:server-timeout".to_owned(), SimpleValue::Uint(millis));
    if let Some(session) = session {
        properties.insert("associated-link-name".to_owned(), SimpleValue::String(session.link.to_string()));
        body.push(("session-id", text(&session.id)));
    }
    let body = body.into_iter().map(|(name, value)| (text(name), value)).collect();
    node.request(properties, Value::Map(body), transaction).await?.check()
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn uuids(locks: &[Uuid]) -> Value {
    Value::Array(Array(locks.iter().map(|lock| Value::Uuid((*lock.as_bytes()).into())).collect()))
}

fn items(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::List(items)) => items,
        Some(Value::Array(items)) => items.into_inner(),
        _ => Vec::new(),
    }
}

pub(super) fn time(value: Value) -> Option<SystemTime> {
    match value {
        Value::Timestamp(time) => Timestamp::from_unix_millis(time.milliseconds()).to_system_time(),
        _ => None,
    }
}

fn decode(entry: Value) -> Option<WireMessage> {
    let Value::Map(mut entry) = entry else { return None };
    match entry.swap_remove(&text("message"))? {
        Value::Binary(bytes) => {
            let reader = serde_amqp::read::SliceReader::new(&bytes);
            Body::<Value>::decode_message_from_reader(reader).ok()
        }
        _ => None,
    }
}
