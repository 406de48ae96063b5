//! The error of an argument that could not be extracted.

use std::fmt;

use crate::disposition::BoxError;

/// An argument of a handler could not be extracted. Always permanent.
#[derive(Debug)]
pub struct Rejected {
    what: String,
    why: BoxError,
}

impl Rejected {
    /// Creates the error: `what` is wrong with the message, and `why`.
    #[must_use]
    pub fn new(what: impl Into<String>, why: impl Into<BoxError>) -> Self {
        Self { what: what.into(), why: why.into() }
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Rejected {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.why)
    }
}
