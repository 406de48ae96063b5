//! The timeouts of requests to the broker.

use std::time::Duration;

use crate::error::WireError;

/// The longest time that connecting or attaching may take.
pub(super) const OPEN_WAIT: Duration = Duration::from_secs(30);
/// The longest time that a reply may take.
pub(super) const REPLY_WAIT: Duration = Duration::from_secs(30);
/// The longest time that ending a connection, a session or a link may take.
pub(super) const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// Returns the error for a broker that does not answer within [`OPEN_WAIT`].
pub(super) fn no_answer(about: &str) -> WireError {
    WireError::interrupted(format!("no answer about `{about}` within {OPEN_WAIT:?}"))
}
