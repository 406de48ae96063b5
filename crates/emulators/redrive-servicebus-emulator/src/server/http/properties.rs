//! `BrokerProperties`: the properties of a message that only Service Bus has, as JSON in one header.
//! <https://learn.microsoft.com/rest/api/servicebus/message-headers-and-properties>.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Map as Json, Value as Any};

use crate::amqp::{Message, Value};
use crate::broker::{Delivered, Place, Timestamp, time_to_live};

/// .NET's `TimeSpan.MaxValue` in seconds: unlimited.
const FOR_EVER: f64 = 922_337_203_685.477_5;
const SCHEDULED: &str = "x-opt-scheduled-enqueue-time";
const PARTITION_KEY: &str = "x-opt-partition-key";

/// Applies them to a message that is sent. Unknown properties are ignored, as in Azure.
pub(super) fn read(text: &str, message: &mut Message, now: Timestamp) -> Result<(), String> {
    let json: Json<String, Any> = serde_json::from_str(text)
        .map_err(|error| format!("BrokerProperties is no JSON object: {error}."))?;
    let text = |name: &str| json.get(name).and_then(Any::as_str).map(str::to_owned);
    let properties = &mut message.properties;
    properties.message_id = text("MessageId").into();
    properties.correlation_id = text("CorrelationId").into();
    properties.group_id = text("SessionId");
    properties.reply_to_group_id = text("ReplyToSessionId");
    properties.subject = text("Label");
    properties.reply_to = text("ReplyTo");
    properties.to = text("To");
    if let Some(time) = json.get("TimeToLive").filter(|time| !time.is_null()) {
        let seconds = time.as_f64().filter(|seconds| *seconds > 0.0);
        let seconds =
            seconds.ok_or_else(|| format!("TimeToLive is a number of seconds above 0, not {time}."))?;
        write_time_to_live(seconds, message, now);
    }
    if let Some(key) = text("PartitionKey") {
        message.message_annotations.insert_symbol(PARTITION_KEY, key);
    }
    if let Some(time) = text("ScheduledEnqueueTimeUtc") {
        let time = from_http_date(&time)
            .ok_or_else(|| format!("ScheduledEnqueueTimeUtc is no time as HTTP writes it: '{time}'."))?;
        message.message_annotations.insert_symbol(SCHEDULED, Value::Timestamp(time.millis()));
    }
    Ok(())
}

/// Writes it as SDKs do: the header holds at most 49 days, the difference of two properties any time.
fn write_time_to_live(seconds: f64, message: &mut Message, now: Timestamp) {
    if seconds >= FOR_EVER {
        return;
    }
    let time = Duration::from_secs_f64(seconds).max(Duration::from_millis(1));
    message.header.ttl = Some(u32::try_from(time.as_millis()).unwrap_or(u32::MAX));
    if message.header.ttl == Some(u32::MAX) {
        message.properties.creation_time = Some(now.millis());
        message.properties.absolute_expiry_time = Some((now + time).millis());
    }
}

/// Returns those of a delivered message, in ASCII.
pub(super) fn write(delivered: &Delivered) -> String {
    let message = &*delivered.message;
    let properties = &message.properties;
    let mut json = Json::new();
    // HTTP counts the first delivery as 1, AMQP counts the deliveries before.
    json.insert("DeliveryCount".into(), (i64::from(delivered.delivery_count) + 1).into());
    json.insert("SequenceNumber".into(), delivered.sequence_number.into());
    json.insert("EnqueuedSequenceNumber".into(), delivered.enqueued_sequence_number.into());
    json.insert("EnqueuedTimeUtc".into(), http_date(delivered.enqueued_at).into());
    let lives = time_to_live(message).map_or(FOR_EVER, |time| time.as_secs_f64());
    json.insert("TimeToLive".into(), lives.into());
    let state = match delivered.place {
        Place::Active => "Active",
        Place::Deferred => "Deferred",
        Place::Scheduled(_) => "Scheduled",
    };
    json.insert("State".into(), state.into());
    if let (Some(token), Some(until)) = (delivered.lock_token, delivered.locked_until) {
        json.insert("LockToken".into(), token.to_string().into());
        json.insert("LockedUntilUtc".into(), http_date(until).into());
    }
    if let Some(time) = message.message_annotations.get(SCHEDULED).and_then(Value::as_i64) {
        json.insert("ScheduledEnqueueTimeUtc".into(), http_date(Timestamp::from_millis(time)).into());
    }
    let id = |value: &Value| {
        value.as_text().map(str::to_owned).or_else(|| value.as_uuid().map(|id| id.to_string()))
    };
    let key = message.message_annotations.get(PARTITION_KEY).and_then(Value::as_text);
    for (name, text) in [
        ("MessageId", id(&properties.message_id)),
        ("CorrelationId", id(&properties.correlation_id)),
        ("SessionId", properties.group_id.clone()),
        ("ReplyToSessionId", properties.reply_to_group_id.clone()),
        ("Label", properties.subject.clone()),
        ("ReplyTo", properties.reply_to.clone()),
        ("To", properties.to.clone()),
        ("PartitionKey", key.map(str::to_owned)),
    ] {
        if let Some(text) = text {
            json.insert(name.into(), text.into());
        }
    }
    ascii(&Any::Object(json))
}

/// Writes JSON with every character that a header cannot contain as `\u….`.
pub(super) fn ascii(json: &Any) -> String {
    let text = json.to_string();
    let mut written = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ' '..='~' => written.push(c),
            c => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    written.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    written
}

/// Formats a time for HTTP, in whole seconds.
pub(super) fn http_date(time: Timestamp) -> String {
    let since = Duration::from_millis(u64::try_from(time.millis()).unwrap_or(0));
    // HTTP has no dates after the year 9999.
    const LAST: Duration = Duration::from_secs(253_402_300_799);
    httpdate::fmt_http_date(UNIX_EPOCH + since.min(LAST))
}

/// Parses a time. Clients write `GMT` or `+0000`.
fn from_http_date(text: &str) -> Option<Timestamp> {
    let text = text.trim().replace("+0000", "GMT");
    let since = httpdate::parse_http_date(&text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp::from_millis(i64::try_from(since.as_millis()).ok()?))
}
