//! Bounds what connections take, from whomever they come: open files, and time until their request.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use axum_server::accept::Accept;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// How long a connection may take until the headers of its next request are there.
const HEADER_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum number of connections: more than a few people and their proxies open.
const MAX_CONNECTIONS: usize = 256;

/// Returns the HTTP of the page: only version 1, whose clients must send their headers in time.
pub(super) fn http() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder
}

/// Closes a connection at once if there are too many: the others, the broker and the journals need files too.
#[derive(Clone)]
pub(super) struct Bounded<A> {
    inner: A,
    free: Arc<Semaphore>,
}

impl<A> Bounded<A> {
    pub(super) fn new(inner: A) -> Self {
        Self { inner, free: Arc::new(Semaphore::new(max_connections())) }
    }
}

/// Half of the files that the process may open.
fn max_connections() -> usize {
    #[cfg(unix)]
    if let Some(files) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        return MAX_CONNECTIONS.min(usize::try_from(files / 2).unwrap_or(MAX_CONNECTIONS)).max(1);
    }
    MAX_CONNECTIONS
}

impl<A> Accept<TcpStream, Router> for Bounded<A>
where
    A: Accept<TcpStream, Router>,
    A::Future: Send + 'static,
    A::Stream: 'static,
    A::Service: 'static,
{
    type Stream = A::Stream;
    type Service = A::Service;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: Router) -> Self::Future {
        let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() else {
            return Box::pin(async { Err(io::Error::other("too many connections")) });
        };
        // The service of a connection lives as long as the connection.
        let service = service.layer(Extension(Arc::new(permit)));
        Box::pin(self.inner.accept(stream, service))
    }
}

#[cfg(test)]
mod tests {
    use axum_server::accept::DefaultAcceptor;
    use hyper_util::rt::TokioIo;
    use hyper_util::service::TowerToHyperService;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_that_does_not_begin_ends() {
        for begun in ["", "GET / HTTP/1.1\r\nhost: "] {
            let (mut client, server) = tokio::io::duplex(1024);
            client.write_all(begun.as_bytes()).await.unwrap();
            let service = TowerToHyperService::new(Router::new());
            let http = http();
            let serving = http.serve_connection(TokioIo::new(server), service);
            let waited = tokio::time::timeout(2 * HEADER_TIMEOUT, serving).await;
            assert!(waited.is_ok(), "{begun:?}");
        }
    }

    #[tokio::test]
    async fn one_connection_too_many_is_closed_until_another_ends() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let bounded = Bounded { inner: DefaultAcceptor::new(), free: Arc::new(Semaphore::new(1)) };
        let accept = async || {
            let address = listener.local_addr().unwrap();
            let (_client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
            bounded.accept(accepted.unwrap().0, Router::new()).await
        };
        let first = accept().await.unwrap();
        assert!(accept().await.is_err());
        drop(first);
        assert!(accept().await.is_ok());
    }
}
