//! How long to wait for the broker.

use std::time::Duration;

use crate::error::WireError;

/// The most time that connecting and attaching may take.
pub(super) const OPEN_WAIT: Duration = Duration::from_secs(30);
/// The most time that a reply may take.
pub(super) const REPLY_WAIT: Duration = Duration::from_secs(30);

/// The error of an end that does not answer within [`OPEN_WAIT`].
pub(super) fn no_answer(about: &str) -> WireError {
    WireError::interrupted(format!("no answer about `{about}` within {OPEN_WAIT:?}"))
}
