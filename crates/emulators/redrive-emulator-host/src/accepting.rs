//! Accepts connections, and ends all of them at once.

use std::future::pending;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use crate::port::Listeners;

/// Accepting fails if there are too many open files; it may work again soon.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);

/// The task that accepts connections. Each connection has its own task. Dropping it aborts all of them.
#[derive(Debug)]
pub struct Accepting {
    task: JoinHandle<()>,
    /// `None`: connections cannot be asked to end.
    stop: Option<oneshot::Sender<()>>,
}

impl Accepting {
    /// Accepts connections until it is stopped. `serve` is called when one is accepted; `close_all` asks the connections to end.
    pub fn start<S: Future<Output = ()> + Send + 'static>(
        listeners: Listeners,
        serve: impl FnMut(TcpStream, SocketAddr) -> S + Send + 'static,
        close_all: impl FnOnce() + Send + 'static,
    ) -> Self {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut connections = accept(&listeners, serve, stopped).await;
            drop(listeners);
            close_all();
            while connections.join_next().await.is_some() {}
        });
        Self { task, stop: Some(stop) }
    }

    /// Accepts connections that cannot be asked to end: [`stop`](Self::stop) aborts them.
    pub fn until_aborted<S: Future<Output = ()> + Send + 'static>(
        listeners: Listeners,
        serve: impl FnMut(TcpStream, SocketAddr) -> S + Send + 'static,
    ) -> Self {
        let task = tokio::spawn(async move { drop(accept(&listeners, serve, pending::<()>()).await) });
        Self { task, stop: None }
    }

    /// Closes every connection in order, and waits until all have ended.
    pub async fn stop(mut self) {
        match self.stop.take() {
            Some(stop) => drop(stop.send(())),
            None => self.task.abort(),
        }
        let _ = (&mut self.task).await;
    }

    /// Ends everything at once, as a crash does. Nothing listens when this returns.
    pub async fn abort(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Accepting {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Accepts connections until `stopped` resolves. Dropping the returned set, or this future, aborts the connections.
async fn accept<S: Future<Output = ()> + Send + 'static>(
    listeners: &Listeners,
    mut serve: impl FnMut(TcpStream, SocketAddr) -> S,
    stopped: impl Future,
) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    let mut stopped = pin!(stopped);
    loop {
        tokio::select! {
            accepted = listeners.accept() => match accepted {
                Ok((stream, peer)) => drop(connections.spawn(serve(stream, peer))),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(PAUSE_AFTER_FAILURE).await;
                }
            },
            Some(_) = connections.join_next() => {}
            _ = &mut stopped => return connections,
        }
    }
}
