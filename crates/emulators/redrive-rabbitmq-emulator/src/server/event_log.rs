//! Logs what no client is told.

use std::collections::BTreeMap;

use crate::broker::{Event, EventKind};

/// Logs the events of one call of the broker: one line for the messages of a queue that were dropped for the same reason.
pub(super) fn log(events: Vec<Event>) {
    let mut dropped: BTreeMap<(String, String, String), (usize, String)> = BTreeMap::new();
    for Event { vhost, kind, .. } in events {
        match kind {
            EventKind::Dropped { queue, reason, message } => {
                let id = message.properties.message_id.as_ref().map(ToString::to_string).unwrap_or_default();
                let first = || (0, format!("id '{id}', routing key '{}'", message.routing_key));
                dropped.entry((vhost, queue, reason.to_string())).or_insert_with(first).0 += 1;
            }
            EventKind::DeadLetteringIgnored { queue } => {
                tracing::warn!(
                    vhost,
                    queue,
                    "dead-lettering is switched off: the queue's dead-letter exchange is ignored"
                );
            }
            EventKind::ConsumerTimedOut { queue } => {
                tracing::warn!(vhost, queue, "a consumer did not settle a delivery in time");
            }
            EventKind::QueueExpired { queue, messages } => {
                tracing::warn!(
                    vhost,
                    queue,
                    messages,
                    "the queue was unused for the time of `x-expires`, and is deleted"
                );
            }
            EventKind::DeadLettered { .. } => {}
        }
    }
    for ((vhost, queue, reason), (messages, first)) in dropped {
        tracing::warn!(vhost, queue, messages, first, "dropped: {reason}");
    }
}
