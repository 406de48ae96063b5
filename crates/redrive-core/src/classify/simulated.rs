//! An error that never happened, for a plan that shows what would follow.

use super::ErrorClass;
use crate::failure::MAX_ERROR_BYTES;

/// An error of a known class. Its text is as long as that of an error can be: what is written on a message is then as large as it
/// can be.
#[derive(Debug, thiserror::Error)]
#[error("{}", text())]
pub(crate) struct Simulated(pub(crate) ErrorClass);

fn text() -> String {
    const TEXT: &str = "an error of the longest kind; ";
    TEXT.repeat(MAX_ERROR_BYTES.div_ceil(TEXT.len()))
}
