//! Correlation filters: properties that must be equal.

use super::property::System;
use super::sql::Datum;
use crate::amqp::{Map, Message};

/// Matches a message if every property that is given here equals the message's. Text is compared case-sensitively.
#[derive(Debug, Clone, PartialEq, Default)]
#[expect(missing_docs, reason = "the names are those of Service Bus")]
#[non_exhaustive]
pub struct Correlation {
    pub correlation_id: Option<String>,
    pub message_id: Option<String>,
    pub to: Option<String>,
    pub reply_to: Option<String>,
    /// Also called label.
    pub subject: Option<String>,
    pub session_id: Option<String>,
    pub reply_to_session_id: Option<String>,
    pub content_type: Option<String>,
    /// User properties.
    pub properties: Map,
}

impl Correlation {
    pub(super) fn matches(&self, message: &Message) -> bool {
        let own = [
            (&self.correlation_id, System::CorrelationId),
            (&self.message_id, System::MessageId),
            (&self.to, System::To),
            (&self.reply_to, System::ReplyTo),
            (&self.subject, System::Subject),
            (&self.session_id, System::SessionId),
            (&self.reply_to_session_id, System::ReplyToSessionId),
            (&self.content_type, System::ContentType),
        ];
        own.iter().all(|(wanted, system)| {
            wanted.as_ref().is_none_or(|wanted| system.of(message).as_text() == Some(wanted))
        }) && self.properties.iter().all(|(key, wanted)| {
            let found = key.as_text().and_then(|key| message.application_properties.get(key));
            found.is_some_and(|found| Datum::from(found).equals(&Datum::from(wanted)) == Some(true))
        })
    }
}
