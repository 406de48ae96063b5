//! Requests that go on if their caller goes away.
//!
//! The client library (lapin 4.12) may give the number of a channel with an open request to the next one, and the broker's answer with it.
//! It also keeps a subscription for which nobody waits any more, with its deliveries, as long as the connection lives.

use redrive_core::TransportError;
use tokio::task::JoinError;

use crate::error;

type Answer<T> = Result<T, TransportError>;

/// Makes a request in a task of its own.
pub(crate) async fn uninterrupted<T: Send + 'static>(
    request: impl Future<Output = Answer<T>> + Send + 'static,
) -> Answer<T> {
    joined(tokio::spawn(request).await)
}

/// Returns the output of the task of a request.
pub(crate) fn joined<T>(ended: Result<Answer<T>, JoinError>) -> Answer<T> {
    ended.unwrap_or_else(|stopped| match stopped.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Err(error::lost("its runtime has ended")),
    })
}
