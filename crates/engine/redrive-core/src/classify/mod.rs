//! Classifies errors.

mod by_marker;
mod chain;
mod known;
mod mark;
mod marker;
mod pattern;
mod simulated;
mod types;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

pub use by_marker::ByMarker;
pub use chain::chain;
pub use mark::{MarkError, into_box_error};
pub use marker::{Permanent, Throttled};
pub use pattern::ByPattern;
pub(crate) use simulated::Simulated;
pub use types::ByType;

/// What another attempt can achieve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// Nothing: the message goes to a shelf at once.
    Permanent,
    /// It may succeed; the retry policy decides when.
    Transient,
    /// It may succeed, but not before this wait.
    Throttled(Duration),
}

/// Classifies an error. Pure: the same error always has the same class.
///
/// | classifier | uses |
/// |---|---|
/// | [`ByMarker`] (the default) | the markers [`Permanent`] and [`Throttled`] that the code put on the error |
/// | [`ByType`] | the concrete types in the error's chain of causes |
/// | [`ByPattern`] | words in the error's text |
/// | a closure | anything |
///
/// In all of redrive's own classifiers a marker wins over any rule: the code that set it knew this very error; a rule is about
/// errors like it.
///
/// ```
/// use std::error::Error;
/// use redrive_core::{ErrorClass, ErrorClassifier};
///
/// let no_such_file = |error: &(dyn Error + 'static)| match error.downcast_ref::<std::io::Error>() {
///     Some(error) if error.kind() == std::io::ErrorKind::NotFound => ErrorClass::Permanent,
///     _ => ErrorClass::Transient,
/// };
/// let error = std::io::Error::from(std::io::ErrorKind::NotFound);
/// assert_eq!(no_such_file.classify(&error), ErrorClass::Permanent);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an `ErrorClassifier`",
    label = "does not say what kind of failure an error is",
    note = "use `ByMarker`, `ByType`, `ByPattern`, or a closure `|error: &(dyn Error + 'static)| -> ErrorClass`"
)]
pub trait ErrorClassifier: Send + Sync + 'static {
    /// Returns the class of this error.
    fn classify(&self, error: &(dyn Error + 'static)) -> ErrorClass;
}

impl<F> ErrorClassifier for F
where
    F: Fn(&(dyn Error + 'static)) -> ErrorClass + Send + Sync + 'static,
{
    fn classify(&self, error: &(dyn Error + 'static)) -> ErrorClass {
        self(error)
    }
}

impl<C: ErrorClassifier + ?Sized> ErrorClassifier for Arc<C> {
    fn classify(&self, error: &(dyn Error + 'static)) -> ErrorClass {
        (**self).classify(error)
    }
}

impl ErrorClassifier for Box<dyn ErrorClassifier> {
    fn classify(&self, error: &(dyn Error + 'static)) -> ErrorClass {
        (**self).classify(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_classifier_chosen_at_run_time_answers_the_same() {
        let error = Permanent::new("no such order");
        let arc: Arc<dyn ErrorClassifier> = Arc::new(ByMarker);
        let boxed: Box<dyn ErrorClassifier> = Box::new(ByMarker);
        let closure = |_: &(dyn Error + 'static)| ErrorClass::Permanent;
        for classifier in [&arc as &dyn ErrorClassifier, &boxed, &Arc::new(ByMarker), &closure] {
            assert_eq!(classifier.classify(&error), ErrorClass::Permanent);
        }
    }
}
