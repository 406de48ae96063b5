//! Hands the screened stream to the client library, which asks its runtime for streams.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use async_rs::traits::Reactor;
use async_rs::util::RuntimeParts;
use async_rs::{Runtime, Tokio};
use futures::Stream;
use futures::io::{AsyncRead, AsyncWrite};
use futures::task::AtomicWaker;
use lapin::tcp::{AMQPUriTcpExt, AsyncTcpStream, OwnedTLSConfig};
use lapin::uri::AMQPUri;
use lapin::{Connection, ConnectionProperties};

use super::stream::{Greeting, Screened};
use crate::version::Version;

type Socket = Abandonable<AsyncTcpStream<<Tokio as Reactor>::TcpStream>>;

/// Connects, and tells the version that the broker says it has.
pub(crate) async fn connect(
    uri: AMQPUri,
    tls: OwnedTLSConfig,
    properties: ConnectionProperties,
) -> lapin::Result<(Connection, Option<Version>)> {
    let tokio = Tokio::current();
    let runtime = Runtime::new(RuntimeParts::new(tokio.clone(), Screening(tokio.clone())));
    let wanted = uri.query.frame_max.unwrap_or_default();
    // Before the library begins: it leaves two tasks behind when it is given no stream.
    let socket = uri.connect_with_config_async(tls.as_ref(), &Runtime::new(tokio)).await?;
    // Dropped at the end of this: when the caller gives up, the library must too.
    let (socket, waiter) = Abandonable::new(socket);
    let greeting = Greeting::default();
    let opened = Mutex::new(Some(Screened::new(socket, wanted, Greeting::clone(&greeting))));
    let open = async move |_uri: AMQPUri, _runtime: Runtime<_>| {
        let opened = opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        // It does not ask twice, as long as it is not to reconnect by itself.
        Ok(AsyncTcpStream::Plain(opened.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?))
    };
    let connection = Connection::connector(uri, runtime, open, properties).await?;
    waiter.end();
    Ok((connection, greeting.get().copied().flatten()))
}

/// A stream that ends when nobody waits for its connection any more: on one that is never answered the library would wait, with a
/// thread and a task, for as long as the socket is open.
struct Abandonable<S> {
    inner: S,
    given_up: Arc<GivenUp>,
}

#[derive(Default)]
struct GivenUp {
    yes: AtomicBool,
    reader: AtomicWaker,
}

/// Somebody waits for a connection.
struct Waiter {
    given_up: Option<Arc<GivenUp>>,
}

impl Waiter {
    /// The connection is there, and lives on.
    fn end(mut self) {
        self.given_up = None;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some(given_up) = &self.given_up {
            given_up.yes.store(true, Ordering::Release);
            given_up.reader.wake();
        }
    }
}

impl<S> Abandonable<S> {
    fn new(inner: S) -> (Self, Waiter) {
        let given_up = Arc::<GivenUp>::default();
        (Self { inner, given_up: Arc::clone(&given_up) }, Waiter { given_up: Some(given_up) })
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Abandonable<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        let read = Pin::new(&mut self.inner).poll_read(cx, out);
        if read.is_pending() {
            self.given_up.reader.register(cx.waker());
            if self.given_up.yes.load(Ordering::Acquire) {
                return Poll::Ready(Ok(0));
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Abandonable<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_close(cx)
    }
}

/// Tokio's reactor, with another kind of stream.
#[derive(Clone)]
struct Screening(Tokio);

impl Reactor for Screening {
    type TcpStream = Screened<Socket>;
    type Sleep = <Tokio as Reactor>::Sleep;

    /// The library never asks for this: its streams are connected asynchronously from the beginning.
    fn register<H: Read + Write + Send + 'static>(
        &self,
        _socket: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        Err::<Self::TcpStream, _>(io::ErrorKind::Unsupported.into())
    }

    fn sleep(&self, dur: Duration) -> Self::Sleep {
        self.0.sleep(dur)
    }

    fn interval(&self, dur: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.0.interval(dur)
    }

    fn tcp_connect_addr(
        &self,
        addr: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        let connecting = self.0.tcp_connect_addr(addr);
        async move {
            let (socket, waiter) = Abandonable::new(AsyncTcpStream::Plain(connecting.await?));
            waiter.end();
            Ok(Screened::new(socket, 0, Greeting::default()))
        }
    }
}

impl fmt::Debug for Screening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Screening")
    }
}
