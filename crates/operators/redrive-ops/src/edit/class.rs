//! Which parts of a message may be edited.

use std::fmt;

use redrive_core::header_names;

/// How much care an edit of a part needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum EditClass {
    /// The application's own: the body, its description, and its headers.
    Free,
    /// It decides where the message or its answer goes, in what order and how long, or to what it belongs. A change is made only if
    /// it is confirmed.
    Sensitive,
    /// redrive or the broker writes it: a change would be undone or would contradict the history, so it is refused.
    Locked,
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MessagePart {
    /// The body.
    Body,
    /// A property, by the name of its field in [`Properties`](redrive_core::Properties).
    Property(String),
    /// A header, by its name.
    Header(String),
}

/// Properties that are not the application's alone.
const SENSITIVE_PROPERTIES: [&str; 8] =
    ["id", "correlation_id", "reply_to", "kind", "to", "session_id", "timestamp", "expiration"];
/// The broker checks the user. Nobody reads the cluster, and every copy of redrive is persistent.
const LOCKED_PROPERTIES: [&str; 3] = ["user_id", "cluster_id", "persistent"];

/// Headers that bind a message to a trace or to an answer.
const SENSITIVE_HEADERS: [&str; 5] = ["traceparent", "tracestate", "baggage", "Diagnostic-Id", "x-delay"];
/// Headers of frameworks, with the type and the address of a message: NServiceBus, MassTransit, Rebus, Spring and JMS.
const SENSITIVE_PREFIXES: [&str; 5] = ["NServiceBus.", "MT-", "rbs2-", "__", "JMS"];

/// Headers that RabbitMQ or Service Bus writes or acts on, and the count of kithara, which redrive keeps up to date.
const LOCKED_HEADERS: [&str; 9] = [
    "x-death",
    "x-delivery-count",
    "x-acquired-count",
    "CC",
    "BCC",
    "x-stream-offset",
    "DeadLetterReason",
    "DeadLetterErrorDescription",
    "x-kithara-retries",
];
const LOCKED_PREFIXES: [&str; 5] =
    [header_names::PREFIX, "x-first-death-", "x-last-death-", "x-opt-", "x-servicebus-"];

impl MessagePart {
    /// Returns how much care an edit of this part needs.
    ///
    /// ```
    /// use redrive_ops::{EditClass, MessagePart};
    ///
    /// assert_eq!(MessagePart::Header("tenant".into()).class(), EditClass::Free);
    /// assert_eq!(MessagePart::Property("reply_to".into()).class(), EditClass::Sensitive);
    /// assert_eq!(MessagePart::Header("redrive-attempt".into()).class(), EditClass::Locked);
    /// ```
    #[must_use]
    pub fn class(&self) -> EditClass {
        let is_any = |name: &str, names: &[&str]| names.contains(&name);
        let begins = |name: &str, prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        match self {
            Self::Property(name) if is_any(name, &LOCKED_PROPERTIES) => EditClass::Locked,
            Self::Property(name) if is_any(name, &SENSITIVE_PROPERTIES) => EditClass::Sensitive,
            Self::Header(name) if is_any(name, &LOCKED_HEADERS) || begins(name, &LOCKED_PREFIXES) => {
                EditClass::Locked
            }
            Self::Header(name) if is_any(name, &SENSITIVE_HEADERS) || begins(name, &SENSITIVE_PREFIXES) => {
                EditClass::Sensitive
            }
            Self::Body | Self::Property(_) | Self::Header(_) => EditClass::Free,
        }
    }
}

impl fmt::Display for MessagePart {
    /// Prints names of headers with control characters escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body => f.write_str("body"),
            Self::Property(name) => write!(f, "property {name}"),
            Self::Header(name) => write!(f, "header {}", name_of(name)),
        }
    }
}

/// Quotes names that are no plain words.
fn name_of(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match !name.is_empty() && name.chars().all(is_plain) {
        true => name.to_owned(),
        false => name.escape_debug().fold(String::from("\""), |text, c| text + &c.to_string()) + "\"",
    }
}

/// Prints parts as a list.
pub(super) fn listed(parts: &[MessagePart]) -> String {
    parts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
