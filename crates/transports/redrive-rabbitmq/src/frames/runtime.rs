//! Opens a connection, and passes it to the client library, which asks its runtime for streams.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use async_rs::traits::{Executor, Reactor};
use async_rs::util::{RuntimeParts, Task};
use async_rs::{Runtime, Tokio};
use futures::Stream;
use futures::io::{AsyncRead, AsyncWrite};
use lapin::tcp::{AMQPUriTcpExt, AsyncTcpStream, OwnedTLSConfig};
use lapin::uri::AMQPUri;
use lapin::{Connection, ConnectionProperties};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::channels::OwnChannels;
use super::library::{LibraryStream, Tasks};
use super::pump::Pump;
use super::reader::{FrameReader, Greeting};
use crate::broker::Version;

/// The frame size that is asked for if the URL names none: RabbitMQ's default. The library reserves buffers of 64 frames for it. It clears
/// them, byte by byte, if it learns the size from the broker only.
const FRAME: u32 = 128 * 1024;

/// An open connection.
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    /// The broker's version, from the greeting.
    pub(crate) version: Option<Version>,
    /// Its channels that do not go through the client library.
    pub(crate) channels: OwnChannels,
    /// Once it is dropped, the socket is closed within seconds, whatever the broker and the library do.
    pub(crate) wanted: oneshot::Sender<()>,
}

/// Connects.
pub(crate) async fn connect(
    mut uri: AMQPUri,
    tls: OwnedTLSConfig,
    properties: ConnectionProperties,
) -> lapin::Result<Opened> {
    let tokio = Tokio::current();
    let tasks = Tasks::default();
    let executor = CountingExecutor(tokio.clone(), tasks.clone());
    let runtime = Runtime::new(RuntimeParts::new(executor, PipeReactor(tokio.clone())));
    let wanted = *uri.query.frame_max.get_or_insert(FRAME);
    // Before the library starts: without a stream it would leave two tasks behind.
    let socket = uri.connect_with_config_async(tls.as_ref(), &Runtime::new(tokio)).await?;
    let (greeting, channels) = (Greeting::default(), OwnChannels::default());
    let reader = FrameReader::new(wanted, Greeting::clone(&greeting), channels.clone());
    let (library, other_end) = LibraryStream::new(tasks);
    // Also dropped if the caller gives up: the socket must not stay open as long as the broker keeps it.
    let (still_wanted, dropped) = oneshot::channel::<()>();
    let unwanted = async { drop(dropped.await) };
    tokio::spawn(Pump::new(socket, other_end, reader, channels.clone()).run(unwanted));
    let library = Mutex::new(Some(library));
    let open = async move |_uri: AMQPUri, _runtime: Runtime<_>| {
        let library = library.lock().take();
        // The library asks only once, because it is not configured to reconnect by itself.
        Ok(AsyncTcpStream::Plain(library.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?))
    };
    let connection = Connection::connector(uri, runtime, open, properties).await?;
    let version = greeting.get().copied().flatten();
    Ok(Opened { connection, version, channels, wanted: still_wanted })
}

/// Tokio's executor, which counts the library's tasks.
#[derive(Clone, Debug)]
struct CountingExecutor(Tokio, Tasks);

impl Executor for CountingExecutor {
    type Task<T: Send + 'static> = <Tokio as Executor>::Task<T>;

    fn block_on<T, F: Future<Output = T>>(&self, f: F) -> T {
        self.0.block_on(f)
    }

    fn spawn<T: Send + 'static, F: Future<Output = T> + Send + 'static>(&self, f: F) -> Task<Self::Task<T>> {
        let counted = self.1.count();
        self.0.spawn(async move {
            let _counted = counted;
            f.await
        })
    }

    fn spawn_blocking<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        f: F,
    ) -> Task<Self::Task<T>> {
        self.0.spawn_blocking(f)
    }
}

/// Tokio's reactor with another kind of stream.
#[derive(Clone)]
struct PipeReactor(Tokio);

/// The library never asks for a stream: it is given one.
impl Reactor for PipeReactor {
    type TcpStream = LibraryStream;
    type Sleep = <Tokio as Reactor>::Sleep;

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
        _addr: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        std::future::ready(Err(io::ErrorKind::Unsupported.into()))
    }
}

impl fmt::Debug for PipeReactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PipeReactor")
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use redrive_contract::eventually;

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
        // Nothing more is done for the connection.
        eventually("the library's thread has ended", async || threads("lapin-io-loop") == 0).await;
        assert_eq!(threads("async-compat/tokio-1"), 0);
    }
}
