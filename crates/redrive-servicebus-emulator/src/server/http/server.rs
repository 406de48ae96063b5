//! Listens for HTTP, if enabled, across stops and restarts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use super::connection::{Registered, serve};
use crate::error::StartError;
use crate::server::door::Door;
use crate::server::port::Port;
use crate::server::shared_state::SharedState;

/// Accepting fails if there are too many open files; it may work again soon.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);

/// The HTTP side of the emulator. Dropping it ends it as `stop` does.
#[derive(Debug, Default)]
pub(crate) struct HttpServer {
    port: Option<Port>,
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
        listen: Option<&str>,
        door: Option<Door>,
        shared: &Arc<SharedState>,
    ) -> Result<Self, StartError> {
        let Some(listen) = listen else { return Ok(Self::default()) };
        let (port, listener) =
            Port::take(listen).await.map_err(|source| StartError::listen(&listen, source))?;
        let door = Arc::new(door);
        let listening = tokio::sync::Mutex::new(Some(Listening::start(listener, &door, shared)));
        Ok(Self { port: Some(port), door, listening })
    }

    /// Returns the address.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.port.as_ref().map(Port::address)
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
        if let Some(port) = &self.port {
            let listener = port.listen().await;
            let listener = listener.map_err(|source| StartError::listen(&port.address(), source))?;
            *self.listening.lock().await = Some(Listening::start(listener, &self.door, shared));
        }
        Ok(())
    }
}

impl Listening {
    fn start(listener: TcpListener, door: &Arc<Option<Door>>, shared: &Arc<SharedState>) -> Self {
        let (stop, stopped) = oneshot::channel();
        Self {
            accepting: tokio::spawn(accept(listener, Arc::clone(door), Arc::clone(shared), stopped)),
            stop,
        }
    }
}

async fn accept(
    listener: TcpListener,
    door: Arc<Option<Door>>,
    shared: Arc<SharedState>,
    mut stopped: oneshot::Receiver<()>,
) {
    // Dropping this task drops all connections.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
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
    drop(listener);
    shared.post_to_all(|mail| mail.close = true);
    while connections.join_next().await.is_some() {}
}
