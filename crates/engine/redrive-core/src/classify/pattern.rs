//! Classifies errors by their text.

use std::error::Error;

use super::by_marker::marked_as;
use super::{ErrorClass, ErrorClassifier};
use crate::failure::error_text;

/// Classifies by words in the error's text, including its causes: an error that contains one of the patterns is permanent, any
/// other is transient. A marker in the error's chain wins over the patterns.
///
/// Case is ignored, in every script. A pattern also matches within a word (`conflict` in `conflicting`) and across a cause
/// (`order: not found`). Texts change with versions and languages: if an error has a type or can be marked,
/// [`ByType`](super::ByType) and [`ByMarker`](super::ByMarker) are safer. Therefore this classifier is never a default.
///
/// ```
/// use redrive_core::{ByPattern, ErrorClass, ErrorClassifier};
///
/// let by_pattern = ByPattern::default().and("out of stock");
/// let class = |text: &str| by_pattern.classify(&std::io::Error::other(text.to_owned()));
///
/// assert_eq!(class("404 Not Found"), ErrorClass::Permanent);
/// assert_eq!(class("item 7 is Out of Stock"), ErrorClass::Permanent);
/// assert_eq!(class("connection reset by peer"), ErrorClass::Transient);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct ByPattern {
    /// In lower case.
    patterns: Vec<String>,
}

impl ByPattern {
    /// The patterns of [`ByPattern::default`]: texts of errors that are not worth another attempt.
    pub const STOCK: [&'static str; 9] = [
        "timeout",
        "exceeded maximum duration",
        "deserialization",
        "invalid format",
        "bad request",
        "unauthorized",
        "forbidden",
        "not found",
        "conflict",
    ];

    /// Creates a classifier with exactly these patterns. Leaves out empty ones, which would match everything.
    pub fn of<P: AsRef<str>>(patterns: impl IntoIterator<Item = P>) -> Self {
        patterns.into_iter().fold(Self { patterns: Vec::new() }, Self::and)
    }

    /// Adds one pattern.
    pub fn and(mut self, pattern: impl AsRef<str>) -> Self {
        let pattern = pattern.as_ref().to_lowercase();
        if !pattern.is_empty() {
            self.patterns.push(pattern);
        }
        self
    }
}

impl Default for ByPattern {
    /// Creates a classifier with the patterns of [`ByPattern::STOCK`].
    fn default() -> Self {
        Self::of(Self::STOCK)
    }
}

impl ErrorClassifier for ByPattern {
    fn classify(&self, error: &(dyn Error + 'static)) -> ErrorClass {
        if let Some(class) = marked_as(error) {
            return class;
        }
        let text = error_text(error).to_lowercase();
        let permanent = self.patterns.iter().any(|pattern| text.contains(pattern.as_str()));
        if permanent { ErrorClass::Permanent } else { ErrorClass::Transient }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Throttled, secs};

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Says(&'static str, #[source] Option<Box<Says>>);

    fn class(by_pattern: &ByPattern, text: &'static str) -> ErrorClass {
        by_pattern.classify(&Says(text, None))
    }

    #[test]
    fn the_stock_list_is_found_in_any_case() {
        for pattern in ByPattern::STOCK {
            let text = format!("code 9: {}!", pattern.to_uppercase());
            assert_eq!(ByPattern::default().classify(&*crate::BoxError::from(text)), ErrorClass::Permanent);
        }
        for text in ["connection reset by peer", "", "time out", "not  found", "500"] {
            assert_eq!(class(&ByPattern::default(), text), ErrorClass::Transient, "{text}");
        }
    }

    #[test]
    fn causes_are_read_too() {
        let caused = Says("fetching", Some(Box::new(Says("HTTP", Some(Box::new(Says("Forbidden", None)))))));
        assert_eq!(ByPattern::default().classify(&caused), ErrorClass::Permanent);
    }

    #[test]
    fn a_marker_wins_over_a_pattern() {
        let error = Throttled::after(secs(3), "timeout");
        assert_eq!(ByPattern::default().classify(&error), ErrorClass::Throttled(secs(3)));
    }

    #[test]
    fn an_own_list_replaces_the_stock_list_in_any_script() {
        let own = ByPattern::of(["UNGÜLTIG", "", "неверный"]);
        assert_eq!(class(&own, "die Menge ist ungültig"), ErrorClass::Permanent);
        assert_eq!(class(&own, "НЕВЕРНЫЙ формат"), ErrorClass::Permanent);
        assert_eq!(class(&own, "timeout"), ErrorClass::Transient);
    }
}
