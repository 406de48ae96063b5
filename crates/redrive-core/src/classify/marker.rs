//! Markers: the code that made an error says what another attempt can do about it.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::chain::{chain, into_box_error};
use super::{ErrorClass, ErrorClassifier};
use crate::BoxError;

/// Goes by the markers [`Permanent`] and [`Throttled`] anywhere in the error's [`chain`]; what bears none is
/// transient. The default classifier.
///
/// Where several markers stand in one chain the outermost wins: who put it on knew of the others.
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

/// What the outermost marker says, if there is one.
pub(super) fn marked_as(error: &(dyn Error + 'static)) -> Option<ErrorClass> {
    chain(error).find_map(|cause| {
        if cause.is::<Permanent>() {
            return Some(ErrorClass::Permanent);
        }
        cause.downcast_ref::<Throttled>().map(|throttled| ErrorClass::Throttled(throttled.wait))
    })
}

/// Marks an error that no further attempt can mend: its message goes onto the dead-letter shelf at once.
///
/// Reads like the error that it marks (`Display`, `Debug` and `source()` are those of the marked error), so that
/// nothing is told twice.
///
/// ```
/// use redrive_core::{MarkError, Permanent};
///
/// fn order_number(body: &[u8]) -> Result<u32, Permanent> {
///     let text = std::str::from_utf8(body).permanent()?;
///     if text.is_empty() {
///         return Err(Permanent::new("the order has no number"));
///     }
///     text.parse().permanent()
/// }
/// assert_eq!(order_number(b"x").unwrap_err().to_string(), "invalid digit found in string");
/// ```
pub struct Permanent(BoxError);

impl Permanent {
    /// Marks this error; a text will do.
    #[must_use]
    pub fn new(error: impl Into<BoxError> + 'static) -> Self {
        Self(into_box_error(error))
    }

    #[cfg(feature = "anyhow")]
    pub(super) fn boxed(error: BoxError) -> Self {
        Self(error)
    }

    /// The error that is marked.
    #[must_use]
    pub fn marked(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.0
    }

    /// The error that was marked, without the mark.
    #[must_use]
    pub fn into_marked(self) -> BoxError {
        self.0
    }
}

/// Marks an error that another attempt may mend, but not before some time has passed: where somebody said "try
/// again later" (`429`, `Retry-After`). The next attempt waits for that time or for what the retry policy says,
/// whichever is longer.
///
/// Reads like the error that it marks, as [`Permanent`] does.
///
/// ```
/// use redrive_core::{Throttled, secs};
///
/// let error = Throttled::after(secs(30), "the carrier asks for a pause");
/// assert_eq!(error.wait(), secs(30));
/// ```
pub struct Throttled {
    wait: Duration,
    error: BoxError,
}

impl Throttled {
    /// Marks this error: no attempt before `wait` has passed. A text will do for an error.
    #[must_use]
    pub fn after(wait: Duration, error: impl Into<BoxError> + 'static) -> Self {
        Self { wait, error: into_box_error(error) }
    }

    #[cfg(feature = "anyhow")]
    pub(super) fn boxed(wait: Duration, error: BoxError) -> Self {
        Self { wait, error }
    }

    /// How long to wait at least.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.wait
    }

    /// The error that is marked.
    #[must_use]
    pub fn marked(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.error
    }

    /// The error that was marked, without the mark.
    #[must_use]
    pub fn into_marked(self) -> BoxError {
        self.error
    }
}

/// Puts a marker on the error of a `Result`.
///
/// ```
/// use redrive_core::{MarkError, Throttled, secs};
///
/// fn call(status: u16) -> Result<(), Throttled> {
///     if status == 429 { Err("too many requests").throttled(secs(5)) } else { Ok(()) }
/// }
/// assert_eq!(call(429).unwrap_err().wait(), secs(5));
/// ```
pub trait MarkError<T> {
    /// The error is one that no further attempt can mend.
    ///
    /// # Errors
    ///
    /// The error of `self`, marked.
    fn permanent(self) -> Result<T, Permanent>;

    /// Another attempt may mend the error, but not before `wait` has passed.
    ///
    /// # Errors
    ///
    /// The error of `self`, marked.
    fn throttled(self, wait: Duration) -> Result<T, Throttled>;
}

impl<T, E: Into<BoxError> + 'static> MarkError<T> for Result<T, E> {
    fn permanent(self) -> Result<T, Permanent> {
        self.map_err(Permanent::new)
    }

    fn throttled(self, wait: Duration) -> Result<T, Throttled> {
        self.map_err(|error| Throttled::after(wait, error))
    }
}

/// An error cannot be `From` every error (it would be `From` itself twice); these are the forms that have no type
/// of their own. For all others: [`Permanent::new`], or `.permanent()` of [`MarkError`].
macro_rules! permanent_from {
    ($($from:ty),*) => {$(
        impl From<$from> for Permanent {
            fn from(error: $from) -> Self {
                Self::new(error)
            }
        }
    )*};
}
permanent_from!(BoxError, String, &'static str);
#[cfg(feature = "anyhow")]
permanent_from!(anyhow::Error);

macro_rules! reads_like_the_marked {
    ($marker:ty) => {
        impl fmt::Display for $marker {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self.marked(), f)
            }
        }

        impl fmt::Debug for $marker {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self.marked(), f)
            }
        }

        impl Error for $marker {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                self.marked().source()
            }
        }
    };
}
reads_like_the_marked!(Permanent);
reads_like_the_marked!(Throttled);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Failure, Reason};

    #[derive(Debug, thiserror::Error)]
    #[error("shipping failed")]
    struct ShipError(#[source] BoxError);

    const LATER: Duration = Duration::from_secs(7);

    #[test]
    fn a_marker_is_found_at_any_depth() {
        let deep = ShipError(ShipError(Permanent::new("gone").into()).into());
        assert_eq!(ByMarker.classify(&deep), ErrorClass::Permanent);
        assert_eq!(ByMarker.classify(&ShipError("gone".into())), ErrorClass::Transient);
    }

    #[test]
    fn the_outermost_marker_wins() {
        let permanent = Err::<(), _>(Throttled::after(LATER, "busy")).permanent().unwrap_err();
        assert_eq!(ByMarker.classify(&permanent), ErrorClass::Permanent);
        let throttled = Throttled::after(LATER, ShipError(Permanent::new("gone").into()));
        assert_eq!(ByMarker.classify(&throttled), ErrorClass::Throttled(LATER));
    }

    #[test]
    fn a_marker_tells_nothing_of_its_own() {
        let plain = || ShipError(std::fmt::Error.into());
        let told = Failure::from_error(Reason::NonRetryableError, &plain());
        assert_eq!(told.text(), format!("shipping failed: {}", std::fmt::Error));
        for marked in [&Permanent::new(plain()) as &(dyn Error + 'static), &Throttled::after(LATER, plain())]
        {
            assert_eq!(Failure::from_error(Reason::NonRetryableError, marked), told);
        }
        let inside =
            Failure::from_error(Reason::NonRetryableError, &ShipError(Permanent::new("gone").into()));
        assert_eq!(inside.text(), "shipping failed: gone");
    }

    #[cfg(feature = "anyhow")]
    mod through_anyhow {
        use super::*;
        use anyhow::{Context, anyhow};

        fn class(error: anyhow::Error) -> ErrorClass {
            ByMarker.classify(&*into_box_error(error))
        }

        #[test]
        fn markers_are_found_with_and_without_context() {
            assert_eq!(class(anyhow!("reset")), ErrorClass::Transient);
            assert_eq!(class(anyhow!(Permanent::new("gone"))), ErrorClass::Permanent);
            let twice = anyhow!(Throttled::after(LATER, "busy")).context("calling").context("shipping");
            assert_eq!(class(twice), ErrorClass::Throttled(LATER));
            let question_mark = || -> anyhow::Result<u32> { Ok("x".parse::<u32>().permanent()?) };
            assert_eq!(class(question_mark().unwrap_err()), ErrorClass::Permanent);
            let as_source = ShipError(into_box_error(anyhow!(Permanent::new("gone"))));
            assert_eq!(class(anyhow!(as_source)), ErrorClass::Permanent);
        }

        #[test]
        fn a_marker_may_be_the_context() {
            let parsed = "x".parse::<u32>().context(Permanent::new("no number"));
            let error = into_box_error(parsed.unwrap_err());
            assert_eq!(ByMarker.classify(&*error), ErrorClass::Permanent);
            let failure = Failure::from_error(Reason::NonRetryableError, &*error);
            assert_eq!(failure.text(), "no number: invalid digit found in string");
        }

        #[test]
        fn an_anyhow_error_can_be_marked() {
            let error = Err::<(), _>(anyhow!(ShipError("x".into()))).permanent().unwrap_err();
            assert!(chain(&error).any(<dyn Error>::is::<ShipError>));
            assert_eq!(class(anyhow!(Permanent::from(anyhow!("gone")))), ErrorClass::Permanent);
        }
    }
}
