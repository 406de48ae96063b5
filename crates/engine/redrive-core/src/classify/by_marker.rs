//! The default classifier: uses the markers on an error.

use std::error::Error;

use super::chain::chain;
use super::{ErrorClass, ErrorClassifier, Permanent, Throttled};

/// Classifies by the markers [`Permanent`] and [`Throttled`] anywhere in the error's [`chain`]. An error without a marker is
/// transient. The default classifier.
///
/// If a chain has several markers, the outermost wins: the code that added it knew of the others.
///
/// ```
/// use redrive_core::{ByMarker, ErrorClass, ErrorClassifier, MarkError, Throttled, secs};
///
/// let parsed = "12x".parse::<u32>().permanent();
/// assert_eq!(ByMarker.classify(&parsed.unwrap_err()), ErrorClass::Permanent);
///
/// let busy = std::io::Error::other(Throttled::after(secs(30), "429 Too Many Requests"));
/// assert_eq!(ByMarker.classify(&busy), ErrorClass::Throttled(secs(30)));
///
/// assert_eq!(ByMarker.classify(&std::fmt::Error), ErrorClass::Transient);
/// ```
///
/// With the feature `anyhow`, markers are found in an `anyhow::Error` that a handler returns, also below
/// `.context(..)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByMarker;

impl ErrorClassifier for ByMarker {
    fn classify(&self, error: &(dyn Error + 'static)) -> ErrorClass {
        marked_as(error).unwrap_or(ErrorClass::Transient)
    }
}

/// Returns the class of the outermost marker, if there is one.
pub(super) fn marked_as(error: &(dyn Error + 'static)) -> Option<ErrorClass> {
    chain(error).find_map(|cause| {
        if cause.is::<Permanent>() {
            return Some(ErrorClass::Permanent);
        }
        cause.downcast_ref::<Throttled>().map(|throttled| ErrorClass::Throttled(throttled.wait()))
    })
}
