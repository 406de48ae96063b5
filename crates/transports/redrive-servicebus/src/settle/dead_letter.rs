//! Lets the broker dead-letter a message with a reason, a description and properties. If they do not fit, less is added, at last
//! nothing: a message that cannot be dead-lettered would be redelivered forever. Only what does not fit is left out: after any other
//! refusal the whole text is tried again later.

use fe2o3_amqp_types::primitives::SimpleValue;
use tracing::warn;
use uuid::Uuid;

use crate::connection::ReconnectingConnection;
use crate::convert::{cut, is_mark};
use crate::error::{Refusal, WireError};
use crate::wire::{SessionRef, SettleAs, SettleKind};

/// The bytes of properties from which on a refusal without a known reason may mean that they do not fit. Service Bus allows 64 KiB,
/// together with what is not counted here.
const MAY_NOT_FIT_BYTES: usize = 60 * 1024;

/// The number of characters that are kept of a description that does not fit.
const SHORT_DESCRIPTION_CHARS: usize = 256;

/// The texts and properties that are added to a dead letter.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DeadLetterText {
    pub(crate) reason: String,
    pub(crate) description: String,
    /// The properties to change on the message.
    pub(crate) properties: Vec<(String, SimpleValue)>,
}

impl DeadLetterText {
    pub(crate) fn new(reason: &str, description: &str) -> Self {
        Self { reason: cut(reason), description: cut(description), properties: Vec::new() }
    }

    /// Returns this text and shorter ones, from everything to nothing.
    fn shortened(self) -> Vec<Self> {
        let short = Self {
            description: self.description.chars().take(SHORT_DESCRIPTION_CHARS).collect(),
            ..self.clone()
        };
        let no_description = Self { description: String::new(), ..self.clone() };
        let mut marked = no_description.clone();
        marked.properties.retain(|(name, _)| is_mark(name));
        let mut all = vec![self, short, no_description, marked, Self::default()];
        all.dedup();
        all
    }

    /// Returns the size of what is added to the properties of the message, roughly.
    fn size(&self) -> usize {
        let properties = self.properties.iter();
        let properties = properties
            .map(|(name, value)| name.len() + serde_amqp::serialized_size(value).unwrap_or(0))
            .sum::<usize>();
        self.reason.len() + self.description.len() + properties
    }

    fn settle_as(self, session: Option<&SessionRef>) -> SettleAs {
        let Self { reason, description, properties } = self;
        let kind = SettleKind::DeadLetter { reason, description };
        SettleAs::new(kind).with_properties(properties).within(session)
    }
}

/// The message to dead-letter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeadLettered<'a> {
    pub(crate) entity: &'a str,
    pub(crate) lock: Uuid,
    pub(crate) session: Option<&'a SessionRef>,
    /// The size of its properties, in bytes.
    pub(crate) properties_size: usize,
}

/// Dead-letters a locked message with as much text as fits, and waits for the broker's answer.
pub(crate) async fn dead_letter(
    connection: &ReconnectingConnection,
    message: DeadLettered<'_>,
    text: DeadLetterText,
) -> Result<(), WireError> {
    let DeadLettered { entity, lock, session, properties_size } = message;
    let mut refused = None;
    // Of the whole text: once one was refused that may not fit, all shorter ones are tried.
    let size = properties_size.saturating_add(text.size());
    for text in text.shortened() {
        if let Some(error) = &refused {
            warn!(%entity, %error, "a message could not be dead-lettered with its full text; trying with less");
        }
        match connection.connection().await?.settle(entity, &[lock], &text.settle_as(session)).await {
            Err(error) if may_be_too_long(&error.refusal, size) => refused = Some(error),
            settled => return settled,
        }
    }
    refused.map_or(Ok(()), Err)
}

/// Returns true if a shorter text may help: the broker said so, or refused properties of this size for a reason that is not known.
fn may_be_too_long(refusal: &Refusal, size: usize) -> bool {
    match refusal {
        Refusal::TooLarge => true,
        Refusal::NotAllowed | Refusal::Unexplained | Refusal::Other => size > MAY_NOT_FIT_BYTES,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::names::SHELF;

    fn property(name: &str) -> (String, SimpleValue) {
        (name.to_owned(), SimpleValue::Bool(true))
    }

    #[test]
    fn less_is_said_until_nothing_is() {
        let mut text = DeadLetterText::new("Broken", &"x".repeat(1000));
        text.properties = vec![property("redrive-attempt"), property(SHELF)];
        let all = text.clone().shortened();
        assert_eq!(all.first(), Some(&text));
        assert_eq!(all.last(), Some(&DeadLetterText::default()));
        assert_eq!(
            all[3].properties,
            [property(SHELF)],
            "on which shelf it rests is said as long as possible"
        );
        let sizes: Vec<_> = all
            .iter()
            .map(|text| text.reason.len() + text.description.len() + text.properties.len())
            .collect();
        assert!(sizes.is_sorted_by(|more, less| more > less), "{sizes:?}");
    }

    #[test]
    fn nothing_is_tried_twice() {
        assert_eq!(DeadLetterText::default().shortened().len(), 1);
        assert_eq!(DeadLetterText::new("Broken", "").shortened().len(), 2);
    }

    #[test]
    fn what_is_no_matter_of_room_is_not_said_shorter() {
        for refusal in [Refusal::LockLost, Refusal::Interrupted, Refusal::Busy, Refusal::QuotaExceeded] {
            assert!(!may_be_too_long(&refusal, usize::MAX), "{refusal:?}");
        }
        for refusal in [Refusal::NotAllowed, Refusal::Unexplained, Refusal::Other] {
            assert!(!may_be_too_long(&refusal, MAY_NOT_FIT_BYTES), "{refusal:?}: it fits");
            assert!(may_be_too_long(&refusal, MAY_NOT_FIT_BYTES + 1), "{refusal:?}");
        }
        assert!(may_be_too_long(&Refusal::TooLarge, 0));
    }
}
