//! Accepts connections, and ends all of them at once.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Duration, sleep};

use super::port::Listeners;
use super::protocol_detect::ProtocolDetect;
use super::shared_state::SharedState;
use super::socket::{Registered, serve};

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

impl Drop for Listening {
    fn drop(&mut self) {
        self.accepting.abort();
        self.time.abort();
    }
}

impl Listening {
    pub(crate) fn start(
        listeners: Listeners,
        protocols: &Arc<ProtocolDetect>,
        shared: &Arc<SharedState>,
        max_body: u64,
    ) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (protocols, state) = (Arc::clone(protocols), Arc::clone(shared));
        Self {
            accepting: tokio::spawn(accept(listeners, protocols, state, stopped, max_body)),
            time: tokio::spawn(pass_time(Arc::clone(shared))),
            stop,
        }
    }

    /// Closes every connection in order, and waits until all have ended.
    pub(crate) async fn stop(mut self) {
        let (unused, _) = oneshot::channel();
        let _ = std::mem::replace(&mut self.stop, unused).send(());
        let _ = (&mut self.accepting).await;
        self.time.abort();
    }

    /// Ends everything at once, as a crash does. Nothing listens when this returns.
    pub(crate) async fn abort(mut self) {
        self.accepting.abort();
        self.time.abort();
        let _ = (&mut self.accepting).await;
    }
}

async fn accept(
    listeners: Listeners,
    protocols: Arc<ProtocolDetect>,
    shared: Arc<SharedState>,
    mut stopped: oneshot::Receiver<()>,
    max_body: u64,
) {
    // Dropping this task drops all connections.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listeners.accept() => match accepted {
                Ok((stream, peer)) => {
                    // Registered before its task begins: if the emulator ends in between, the connection is told.
                    let (id, wake) = shared.connect(peer.to_string());
                    let registered = Registered { shared: Arc::clone(&shared), id, wake };
                    drop(connections.spawn(serve(stream, registered, Arc::clone(&protocols), max_body)));
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
    shared
        .with(|broker, now| broker.close_all("broker forced connection closure with reason 'shutdown'", now));
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
        }
    }
}
