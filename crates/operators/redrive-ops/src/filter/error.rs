//! The error of the parser.

use std::fmt;

use super::condition::is_unprintable;

/// The text is not a [`Filter`](super::Filter). Printed, it says what is wrong and what would be right, with the place marked:
///
/// ```
/// use redrive_ops::Filter;
///
/// let error = "reason:Late age>soon".parse::<Filter>().unwrap_err();
/// assert_eq!(error.position(), 16);
/// assert_eq!(
///     error.to_string(),
///     "`soon` is not a duration: write for example `age>1h` or `age>2d12h`\n  \
///        reason:Late age>soon\n                  \
///                        ^^^^"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseFilterError {
    message: String,
    /// The text around the place, printable.
    excerpt: String,
    /// Number of characters of the excerpt before the place.
    indent: usize,
    /// Number of characters of the place, at least one.
    width: usize,
    position: usize,
}

/// Maximum number of characters shown before the place, and from there on.
const SHOWN: usize = 48;

impl ParseFilterError {
    /// Creates the error of the bytes from `start` to `end` of the text.
    pub(super) fn new(text: &str, start: usize, end: usize, message: &str) -> Self {
        let (before, rest) = text.split_at(start);
        let skipped = before.chars().count().saturating_sub(SHOWN);
        let before = before.chars().skip(skipped);
        let width = text[start..end].chars().count().clamp(1, SHOWN);
        let printable = |c| if is_unprintable(c) { '\u{fffd}' } else { c };
        Self {
            message: message.chars().map(printable).collect(),
            indent: before.clone().count(),
            excerpt: before.chain(rest.chars().take(SHOWN)).map(printable).collect(),
            width,
            position: start,
        }
    }

    /// Returns what is wrong, and what would be right, in one line.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the position in the text, in bytes.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }
}

impl std::error::Error for ParseFilterError {}

impl fmt::Display for ParseFilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (indent, carets) = (" ".repeat(self.indent), "^".repeat(self.width));
        write!(f, "{}\n  {}\n  {indent}{carets}", self.message, self.excerpt)
    }
}
