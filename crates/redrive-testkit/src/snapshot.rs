//! Combines the records of the consumer with the content of the broker.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use redrive_core::{Disposition, Message, Shelf};
use redrive_memory::{MemoryBroker, QueuedMessage};

use crate::record::{AttemptRecord, End, MessageRecord, PublishedMessage, TestRun};

/// The current content of a queue.
pub(crate) struct Snapshot<'a> {
    pub(crate) broker: &'a MemoryBroker,
    pub(crate) queue: &'a str,
    /// Times are measured from here.
    pub(crate) began: SystemTime,
}

impl Snapshot<'_> {
    /// Returns what happened to these messages, and to all others that were delivered.
    pub(crate) fn record(&self, sent: &[Message], mut attempts: Vec<AttemptRecord>) -> TestRun {
        let places = self.places();
        let mut messages = Vec::new();
        let id_of = |message: &Message| message.id().unwrap_or_default().to_owned();
        for known in sent {
            let id = id_of(known);
            if !messages.iter().any(|message: &MessageRecord| message.id == id) {
                let attempts = attempts.extract_if(.., |attempt| attempt.id() == id).collect();
                messages.push(message_record(id, known, attempts, &places));
            }
        }
        while let Some(first) = attempts.first() {
            let (id, known) = (first.id().to_owned(), first.message.clone());
            let attempts = attempts.extract_if(.., |attempt| attempt.id() == id).collect();
            messages.push(message_record(id, &known, attempts, &places));
        }
        TestRun { messages, published: self.published() }
    }

    /// Returns where the broker has messages of the queue. Of several with one id, the first counts.
    fn places(&self) -> Vec<(End, Message)> {
        let shelf =
            |shelf, end| self.broker.shelf(self.queue, shelf).into_iter().map(move |message| (end, message));
        let queued = self.broker.queued(self.queue).into_iter().map(|queued| {
            let end = match queued.due_at {
                Some(due_at) => End::Waiting(self.time(due_at)),
                None if queued.in_flight => End::InFlight,
                None => End::Ready,
            };
            (end, queued.message)
        });
        let shelved = shelf(Shelf::DeadLetter, End::DeadLettered).chain(shelf(Shelf::Parking, End::Parked));
        queued.chain(shelved).collect()
    }

    fn published(&self) -> BTreeMap<String, Vec<PublishedMessage>> {
        let shown = |queued: QueuedMessage| PublishedMessage {
            message: queued.message,
            due: queued.due_at.map(|due_at| self.time(due_at)),
        };
        let others = self.broker.queues().into_iter().filter(|queue| queue != self.queue);
        let published = others.map(|queue| {
            let messages: Vec<_> = self.broker.queued(&queue).into_iter().map(shown).collect();
            (queue, messages)
        });
        published.filter(|(_, messages)| !messages.is_empty()).collect()
    }

    fn time(&self, time: SystemTime) -> Duration {
        time.duration_since(self.began).unwrap_or_default()
    }
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
