//! Whether anything that is asked of the broker is answered. A connection can be dead in one direction only: what the broker
//! sends still comes, and keeps it alive, while nothing that is said reaches the broker.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::warn;

use super::connection::Ask;

/// How long an answer may take.
pub(crate) const REPLY_WAIT: Duration = Duration::from_secs(30);

/// The answers that come on one connection.
#[derive(Debug)]
pub(crate) struct Pulse {
    answers: AtomicU64,
    connection: mpsc::UnboundedSender<Ask>,
}

impl Pulse {
    pub(super) fn new(connection: mpsc::UnboundedSender<Ask>) -> Self {
        Self { answers: AtomicU64::new(0), connection }
    }

    /// Waits for an answer; `None` where none comes in time. Where nothing else was answered meanwhile either, the connection is
    /// given up: the next one who asks gets another.
    pub(super) async fn wait<T, E>(
        &self,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Option<Result<T, E>> {
        let before = self.answers.load(Ordering::Relaxed);
        match timeout(REPLY_WAIT, answer).await {
            Ok(answered) => {
                if answered.is_ok() {
                    self.answers.fetch_add(1, Ordering::Relaxed);
                }
                Some(answered)
            }
            Err(_) => {
                if self.answers.load(Ordering::Relaxed) == before {
                    warn!("Service Bus answers nothing on a connection that stands; connecting anew");
                    // Where it has ended, there is nothing to give up.
                    let _ = self.connection.send(Ask::Abort);
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_given_up_where_nothing_is_answered() {
        let (connection, mut asked) = mpsc::unbounded_channel();
        let pulse = Pulse::new(connection);
        let unanswered = || pending::<Result<(), ()>>();
        let other = async {
            tokio::time::sleep(REPLY_WAIT / 2).await;
            pulse.wait(ready(Ok::<_, ()>(()))).await
        };
        let (lost, answered) = tokio::join!(pulse.wait(unanswered()), other);
        assert_eq!((lost, answered), (None, Some(Ok(()))));
        assert!(asked.try_recv().is_err(), "one answer was lost, and no more");
        let refused = async {
            tokio::time::sleep(REPLY_WAIT / 2).await;
            pulse.wait(ready(Err::<(), _>(()))).await
        };
        tokio::join!(pulse.wait(unanswered()), refused);
        assert!(matches!(asked.try_recv(), Ok(Ask::Abort)));
    }
}
