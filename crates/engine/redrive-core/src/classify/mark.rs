//! Puts markers on errors, and boxes errors so that the markers can still be found.

use std::time::Duration;

use super::{Permanent, Throttled};
use crate::BoxError;

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
    /// Marks the error as permanent: no further attempt can succeed.
    ///
    /// # Errors
    ///
    /// The error of `self`, marked.
    fn permanent(self) -> Result<T, Permanent>;

    /// Marks the error as throttled: another attempt may succeed, but not before `wait` has passed.
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

/// An error type cannot implement `From` for every error: that would include itself. These are the types that convert without
/// a call. For all others: [`Permanent::new`], or `.permanent()` of [`MarkError`].
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

impl Permanent {
    /// Marks this error, or a text.
    #[must_use]
    pub fn new(error: impl Into<BoxError> + 'static) -> Self {
        Self::boxed(into_box_error(error))
    }
}

impl Throttled {
    /// Marks this error, or a text: no attempt before `wait` has passed.
    #[must_use]
    pub fn after(wait: Duration, error: impl Into<BoxError> + 'static) -> Self {
        Self::boxed(wait, into_box_error(error))
    }
}

/// Boxes an error so that classifiers can still find its type. For code that turns the error of a handler into an
/// [`Outcome`](crate::Outcome) itself: `Into` alone hides the type inside an `anyhow::Error`.
///
/// With the feature `anyhow`, an `anyhow::Error` becomes the error that it was made from, without its backtrace. A marker that
/// was added as its context becomes the outermost error. Every other error is boxed unchanged.
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

/// `source()` never returns a marker that was added as context (`.context(Permanent::new("…"))`), so it becomes the outermost
/// error instead. Any other marker can be found where it is.
#[cfg(feature = "anyhow")]
fn from_anyhow(error: anyhow::Error) -> BoxError {
    use super::{ErrorClass, by_marker::marked_as};

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
    use std::error::Error;

    use super::*;
    use crate::{ByMarker, ErrorClass, ErrorClassifier, Failure, Reason};

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
            assert!(crate::chain(&error).any(<dyn Error>::is::<ShipError>));
            assert_eq!(class(anyhow!(Permanent::from(anyhow!("gone")))), ErrorClass::Permanent);
        }
    }
}
