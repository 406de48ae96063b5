//! What people are shown of a failure. Any program may have written these texts, and most redact nothing.

use redrive_core::shelves::Shelved;
use redrive_core::{PastFailure, redact};

/// The texts of an entry about its failure, with the secrets masked that [`redact`] recognizes. For every view of people; an export and
/// an edit have what stands in the message.
///
/// ```
/// use redrive_core::{Message, Shelf};
/// use redrive_core::shelves::{EntryHandle, Shelved};
/// use redrive_ops::ShownFailure;
///
/// let message = Message::new("").with_header("redrive-error", "cannot connect to amqp://shop:hunter2@mq/");
/// let entry = Shelved::new(EntryHandle::new(Shelf::DeadLetter, "1"), message);
/// assert_eq!(ShownFailure::of(&entry).error.as_deref(), Some("cannot connect to amqp://shop:***@mq/"));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShownFailure {
    /// The message id.
    pub id: Option<String>,
    /// [Why the message is here](Shelved::reason).
    pub reason: Option<String>,
    /// Type of the error.
    pub error_type: Option<String>,
    /// Text of the error.
    pub error: Option<String>,
    /// Word of the broker or of another program.
    pub broker_reason: Option<String>,
    /// Description of that word.
    pub broker_description: Option<String>,
    /// Earlier failures.
    pub past: Vec<PastFailure>,
}

impl ShownFailure {
    /// Returns the texts of an entry.
    #[must_use]
    pub fn of(entry: &Shelved) -> Self {
        let shown = |text: Option<&str>| text.map(redact);
        let past = |past: &PastFailure| {
            let mut past = past.clone();
            past.reason = redact(&past.reason);
            past.error = redact(&past.error);
            past
        };
        Self {
            id: shown(entry.message.id()),
            reason: shown(entry.reason()),
            error_type: shown(entry.history.error_type.as_deref()),
            error: shown(entry.history.error.as_deref()),
            broker_reason: shown(entry.broker_reason.as_deref()),
            broker_description: shown(entry.broker_description.as_deref()),
            past: entry.history.past.iter().map(past).collect(),
        }
    }

    /// Returns the text of the error, or else the description of the broker.
    #[must_use]
    pub fn text(&self) -> &str {
        self.error.as_deref().or(self.broker_description.as_deref()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::shelves::EntryHandle;
    use redrive_core::{Message, Shelf, header_names as names};

    use super::*;

    #[test]
    fn every_text_is_masked() {
        let secret = "amqp://u:hunter2@h/";
        let mut message = Message::new("").with_id(secret);
        for name in [names::REASON, names::ERROR, names::ERROR_TYPE] {
            message.headers_mut().insert(name, secret);
        }
        let mut entry = Shelved::new(EntryHandle::new(Shelf::DeadLetter, "1"), message);
        entry.broker_reason = Some(secret.to_owned());
        entry.broker_description = Some(secret.to_owned());
        let mut past = PastFailure::default();
        (past.reason, past.error) = (secret.to_owned(), secret.to_owned());
        entry.history.past.push(past);
        let shown = format!("{:?}", ShownFailure::of(&entry));
        assert!(!shown.contains("hunter2"), "{shown}");
        assert_eq!(shown.matches("amqp://u:***@h/").count(), 8);
    }
}
