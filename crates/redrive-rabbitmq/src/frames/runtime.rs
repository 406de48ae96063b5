//! Passes the sanitized stream to the client library, which asks its runtime for streams.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_rs::traits::Reactor;
use async_rs::util::RuntimeParts;
use async_rs::{Runtime, Tokio};
use futures::Stream;
use futures::io::{AsyncRead, AsyncWrite};
use lapin::tcp::{AMQPUriTcpExt, AsyncTcpStream, OwnedTLSConfig};
use lapin::uri::AMQPUri;
use lapin::{Connection, ConnectionProperties};
use tokio::runtime::Handle;

use super::deliveries::Deliveries;
use super::reader::{FrameReader, Greeting};
use super::stream::SanitizedStream;
use super::waiter::{GivenUp, Waiter};
use crate::version::Version;

type Socket = AsyncTcpStream<<Tokio as Reactor>::TcpStream>;

/// The frame size that is asked for if the URL names none: RabbitMQ's default. The library reserves buffers of 64 frames for it. It clears
/// them, byte by byte, if it learns the size from the broker only.
const FRAME: u32 = 128 * 1024;

/// An open connection.
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    /// The broker's version, from the greeting.
    pub(crate) version: Option<Version>,
    /// The deliveries that are taken off its stream.
    pub(crate) deliveries: Deliveries,
}

/// Connects.
pub(crate) async fn connect(
    mut uri: AMQPUri,
    tls: OwnedTLSConfig,
    properties: ConnectionProperties,
) -> lapin::Result<Opened> {
    let tokio = Tokio::current();
    let runtime =
        Runtime::new(RuntimeParts::new(tokio.clone(), SanitizingReactor(tokio.clone(), Handle::current())));
    let wanted = *uri.query.frame_max.get_or_insert(FRAME);
    // Before the library starts: without a stream it would leave two tasks behind.
    let socket = uri.connect_with_config_async(tls.as_ref(), &Runtime::new(tokio)).await?;
    // Dropped at the end of this function: if the caller gives up, the library must too.
    let (waiter, given_up) = Waiter::new();
    let (greeting, deliveries) = (Greeting::default(), Deliveries::default());
    let reader = FrameReader::new(wanted, Greeting::clone(&greeting), deliveries.clone());
    let opened = Mutex::new(Some(SanitizedStream::new(socket, Handle::current(), reader, given_up)));
    let open = async move |_uri: AMQPUri, _runtime: Runtime<_>| {
        let opened = opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The library asks only once, because it is not configured to reconnect by itself.
        Ok(AsyncTcpStream::Plain(opened.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?))
    };
    let connection = Connection::connector(uri, runtime, open, properties).await?;
    waiter.end();
    Ok(Opened { connection, version: greeting.get().copied().flatten(), deliveries })
}

/// Tokio's reactor with another kind of stream.
#[derive(Clone)]
struct SanitizingReactor(Tokio, Handle);

impl Reactor for SanitizingReactor {
    type TcpStream = SanitizedStream<Socket>;
    type Sleep = <Tokio as Reactor>::Sleep;

    /// The library never calls this: its streams are asynchronous from the beginning.
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
        let runtime = self.1.clone();
        async move {
            let socket = AsyncTcpStream::Plain(connecting.await?);
            let reader = FrameReader::new(0, Greeting::default(), Deliveries::default());
            Ok(SanitizedStream::new(socket, runtime, reader, GivenUp::default()))
        }
    }
}

impl fmt::Debug for SanitizingReactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SanitizingReactor")
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use redrive_testkit::contract::eventually;

    use super::*;

    /// Returns how many threads of this process have this name; the system keeps 15 bytes of it.
    fn threads(name: &str) -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|found| name.starts_with(found.trim_end())).count()
    }

    #[tokio::test]
    async fn a_connection_that_ends_starts_no_second_runtime() {
        let broker = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("amqp://{}", broker.local_addr().unwrap()).parse().unwrap();
        std::thread::spawn(move || while broker.accept().is_ok() {});
        let connected = connect(uri, OwnedTLSConfig::default(), ConnectionProperties::default()).await;
        assert!(connected.is_err());
        // The socket goes with the library's thread.
        eventually("the library's thread has ended", async || threads("lapin-io-loop") == 0).await;
        assert_eq!(threads("async-compat/tokio-1"), 0);
    }
}
