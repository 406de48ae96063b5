//! Classifies errors by their concrete type.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::by_marker::marked_as;
use super::chain::chain;
use super::{ByMarker, ErrorClass, ErrorClassifier};

/// Classifies by the concrete types in the error's [`chain`].
///
/// The outermost error in the chain that has a rule decides; if one type has several rules, the first one added. An error without
/// a rule goes to the classifier given to [`or_else`](Self::or_else), by default [`ByMarker`]. A marker anywhere in the chain wins
/// over all rules.
///
/// ```
/// use std::{fmt, io, num::ParseIntError, time::Duration};
/// use redrive_core::{ByType, ErrorClass, ErrorClassifier, secs};
/// # #[derive(Debug)] struct RateLimited { retry_after: Duration }
/// # impl fmt::Display for RateLimited {
/// #     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str("rate limited") }
/// # }
/// # impl std::error::Error for RateLimited {}
///
/// let by_type = ByType::new()
///     .permanent::<ParseIntError>()
///     .transient::<io::Error>()
///     .throttled::<RateLimited>(|error| error.retry_after);
///
/// let wrapped = io::Error::other("x".parse::<u8>().unwrap_err());
/// assert_eq!(by_type.classify(&"x".parse::<u8>().unwrap_err()), ErrorClass::Permanent);
/// assert_eq!(by_type.classify(&wrapped), ErrorClass::Transient);
/// assert_eq!(by_type.classify(&RateLimited { retry_after: secs(9) }), ErrorClass::Throttled(secs(9)));
/// ```
#[must_use]
pub struct ByType {
    rules: Vec<Rule>,
    fallback: Box<dyn ErrorClassifier>,
}

type Rule = Box<dyn Fn(&(dyn Error + 'static)) -> Option<ErrorClass> + Send + Sync>;

impl ByType {
    /// Creates a classifier without rules.
    pub fn new() -> Self {
        Self { rules: Vec::new(), fallback: Box::new(ByMarker) }
    }

    /// Classifies errors of this type as permanent.
    pub fn permanent<E: Error + 'static>(self) -> Self {
        self.classed(|_: &E| ErrorClass::Permanent)
    }

    /// Classifies errors of this type as transient.
    pub fn transient<E: Error + 'static>(self) -> Self {
        self.classed(|_: &E| ErrorClass::Transient)
    }

    /// Classifies errors of this type as throttled. The function returns the wait that the error asks for.
    pub fn throttled<E: Error + 'static>(
        self,
        wait: impl Fn(&E) -> Duration + Send + Sync + 'static,
    ) -> Self {
        self.classed(move |error: &E| ErrorClass::Throttled(wait(error)))
    }

    /// Classifies errors of this type by the function `class`, for types whose values differ in their class. If `class` returns an
    /// `Option` that is `None`, the next rule decides, and then the next cause.
    ///
    /// ```
    /// use std::io;
    /// use redrive_core::{ByType, ErrorClass, ErrorClassifier};
    ///
    /// let by_type = ByType::new().classed(|error: &io::Error| match error.kind() {
    ///     io::ErrorKind::NotFound => ErrorClass::Permanent,
    ///     _ => ErrorClass::Transient,
    /// });
    /// assert_eq!(by_type.classify(&io::Error::from(io::ErrorKind::NotFound)), ErrorClass::Permanent);
    /// ```
    pub fn classed<E: Error + 'static, C: Into<Option<ErrorClass>>>(
        mut self,
        class: impl Fn(&E) -> C + Send + Sync + 'static,
    ) -> Self {
        self.rules
            .push(Box::new(move |error| error.downcast_ref::<E>().and_then(|error| class(error).into())));
        self
    }

    /// Classifies errors without a rule by this classifier.
    pub fn or_else(mut self, fallback: impl ErrorClassifier) -> Self {
        self.fallback = Box::new(fallback);
        self
    }

    fn by_rule(&self, error: &(dyn Error + 'static)) -> Option<ErrorClass> {
        chain(error).find_map(|cause| self.rules.iter().find_map(|rule| rule(cause)))
    }
}

impl ErrorClassifier for ByType {
    fn classify(&self, error: &(dyn Error + 'static)) -> ErrorClass {
        let class = marked_as(error).or_else(|| self.by_rule(error));
        class.unwrap_or_else(|| self.fallback.classify(error))
    }
}

impl Default for ByType {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ByType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByType").field("rules", &self.rules.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ByPattern, Permanent, Throttled};
    use std::io;

    #[derive(Debug, thiserror::Error)]
    #[error("wrapped")]
    struct Wrapped<E: Error + 'static>(#[source] E);

    #[test]
    fn the_outermost_error_with_a_rule_decides() {
        let by_type = ByType::new().permanent::<io::Error>().transient::<Wrapped<io::Error>>();
        let error = || io::Error::other("x");
        assert_eq!(by_type.classify(&error()), ErrorClass::Permanent);
        assert_eq!(by_type.classify(&Wrapped(error())), ErrorClass::Transient);
        assert_eq!(by_type.classify(&Wrapped(Wrapped(error()))), ErrorClass::Transient);
        assert_eq!(by_type.classify(&Wrapped(Wrapped(Wrapped(error())))), ErrorClass::Transient);
    }

    #[test]
    fn after_a_rule_without_an_answer_the_next_is_asked() {
        let by_type = ByType::new()
            .classed(|error: &io::Error| {
                (error.kind() == io::ErrorKind::NotFound).then_some(ErrorClass::Permanent)
            })
            .classed(|error: &io::Error| {
                (error.kind() == io::ErrorKind::TimedOut).then_some(ErrorClass::Permanent)
            })
            .or_else(|_: &(dyn Error + 'static)| ErrorClass::Throttled(Duration::ZERO));
        for kind in [io::ErrorKind::NotFound, io::ErrorKind::TimedOut] {
            assert_eq!(by_type.classify(&io::Error::from(kind)), ErrorClass::Permanent);
        }
        let other = io::Error::from(io::ErrorKind::BrokenPipe);
        assert_eq!(by_type.classify(&other), ErrorClass::Throttled(Duration::ZERO));
    }

    #[test]
    fn a_marker_wins_over_a_rule() {
        let by_type = ByType::new().permanent::<io::Error>().transient::<std::fmt::Error>();
        let busy = io::Error::other(Throttled::after(Duration::ZERO, "busy"));
        assert_eq!(by_type.classify(&busy), ErrorClass::Throttled(Duration::ZERO));
        assert_eq!(by_type.classify(&Permanent::new(std::fmt::Error)), ErrorClass::Permanent);
    }

    #[test]
    fn what_has_no_rule_goes_to_the_fallback() {
        let by_type = ByType::new().transient::<io::Error>();
        assert_eq!(by_type.classify(&std::fmt::Error), ErrorClass::Transient);
        let by_type = by_type.or_else(ByPattern::of(["formatting"]));
        assert_eq!(by_type.classify(&std::fmt::Error), ErrorClass::Permanent);
        assert_eq!(by_type.classify(&io::Error::other("formatting")), ErrorClass::Transient);
    }

    #[cfg(feature = "anyhow")]
    #[test]
    fn types_are_found_through_anyhow() {
        let by_type = ByType::new().permanent::<std::fmt::Error>();
        for error in [anyhow::anyhow!(std::fmt::Error), anyhow::anyhow!(std::fmt::Error).context("writing")] {
            assert_eq!(by_type.classify(&*super::super::into_box_error(error)), ErrorClass::Permanent);
        }
    }
}
