//! Accepts connections, and ends all of them at once.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Duration, sleep};

use super::port::Listeners;
use super::protocol_detect::ProtocolDetect;
use super::shared_state::SharedState;
use super::socket::serve;

/// Accepting fails if there are too many open files; it may work again soon.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);
/// The clock may be changed, and a deadline may be centuries away.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// The tasks of one listening socket. Dropping it aborts them.
#[derive(Debug)]
pub(crate) struct Listening {
    accepting: JoinHandle<()>,
    time: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl Listening {
    pub(crate) fn start(
        listeners: Listeners,
        protocols: &Arc<ProtocolDetect>,
        shared: &Arc<SharedState>,
    ) -> Self {
        let (stop, stopped) = oneshot::channel();
        Self {
            accepting: tokio::spawn(accept(listeners, Arc::clone(protocols), Arc::clone(shared), stopped)),
            time: tokio::spawn(pass_time(Arc::clone(shared))),
            stop,
        }
    }

    /// Closes every connection in order, and waits until all have ended.
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.accepting.await;
        self.time.abort();
    }

    /// Ends everything at once, as a crash does. Nothing listens when this returns.
    pub(crate) async fn abort(self) {
        self.accepting.abort();
        self.time.abort();
        let _ = self.accepting.await;
    }
}

async fn accept(
    listeners: Listeners,
    protocols: Arc<ProtocolDetect>,
    shared: Arc<SharedState>,
    mut stopped: oneshot::Receiver<()>,
) {
    // Dropping this task drops all connections.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listeners.accept() => match accepted {
                Ok((stream, _)) => {
                    // Registered before its task begins: if the emulator ends in between, the connection is notified.
                    let mailbox = shared.connect();
                    drop(connections.spawn(serve(stream, mailbox, Arc::clone(&protocols), Arc::clone(&shared))));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(PAUSE_AFTER_FAILURE).await;
                }
            },
            Some(_) = connections.join_next() => {}
            _ = &mut stopped => break,
        }
    }
    drop(listeners);
    shared.post_to_all(|mail| mail.close = true);
    while connections.join_next().await.is_some() {}
}

/// Advances the broker when time alone causes a change.
async fn pass_time(shared: Arc<SharedState>) {
    loop {
        let next = shared.with(|broker, now| {
            broker.advance(now);
            broker.next_deadline().map(|deadline| deadline.since(now))
        });
        let wait = match next {
            Some(wait) if shared.clock.runs() => wait.clamp(Duration::from_millis(1), MAX_SLEEP),
            _ => MAX_SLEEP,
        };
        tokio::select! {
            () = sleep(wait) => {}
            () = shared.deadline_moved.notified() => {}
            () = shared.writable_again() => shared.wake_all(),
        }
    }
}
