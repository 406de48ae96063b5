//! The causes of an error, one by one.

use std::error::Error;
use std::io;
use std::sync::Arc;

use super::{Permanent, Throttled};
use crate::BoxError;

/// More than any honest error has; a chain may also be circular.
const MAX_CAUSES: usize = 16;

/// The error and its causes, outermost first, 16 at most.
///
/// Some errors stand in for the one that they hold: their `source()` skips it, so that its text is not told
/// twice. They are seen through here: redrive's markers, `io::Error::other`, and `Arc<dyn Error + Send + Sync>`.
///
/// ```
/// use std::io;
/// use redrive_core::{Permanent, chain};
///
/// let error = io::Error::other(Permanent::new(std::fmt::Error));
/// assert!(chain(&error).any(|cause| cause.is::<Permanent>()));
/// assert!(chain(&error).any(|cause| cause.is::<std::fmt::Error>()));
/// ```
pub fn chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| next(error)).take(MAX_CAUSES)
}

fn next<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    if let Some(marker) = error.downcast_ref::<Permanent>() {
        return Some(marker.marked());
    }
    if let Some(marker) = error.downcast_ref::<Throttled>() {
        return Some(marker.marked());
    }
    if let Some(shared) = error.downcast_ref::<Arc<dyn Error + Send + Sync>>() {
        return Some(&**shared);
    }
    if let Some(held) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        return Some(held);
    }
    error.source()
}

/// As a boxed error that classifiers can still tell by its type. For whoever turns the error of a handler into an
/// [`Outcome`](crate::Outcome) by hand: `Into` alone hides what an `anyhow::Error` was made of.
///
/// With the feature `anyhow`, an `anyhow::Error` becomes the error that it was made of (its backtrace is left
/// behind), and a marker that was given as its context is put on it from outside. Every other error is
/// boxed as it is.
///
/// ```
/// let error = redrive_core::into_box_error(std::fmt::Error);
/// assert!(error.is::<std::fmt::Error>());
/// ```
#[must_use]
pub fn into_box_error<E: Into<BoxError> + 'static>(error: E) -> BoxError {
    #[cfg(feature = "anyhow")]
    {
        let mut error = Some(error);
        if let Some(anyhow) = (&mut error as &mut dyn std::any::Any).downcast_mut::<Option<anyhow::Error>>()
            && let Some(anyhow) = anyhow.take()
        {
            return from_anyhow(anyhow);
        }
        error.map_or_else(|| "the error was lost".into(), Into::into)
    }
    #[cfg(not(feature = "anyhow"))]
    error.into()
}

/// A marker that was given as context (`.context(Permanent::new("…"))`) is one that no chain shows: it is put on
/// from outside instead. Any other marker is found where it is.
#[cfg(feature = "anyhow")]
pub(super) fn from_anyhow(error: anyhow::Error) -> BoxError {
    use super::{ErrorClass, marker::marked_as};

    let hidden = if let Some(throttled) = error.downcast_ref::<Throttled>() {
        Some(ErrorClass::Throttled(throttled.wait()))
    } else {
        error.downcast_ref::<Permanent>().map(|_| ErrorClass::Permanent)
    };
    let error = error.reallocate_into_boxed_dyn_error_without_backtrace();
    match hidden {
        Some(class) if marked_as(&*error).is_none() => match class {
            ErrorClass::Throttled(wait) => Throttled::boxed(wait, error).into(),
            _ => Permanent::boxed(error).into(),
        },
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circular_chain_ends() {
        #[derive(Debug)]
        struct Circle;
        impl std::fmt::Display for Circle {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("round and round")
            }
        }
        impl Error for Circle {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&Circle)
            }
        }
        assert_eq!(chain(&Circle).count(), MAX_CAUSES);
    }

    #[test]
    fn an_error_that_stands_in_for_another_is_seen_through() {
        let shared: Arc<dyn Error + Send + Sync> = Arc::new(std::fmt::Error);
        assert!(chain(&shared).any(<dyn Error>::is::<std::fmt::Error>));
    }
}
