//! The property changes of messages that the broker dead-letters or gives back without a copy, and the marks of shelves.

use std::time::Duration;

use fe2o3_amqp_types::primitives::SimpleValue;
use redrive_core::{Headers, Message, Shelf};

use super::names::{COUNTED, PARKED, REMOVED, SHELF, SHELF_OF};
use super::values::to_property;

/// The most UTF-16 code units that the reason and the description of a dead letter may each have.
pub(super) const MAX_TEXT_UNITS: usize = 4096;

/// Returns the property changes that make the delivered message read like `copy`.
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

/// Returns the properties that mark a message in a dead-letter queue as parked.
pub(crate) fn parked(sequence_number: i64) -> [(String, SimpleValue); 2] {
    let text = |text: &str| SimpleValue::String(text.to_owned());
    [(SHELF.to_owned(), text(PARKED)), (SHELF_OF.to_owned(), text(&sequence_number.to_string()))]
}

/// Returns the property that removes a mark which another program wrote.
pub(crate) fn unmarked() -> (String, SimpleValue) {
    (SHELF.to_owned(), SimpleValue::String(REMOVED.to_owned()))
}

/// Marks a copy for the separate queue of dead letters. Parked messages may be in the same queue, and are marked as parked.
pub(crate) fn marked(mut copy: Message, shelf: Shelf) -> Message {
    match shelf {
        Shelf::Parking => copy.headers_mut().insert(SHELF, PARKED),
        _ => copy.headers_mut().remove(SHELF),
    };
    copy
}

/// Cuts a text to the length that the reason and the description of a dead letter may have. The broker counts UTF-16 code units,
/// as .NET does.
pub(crate) fn cut(text: &str) -> String {
    let mut units = 0;
    text.chars()
        .take_while(|c| {
            units += c.len_utf16();
            units <= MAX_TEXT_UNITS
        })
        .collect()
}

/// Returns true if a property marks the shelf of a message.
pub(crate) fn is_mark(name: &str) -> bool {
    name == SHELF || name == SHELF_OF
}

/// Returns the property that [`Incoming::given_back`](super::Incoming::given_back) reads.
pub(crate) fn counted(sequence_number: i64, count: u32, wait: Duration) -> (String, SimpleValue) {
    let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    (COUNTED.to_owned(), SimpleValue::String(format!("{sequence_number}:{count}:{millis}")))
}
