//! AMQP sessions. Each link has one of its own: if the broker refuses or ends a link, the client library may detach another one that
//! has its handle by then, or end the session, and on some brokers the connection. Only a link that is drained gets company there, to
//! learn when it is.

use fe2o3_amqp::session::SessionHandle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::waits::{CLOSE_WAIT, OPEN_WAIT, no_answer};
use crate::error::WireError;

/// A request for an AMQP session, to the task that holds the connection.
pub(super) type Begin = oneshot::Sender<Result<SessionHandle<()>, WireError>>;

/// The AMQP session of one link, or of both links of a node that answers requests. Dropping it ends it, without waiting.
#[derive(Debug)]
pub(super) struct OwnSession(pub(super) SessionHandle<()>);

impl OwnSession {
    /// Ends it, and waits for the answer.
    pub(super) async fn end(mut self) {
        // If that fails, the connection is gone, and the session with it.
        let _ = timeout(CLOSE_WAIT, self.0.end()).await;
    }
}

/// Begins AMQP sessions on a connection.
#[derive(Debug, Clone)]
pub(super) struct Sessions(pub(super) mpsc::UnboundedSender<Begin>);

impl Sessions {
    /// Begins a session.
    pub(super) async fn begin(&self) -> Result<OwnSession, WireError> {
        let ended = || WireError::disconnected("the connection ended");
        let (answer, begun) = oneshot::channel();
        self.0.send(answer).map_err(|_| ended())?;
        match timeout(OPEN_WAIT, begun).await {
            Ok(begun) => begun.unwrap_or_else(|_| Err(ended())).map(OwnSession),
            Err(_) => Err(no_answer("another session")),
        }
    }
}
