//! Messages that cannot be copied during a transfer: they stay, and do not stop the others. Pure.

use redrive_core::text::plural;
use redrive_core::{Message, TransportError};

/// The messages that were not moved.
#[derive(Debug, Default)]
pub(super) struct Stayed {
    pub(super) count: u64,
    named: Vec<String>,
    first: Option<TransportError>,
}

impl Stayed {
    pub(super) fn note(&mut self, message: &Message, error: &TransportError) {
        const NAMED: usize = 20;
        self.count += 1;
        if self.named.len() < NAMED {
            self.named.push(format!("`{}`", message.id().unwrap_or("without an id")));
        }
        self.first.get_or_insert_with(|| error.clone());
    }

    /// Returns the number of moved messages, or an error if not all were moved.
    pub(super) fn said_of(self, done: u64, queue: &str) -> Result<u64, TransportError> {
        let Some(why) = self.first else { return Ok(done) };
        let (count, named) = (self.count, self.named.join(", "));
        let message = format!(
            "moved {}; {count} cannot be copied and stay in `{queue}`: {named} ({why})",
            plural(done, "message")
        );
        Err(TransportError::new(why.kind(), message))
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::TransportErrorKind;

    use super::*;

    fn too_large() -> TransportError {
        TransportError::new(TransportErrorKind::TooLarge, "too large")
    }

    #[test]
    fn what_stays_is_named_and_what_was_moved_is_counted() {
        assert_eq!(Stayed::default().said_of(3, "shelf").unwrap(), 3);
        let mut stayed = Stayed::default();
        for number in 0..30 {
            stayed.note(&Message::new("").with_id(number.to_string()), &too_large());
        }
        let error = stayed.said_of(3, "shelf").unwrap_err();
        assert_eq!(error.kind(), TransportErrorKind::TooLarge);
        let said = error.to_string();
        assert!(
            said.contains("moved 3 messages; 30 ") && said.contains("`19`") && !said.contains("`20`"),
            "{said}"
        );
    }
}
