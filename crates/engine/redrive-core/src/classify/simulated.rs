//! An error that did not happen, for a plan that shows its consequences.

use super::ErrorClass;
use crate::failure::MAX_ERROR_BYTES;

/// An error with a given class, and its text.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Simulated {
    pub(crate) class: ErrorClass,
    text: String,
}

impl Simulated {
    pub(crate) fn new(class: ErrorClass) -> Self {
        Self { class, text: "an example".to_owned() }
    }

    /// Creates an error with a text of the maximum length: what is written on a message then has its maximum size.
    pub(crate) fn of_the_longest(class: ErrorClass) -> Self {
        const TEXT: &str = "an error of the longest kind; ";
        Self { class, text: TEXT.repeat(MAX_ERROR_BYTES.div_ceil(TEXT.len())) }
    }
}
