//! A message that was looked at, and what is shown of it.

use redrive_core::{Headers, Selection, Shelved, Value};

use crate::convert::Incoming;

/// Where the header stands in which other brokers tell of dead-lettering.
const DEATHS: &str = "x-death";

pub(super) struct Looked {
    pub(super) sequence_number: i64,
    pub(super) shelved: Shelved,
    /// The reason, where it was not redrive that dead-lettered the message.
    reason: Option<String>,
}

impl Looked {
    pub(super) fn new(incoming: &Incoming, place: &str) -> Self {
        let mut message = incoming.message.clone();
        let description = incoming.dead_letter_description.as_deref();
        let reason = incoming.dead_letter_reason.clone().filter(|_| !incoming.is_dead_lettered_by_redrive());
        if let Some(reason) = &reason {
            message.headers_mut().insert(DEATHS, death(reason, description, place));
        }
        let mut shelved = Shelved::new(message);
        if reason.is_some() && shelved.story.error.is_none() {
            shelved.story.error = description.map(str::to_owned);
        }
        Self { sequence_number: incoming.sequence_number, shelved, reason }
    }

    pub(super) fn is_meant(&self, which: &Selection) -> bool {
        which.includes(&self.shelved)
            || matches!(which, Selection::Reason(word)
                if self.shelved.story.reason.is_none() && self.reason.as_ref() == Some(word))
    }
}

/// As RabbitMQ tells it: one way for operators to read it.
fn death(reason: &str, description: Option<&str>, place: &str) -> Value {
    let queue = place.split("/$").next().unwrap_or(place);
    let mut entry = Headers::from_iter([
        ("queue", Value::from(queue)),
        ("reason", reason.into()),
        ("count", Value::I64(1)),
    ]);
    if let Some(description) = description {
        entry.insert("description", description);
    }
    Value::List(vec![entry.into()])
}

#[cfg(test)]
mod tests {
    use redrive_core::{Message, header_names as names};

    use super::*;

    fn looked(message: Message, reason: &str, description: &str) -> Looked {
        let incoming = Incoming {
            message,
            dead_letter_reason: Some(reason.to_owned()),
            dead_letter_description: Some(description.to_owned()),
            ..Incoming::default()
        };
        Looked::new(&incoming, "orders/$DeadLetterQueue")
    }

    #[test]
    fn what_others_dead_lettered_shows_their_reason_and_description() {
        let looked = looked(Message::new(""), "Invalid", "no such customer");
        assert_eq!(looked.shelved.story.error.as_deref(), Some("no such customer"));
        assert_eq!(looked.shelved.deaths().deaths[0].reason, "Invalid");
        assert!(looked.is_meant(&Selection::Reason("Invalid".to_owned())));
    }

    #[test]
    fn the_story_of_earlier_failures_stays_beside_what_others_say() {
        let message = Message::new("")
            .with_header(names::REASON, "RetryableError")
            .with_header(names::ERROR, "no answer");
        let looked = looked(message, "MaxDeliveryCountExceeded", "delivered too often");
        assert_eq!(looked.shelved.story.error.as_deref(), Some("no answer"));
        assert_eq!(looked.shelved.deaths().deaths[0].reason, "MaxDeliveryCountExceeded");
    }

    #[test]
    fn what_redrive_dead_lettered_tells_its_own_story_only() {
        let message = Message::new("").with_header(names::REASON, "Broken");
        let looked = looked(message, "Broken", "it does not work");
        assert_eq!(looked.shelved.story.error, None);
        assert!(looked.shelved.deaths().is_empty());
    }
}
