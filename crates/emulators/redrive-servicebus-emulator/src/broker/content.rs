//! The parts of a message that the broker reads, and the few that it writes.

use std::fmt::Write as _;
use std::time::Duration;

use redrive_emulator_host::Timestamp;

use crate::amqp::{Map, Message, Value};

const SCHEDULED: &str = "x-opt-scheduled-enqueue-time";

/// A message to be sent, with its size on the wire.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Incoming {
    /// The message.
    pub message: Message,
    /// Size that counts against the limits, in bytes.
    pub size: u64,
}

impl Incoming {
    /// Creates it from a message that had `size` bytes on the wire.
    #[must_use]
    pub fn new(message: Message, size: usize) -> Self {
        Self { message, size: size as u64 }
    }

    /// Returns the size of everything but the body.
    pub(super) fn header_size(&self) -> u64 {
        self.size.saturating_sub(self.message.body.len() as u64)
    }
}

/// Measures the message by encoding it.
impl From<Message> for Incoming {
    fn from(message: Message) -> Self {
        let size = message.to_bytes().len();
        Self::new(message, size)
    }
}

/// Returns the message id as text, whatever its type; `None` if there is none.
pub(super) fn message_id(message: &Message) -> Option<String> {
    let id = &message.properties.message_id;
    (!id.is_null()).then(|| id_text(id))
}

/// Returns an id as text. It may be a string, a number, a uuid or bytes.
pub(super) fn id_text(id: &Value) -> String {
    match id {
        Value::String(id) | Value::Symbol(id) => id.clone(),
        Value::Ulong(id) => id.to_string(),
        Value::Uuid(id) => id.to_string(),
        Value::Binary(id) => id.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }),
        _ => String::new(),
    }
}

pub(super) fn session_id(message: &Message) -> Option<&str> {
    message.properties.group_id.as_deref()
}

pub(super) fn scheduled_at(message: &Message) -> Option<Timestamp> {
    message.message_annotations.get(SCHEDULED)?.as_i64().map(Timestamp::from_millis)
}

/// Returns the time to live that the sender asks for. A header holds at most 49 days: SDKs write longer times as the difference of
/// two properties.
pub(crate) fn time_to_live(message: &Message) -> Option<Duration> {
    let properties = &message.properties;
    let written_out =
        properties.absolute_expiry_time.zip(properties.creation_time).and_then(|(end, start)| {
            u64::try_from(end.saturating_sub(start)).ok().filter(|&millis| millis > u64::from(u32::MAX))
        });
    match (message.header.ttl, written_out) {
        (None | Some(u32::MAX), Some(millis)) => Some(Duration::from_millis(millis)),
        (Some(u32::MAX), None) | (None, None) => None,
        (Some(millis), _) => Some(Duration::from_millis(millis.into())),
    }
}

/// Copies the properties to the message, except null ones.
pub(super) fn merge(properties: &Map, into: &mut Message) {
    for (key, value) in properties.iter().filter(|(_, value)| !value.is_null()) {
        if let Some(key) = key.as_text() {
            into.application_properties.insert(key, value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_live_beyond_49_days_is_the_difference_of_two_properties() {
        let mut message = Message::default();
        assert_eq!(time_to_live(&message), None);
        message.header.ttl = Some(u32::MAX);
        assert_eq!(time_to_live(&message), None);
        message.properties.creation_time = Some(1_000);
        message.properties.absolute_expiry_time = Some(1_000 + 5_000_000_000);
        assert_eq!(time_to_live(&message), Some(Duration::from_millis(5_000_000_000)));
        message.header.ttl = Some(7);
        assert_eq!(time_to_live(&message), Some(Duration::from_millis(7)));
    }

    #[test]
    fn ids_of_every_type_are_text() {
        let mut message = Message::default();
        assert_eq!(message_id(&message), None);
        for (id, text) in [
            (Value::Ulong(7), "7"),
            (Value::from("a"), "a"),
            (Value::Binary(bytes::Bytes::from_static(&[1, 0xfe])), "01fe"),
        ] {
            message.properties.message_id = id;
            assert_eq!(message_id(&message).as_deref(), Some(text));
        }
    }

    #[test]
    fn a_null_property_is_not_written() {
        let mut message = Message::default();
        merge(&Map::new().with("a", 1i32).with("b", Value::Null), &mut message);
        assert_eq!(message.application_properties.len(), 1);
    }
}
