//! Listens for HTTP, if enabled, across stops and restarts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use super::connection::{Registered, serve};
use crate::error::StartError;
use crate::server::door::Door;
use crate::server::port::{Listen, Listeners, Ports};
use crate::server::shared_state::SharedState;

/// Accepting fails if there are too many open files; it may work again soon.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);

/// The HTTP side of the emulator. Dropping it ends it as `stop` does.
#[derive(Debug, Default)]
pub(crate) struct HttpServer {
    ports: Option<Ports>,
    /// `None`: tokens are checked, and every request is let in.
    door: Arc<Option<Door>>,
    listening: tokio::sync::Mutex<Option<Listening>>,
}

#[derive(Debug)]
struct Listening {
    accepting: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl HttpServer {
    /// Starts listening at this address, if there is one.
    pub(crate) async fn start(
        listen: &[Listen],
        door: Option<Door>,
        shared: &Arc<SharedState>,
    ) -> Result<Self, StartError> {
        if listen.is_empty() {
            return Ok(Self::default());
        }
        let (ports, listeners) = Ports::take(listen).await.map_err(StartError::listen)?;
        let door = Arc::new(door);
        let listening = tokio::sync::Mutex::new(Some(Listening::start(listeners, &door, shared)));
        Ok(Self { ports: Some(ports), door, listening })
    }

    /// Returns the addresses.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.ports.as_ref().map(Ports::addresses).unwrap_or_default()
    }

    /// Ends at once, as a crash does. Nothing listens when this returns.
    pub(crate) async fn abort(&self) {
        if let Some(listening) = self.listening.lock().await.take() {
            listening.accepting.abort();
            let _ = listening.accepting.await;
        }
    }

    /// Responds to requests in progress, and ends. Call this before notifying the connections to end.
    pub(crate) async fn stop(&self) {
        if let Some(listening) = self.listening.lock().await.take() {
            let _ = listening.stop.send(());
            let _ = listening.accepting.await;
        }
    }

    /// Listens at the same address again.
    pub(crate) async fn restart(&self, shared: &Arc<SharedState>) -> Result<(), StartError> {
        if let Some(ports) = &self.ports {
            let listeners = ports.listen().await.map_err(StartError::listen)?;
            *self.listening.lock().await = Some(Listening::start(listeners, &self.door, shared));
        }
        Ok(())
    }
}

impl Listening {
    fn start(listeners: Listeners, door: &Arc<Option<Door>>, shared: &Arc<SharedState>) -> Self {
        let (stop, stopped) = oneshot::channel();
        Self {
            accepting: tokio::spawn(accept(listeners, Arc::clone(door), Arc::clone(shared), stopped)),
            stop,
        }
    }
}

async fn accept(
    listeners: Listeners,
    door: Arc<Option<Door>>,
    shared: Arc<SharedState>,
    mut stopped: oneshot::Receiver<()>,
) {
    // Dropping this task drops all connections.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listeners.accept() => match accepted {
                // Registered before its task begins: if the emulator ends in between, the connection is notified.
                Ok((stream, _)) => drop(connections.spawn(serve(stream, Arc::clone(&door), Registered::new(&shared)))),
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
