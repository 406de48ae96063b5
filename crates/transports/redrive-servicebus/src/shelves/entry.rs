//! The view of a message on a shelf.

use redrive_core::shelves::Shelved;

use super::place::{Marks, Place};
use crate::convert::{Incoming, SetAside};

/// A message on a shelf, as operators see it.
pub(super) struct SeenEntry {
    pub(super) sequence_number: i64,
    pub(super) set_aside: Option<SetAside>,
    pub(super) shelved: Shelved,
}

impl SeenEntry {
    pub(super) fn new(incoming: &Incoming, place: &Place) -> Self {
        let mut message = incoming.message.clone();
        if place.shows_reason {
            message = incoming.with_reason_of_others(message);
        }
        let mut shelved = Shelved::new(place.handle(incoming), message);
        shelved.shelved_at = match place.marks {
            Marks::Unused | Marks::Trusted => incoming.enqueued_at,
            // The enqueue time of a dead-lettered message is the time when it came into its original queue.
            Marks::Unverified => {
                shelved.history.last_failed_at.filter(|_| incoming.is_dead_lettered_by_redrive())
            }
        };
        let of_others = incoming.reason_of_others().map(|text| Some(text?.as_str()?.to_owned()));
        [shelved.broker_reason, shelved.broker_description] = of_others;
        Self { sequence_number: incoming.sequence_number, set_aside: incoming.set_aside, shelved }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use redrive_core::shelves::Selection;
    use redrive_core::{Message, Reason, Shelf, header_names as names};

    use super::*;

    const FAILED: &str = "2026-01-02T03:04:05Z";

    fn seen(message: Message, marks: Marks, reason: &str) -> Shelved {
        let incoming = Incoming {
            message,
            dead_letter_reason: Some(reason.to_owned()),
            dead_letter_description: Some("no such customer".to_owned()),
            enqueued_at: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(9)),
            ..Incoming::default()
        };
        let path = "orders/$DeadLetterQueue".to_owned();
        let place = Place { path, marks, shelf: Shelf::DeadLetter, shows_reason: false };
        SeenEntry::new(&incoming, &place).shelved
    }

    #[test]
    fn what_others_dead_lettered_shows_their_reason_and_description() {
        let seen = seen(Message::new(""), Marks::Unverified, "Invalid");
        assert_eq!(seen.broker_reason.as_deref(), Some("Invalid"));
        assert_eq!(seen.broker_description.as_deref(), Some("no such customer"));
        assert!(Selection::Reason("Invalid".to_owned()).includes(&seen));
    }

    #[test]
    fn the_story_of_earlier_failures_stays_beside_what_others_say() {
        let message = Message::new("")
            .with_header(names::REASON, "RetryableError")
            .with_header(names::LAST_FAILED_AT, FAILED);
        let seen = seen(message, Marks::Unverified, "MaxDeliveryCountExceeded");
        assert_eq!(seen.history.reason.as_ref().map(Reason::as_str), Some("RetryableError"));
        assert_eq!(seen.broker_reason.as_deref(), Some("MaxDeliveryCountExceeded"));
        assert_eq!(seen.shelved_at, None, "it failed before, and nothing tells when it was dead-lettered");
    }

    #[test]
    fn what_redrive_dead_lettered_tells_its_own_story_only() {
        let message =
            Message::new("").with_header(names::REASON, "Broken").with_header(names::LAST_FAILED_AT, FAILED);
        let shown = seen(message.clone(), Marks::Unverified, "Broken");
        assert_eq!((&shown.broker_reason, &shown.broker_description), (&None, &None));
        assert_eq!(shown.shelved_at, shown.history.last_failed_at);
        assert_ne!(seen(message, Marks::Trusted, "Broken").shelved_at, shown.shelved_at, "the queue tells");
    }
}
