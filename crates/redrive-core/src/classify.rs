//! What kind of failure an error is.
//! (Replaced as a whole by the classifiers' own work.)

use std::error::Error;
use std::time::Duration;

/// What another attempt can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// Nothing: the message goes onto a shelf at once.
    Permanent,
    /// Maybe mend it: the retry policy says when.
    Transient,
    /// Maybe mend it, but not before this wait.
    Throttled(Duration),
}

/// Says what kind of failure an error is. Pure: the same error, the same answer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an `ErrorClassifier`",
    note = "use `ByMarker`, `ByType`, `ByPattern`, or a closure `|error: &(dyn Error + 'static)| -> ErrorClass`"
)]
pub trait ErrorClassifier: Send + Sync + 'static {
    /// The class of this error.
    fn classify(&self, error: &(dyn Error + 'static)) -> ErrorClass;
}

/// Stub.
#[derive(Debug, Clone, Copy)]
pub struct ByMarker;
impl ErrorClassifier for ByMarker {
    fn classify(&self, _: &(dyn Error + 'static)) -> ErrorClass {
        ErrorClass::Transient
    }
}
impl<F: Fn(&(dyn Error + 'static)) -> ErrorClass + Send + Sync + 'static> ErrorClassifier for F {
    fn classify(&self, error: &(dyn Error + 'static)) -> ErrorClass {
        self(error)
    }
}
