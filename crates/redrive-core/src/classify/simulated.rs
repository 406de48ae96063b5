//! An error that never happened, for a plan that shows what would follow.

use super::ErrorClass;
use crate::failure::MAX_ERROR_BYTES;

/// An error of a known class, and its text.
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

    /// The same with a text as long as that of an error can be: what is written on a message is then as large as it can be.
    pub(crate) fn of_the_longest(class: ErrorClass) -> Self {
        const TEXT: &str = "an error of the longest kind; ";
        Self { class, text: TEXT.repeat(MAX_ERROR_BYTES.div_ceil(TEXT.len())) }
    }
}
