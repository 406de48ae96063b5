//! Cause of a failed delivery, as the broker will store it.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use crate::redact::redacted;
use crate::text::{cut, fnv1a};

/// Maximum number of bytes kept of an error's text.
pub const MAX_ERROR_BYTES: usize = 1024;
/// Maximum number of bytes kept of an error's type.
const MAX_ERROR_TYPE_BYTES: usize = 128;
/// Maximum number of bytes kept of a custom reason.
const MAX_REASON_BYTES: usize = 128;

/// A failure: reason, text, type, fingerprint. Its constructors bound its size and remove the secrets that
/// [`redact`](crate::redact::redact) recognizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    reason: Reason,
    text: String,
    error_type: Option<String>,
    fingerprint: u64,
}

impl Failure {
    /// Creates a failure with this reason and this text.
    #[must_use]
    pub fn new(reason: Reason, text: impl AsRef<str>) -> Self {
        Self::build(reason.bounded(), text.as_ref().into(), None)
    }

    /// Creates a failure with an application's own reason: one word, for example `OutOfStock`.
    #[must_use]
    pub fn custom(reason: impl Into<String>, text: impl AsRef<str>) -> Self {
        Self::new(Reason::Custom(reason.into()), text)
    }

    /// Creates a failure with this reason, described by an error and its causes.
    #[must_use]
    pub fn from_error(reason: Reason, error: &(dyn Error + 'static)) -> Self {
        let error_type = error_type(error);
        Self::build(reason.bounded(), error_text(error).into(), error_type)
    }

    fn build(reason: Reason, text: Cow<'_, str>, error_type: Option<String>) -> Self {
        let text = match redacted(&text) {
            Cow::Owned(redacted) => redacted,
            Cow::Borrowed(_) => text.into_owned(),
        };
        let text = if text.len() > MAX_ERROR_BYTES { cut(&text, MAX_ERROR_BYTES).into_owned() } else { text };
        let fingerprint = fingerprint(&reason, error_type.as_deref(), &text);
        Self { reason, text, error_type, fingerprint }
    }

    /// Passes the text through one more redactor.
    #[must_use]
    pub fn redacted_by(self, redactor: &dyn Fn(&str) -> String) -> Self {
        let text = redactor(&self.text);
        Self::build(self.reason, text.into(), self.error_type)
    }

    /// Replaces the reason.
    #[must_use]
    pub fn because(self, reason: Reason) -> Self {
        Self::build(reason.bounded(), self.text.into(), self.error_type)
    }

    /// Returns the reason.
    #[must_use]
    pub fn reason(&self) -> &Reason {
        &self.reason
    }

    /// Returns the text of the error, redacted and bounded.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the type of the error, if it is known.
    #[must_use]
    pub fn error_type(&self) -> Option<&str> {
        self.error_type.as_deref()
    }

    /// Returns a hash of reason, type and text without numbers: failures of the same kind share it.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        format!("{:016x}", self.fingerprint)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.text)
    }
}

/// Reason of a failure, in one word; operators filter by it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// A failure that another attempt may cure.
    RetryableError,
    /// The same, of something that asks for time: not before the wait that the error names.
    ThrottledError,
    /// An error that no further attempt can cure.
    NonRetryableError,
    /// Every attempt that the policy allows has failed.
    MaxDeliveryCountExceeded,
    /// The message was handed out more often than allowed without coming to an end: it may have killed its process.
    PoisonMessage,
    /// Its publisher's expiration passed before it was handled.
    Expired,
    /// The headers with the earlier failures cannot be read.
    MalformedHeaders,
    /// An error that no layer decided about.
    Undecided,
    /// No route of a `Router` takes the message.
    NoRoute,
    /// A reason of the application.
    Custom(String),
}

impl Reason {
    /// Returns the word that stands for it in headers, logs and metrics.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::RetryableError => "RetryableError",
            Self::ThrottledError => "ThrottledError",
            Self::NonRetryableError => "NonRetryableError",
            Self::MaxDeliveryCountExceeded => "MaxDeliveryCountExceeded",
            Self::PoisonMessage => "PoisonMessage",
            Self::Expired => "Expired",
            Self::MalformedHeaders => "MalformedHeaders",
            Self::Undecided => "Undecided",
            Self::NoRoute => "NoRoute",
            Self::Custom(word) => word,
        }
    }

    /// Returns the reason for this word. Any unknown word is a reason of the application.
    #[must_use]
    pub fn parse(word: &str) -> Self {
        let known = [
            Self::RetryableError,
            Self::ThrottledError,
            Self::NonRetryableError,
            Self::MaxDeliveryCountExceeded,
            Self::PoisonMessage,
            Self::Expired,
            Self::MalformedHeaders,
            Self::Undecided,
            Self::NoRoute,
        ];
        known
            .into_iter()
            .find(|reason| reason.as_str() == word)
            .unwrap_or_else(|| Self::Custom(word.to_owned()))
    }

    fn bounded(self) -> Self {
        match self {
            Self::Custom(word) => Self::Custom(cut(&word, MAX_REASON_BYTES).into_owned()),
            known => known,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Joins the error and its causes with `: `. Leaves out a cause whose text the error repeats.
pub(crate) fn error_text(error: &(dyn Error + 'static)) -> String {
    // No text with more causes would be kept in full, and a chain may be circular.
    const MAX_CAUSES: usize = 16;
    let mut text = error.to_string();
    for cause in std::iter::successors(error.source(), |&error| error.source()).take(MAX_CAUSES) {
        let cause = cause.to_string();
        if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// Reads the name of the error's type or variant from its `Debug` form, because a `dyn Error` does not tell its type. `None` if
/// the form does not begin with a name.
fn error_type(error: &(dyn Error + 'static)) -> Option<String> {
    let mut debug = BeginOfDebug::default();
    // The formatter reports an early stop as an error; here it is not one.
    let _ = fmt::write(&mut debug, format_args!("{error:?}"));
    let name = debug.name.trim_end_matches(':').len();
    debug.name.truncate(name);
    // Nothing or fields follow a type's name; anything else is prose (`anyhow` prints its message).
    let ends_like_a_type = matches!(debug.next, None | Some('(' | '{'));
    (!debug.name.is_empty() && ends_like_a_type).then_some(debug.name)
}

/// Collects the name at the beginning of a `Debug` form and the next character. Stops the formatter then: the rest of the form
/// may contain a whole message.
#[derive(Default)]
struct BeginOfDebug {
    name: String,
    /// True once white space followed the name.
    ended: bool,
    /// First character after the name that is not white space.
    next: Option<char>,
}

impl fmt::Write for BeginOfDebug {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        for c in piece.chars() {
            let of_a_name = c.is_ascii_alphanumeric() || c == '_' || c == ':';
            let begins = self.name.is_empty() && !self.ended;
            if begins && !c.is_ascii_uppercase() {
                return Err(fmt::Error);
            }
            if !self.ended && of_a_name {
                if self.name.len() == MAX_ERROR_TYPE_BYTES {
                    return Err(fmt::Error);
                }
                self.name.push(c);
            } else if c.is_whitespace() {
                self.ended = true;
            } else {
                self.next = Some(c);
                return Err(fmt::Error);
            }
        }
        Ok(())
    }
}

/// Hashes reason, type and text. Each run of digits counts as one `#`: similar failures differ in numbers (ids, ports, counts).
fn fingerprint(reason: &Reason, error_type: Option<&str>, text: &str) -> u64 {
    fnv1a([reason.as_str(), error_type.unwrap_or_default(), text].into_iter().flat_map(without_numbers))
}

fn without_numbers(part: &str) -> impl Iterator<Item = u8> {
    let mut in_number = false;
    let written = part.bytes().filter_map(move |byte| {
        let goes_on = in_number;
        in_number = byte.is_ascii_digit();
        match in_number {
            false => Some(byte),
            true => (!goes_on).then_some(b'#'),
        }
    });
    written.chain(std::iter::once(b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum ShipError {
        #[error("no stock for order {order}")]
        NoStock { order: u32 },
        #[error("carrier is down")]
        Carrier(#[source] std::io::Error),
    }

    #[test]
    fn the_text_names_the_causes() {
        let error = ShipError::Carrier(std::io::Error::other("connection reset"));
        let failure = Failure::from_error(Reason::RetryableError, &error);
        assert_eq!(failure.text(), "carrier is down: connection reset");
        assert_eq!(failure.error_type(), Some("Carrier"));
    }

    #[test]
    fn failures_that_differ_in_numbers_only_are_alike() {
        let print =
            |order| Failure::from_error(Reason::RetryableError, &ShipError::NoStock { order }).fingerprint();
        assert_eq!(print(1), print(4711));
        let carrier = ShipError::Carrier(std::io::Error::other("x"));
        assert_ne!(print(1), Failure::from_error(Reason::RetryableError, &carrier).fingerprint());
    }

    #[test]
    fn prose_is_not_taken_for_a_type() {
        let error: crate::BoxError = "Something went wrong".into();
        assert_eq!(Failure::from_error(Reason::RetryableError, &*error).error_type(), None);
        assert_eq!(error_type(&*anyhow::anyhow!("Broken pipe").into_boxed_dyn_error()), None);
    }

    #[test]
    fn long_texts_are_cut_on_a_character() {
        let failure = Failure::new(Reason::RetryableError, "ä".repeat(MAX_ERROR_BYTES));
        assert!(failure.text().len() <= MAX_ERROR_BYTES);
        assert!(failure.text().ends_with('…'));
    }

    #[test]
    fn reasons_survive_their_word() {
        for reason in [Reason::PoisonMessage, Reason::NoRoute, Reason::Custom("OutOfStock".into())] {
            assert_eq!(Reason::parse(reason.as_str()), reason);
        }
    }
}
