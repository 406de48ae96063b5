//! Combines the records of the consumer with the content of the broker.

use std::collections::BTreeMap;

use redrive_core::{Disposition, Message};

use crate::record::{AttemptRecord, End, MessageRecord, PublishedMessage, TestRun};

/// Returns what happened to these messages, and to all others that were delivered.
pub(crate) fn record(
    sent: &[Message],
    mut attempts: Vec<AttemptRecord>,
    places: &[(End, Message)],
    published: BTreeMap<String, Vec<PublishedMessage>>,
) -> TestRun {
    let mut messages = Vec::new();
    let id_of = |message: &Message| message.id().unwrap_or_default().to_owned();
    for known in sent {
        let id = id_of(known);
        if !messages.iter().any(|message: &MessageRecord| message.id == id) {
            let attempts = attempts.extract_if(.., |attempt| attempt.id() == id).collect();
            messages.push(message_record(id, known, attempts, places));
        }
    }
    while let Some(first) = attempts.first() {
        let (id, known) = (first.id().to_owned(), first.message.clone());
        let attempts = attempts.extract_if(.., |attempt| attempt.id() == id).collect();
        messages.push(message_record(id, &known, attempts, places));
    }
    TestRun { messages, published }
}

fn message_record(
    id: String,
    known: &Message,
    attempts: Vec<AttemptRecord>,
    places: &[(End, Message)],
) -> MessageRecord {
    let place = places.iter().find(|(_, message)| message.id() == Some(&id)).cloned();
    let (end, message) = place.unwrap_or_else(|| {
        let last = attempts.last();
        let is_handled = last.is_some_and(|last| last.disposition == Some(Disposition::Ack));
        let end = if is_handled { End::Acknowledged } else { End::Discarded };
        (end, last.map_or(known, |last| &last.message).clone())
    });
    MessageRecord { id, attempts, end, message }
}
