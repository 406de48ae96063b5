//! Accepts connections, and ends all of them at once.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Duration, sleep};

use super::protocol_detect::ProtocolDetect;
use super::shared_state::SharedState;
use super::socket::serve;

/// Accepting fails when there are too many open files: it may work again soon.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);
/// A clock may be set, and a deadline be centuries away.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// The tasks of one listening socket. Dropping it ends them in the middle of whatever they do.
#[derive(Debug)]
pub(crate) struct Listening {
    accepting: JoinHandle<()>,
    time: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl Listening {
    pub(crate) fn start(
        listener: TcpListener,
        protocols: &Arc<ProtocolDetect>,
        shared: &Arc<SharedState>,
    ) -> Self {
        let (stop, stopped) = oneshot::channel();
        Self {
            accepting: tokio::spawn(accept(listener, Arc::clone(protocols), Arc::clone(shared), stopped)),
            time: tokio::spawn(pass_time(Arc::clone(shared))),
            stop,
        }
    }

    /// Says goodbye to every client, and waits until all are gone.
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.accepting.await;
        self.time.abort();
    }

    /// Ends everything at once, as a crash does. Nobody listens when this returns.
    pub(crate) async fn abort(self) {
        self.accepting.abort();
        self.time.abort();
        let _ = self.accepting.await;
    }
}

async fn accept(
    listener: TcpListener,
    protocols: Arc<ProtocolDetect>,
    shared: Arc<SharedState>,
    mut stopped: oneshot::Receiver<()>,
) {
    // Dropped with this task, and with it all connections.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    // Known before its task begins: should the emulator end in between, it is told so.
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
    drop(listener);
    shared.post_to_all(|mail| mail.close = true);
    while connections.join_next().await.is_some() {}
}

/// Does what time alone does, when it is due.
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
