//! The markers [`Permanent`] and [`Throttled`].

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::BoxError;

/// Marks an error that no further attempt can cure: its message goes to the dead-letter shelf at once.
///
/// `Display`, `Debug` and `source()` are those of the marked error, so that its text does not appear twice.
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
    pub(super) fn boxed(error: BoxError) -> Self {
        Self(error)
    }

    /// Returns the marked error.
    #[must_use]
    pub fn marked(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.0
    }

    /// Returns the error without its marker.
    #[must_use]
    pub fn into_marked(self) -> BoxError {
        self.0
    }
}

/// Marks an error that another attempt may cure, but not before some time has passed, because the other side asked for that
/// (`429`, `Retry-After`). The next attempt waits for this time or for the retry policy's wait, whichever is longer.
///
/// `Display`, `Debug` and `source()` are those of the marked error, as with [`Permanent`].
///
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
    pub(super) fn boxed(wait: Duration, error: BoxError) -> Self {
        Self { wait, error }
    }

    /// Returns the minimum wait.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.wait
    }

    /// Returns the marked error.
    #[must_use]
    pub fn marked(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.error
    }

    /// Returns the error without its marker.
    #[must_use]
    pub fn into_marked(self) -> BoxError {
        self.error
    }
}

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
