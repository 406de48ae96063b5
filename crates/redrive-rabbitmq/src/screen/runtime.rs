//! Hands the screened stream to the client library, which asks its runtime for streams.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use async_rs::traits::Reactor;
use async_rs::util::RuntimeParts;
use async_rs::{Runtime, Tokio};
use futures::Stream;
use futures::io::{AsyncRead, AsyncWrite};
use lapin::tcp::{AMQPUriTcpExt, AsyncTcpStream, OwnedTLSConfig};
use lapin::uri::AMQPUri;
use lapin::{Connection, ConnectionProperties};

use super::stream::{Greeting, Screened};
use crate::version::Version;

type Socket = AsyncTcpStream<<Tokio as Reactor>::TcpStream>;

/// Connects, and tells the version that the broker says it has.
pub(crate) async fn connect(
    uri: AMQPUri,
    tls: OwnedTLSConfig,
    properties: ConnectionProperties,
) -> lapin::Result<(Connection, Option<Version>)> {
    let greeting = Greeting::default();
    let told = Greeting::clone(&greeting);
    let tokio = Tokio::current();
    let runtime = Runtime::new(RuntimeParts::new(tokio.clone(), Screening(tokio.clone())));
    let open = async move |uri: AMQPUri, _runtime: Runtime<_>| {
        let runtime = Runtime::new(tokio.clone());
        let wanted = uri.query.frame_max.unwrap_or_default();
        let socket = uri.connect_with_config_async(tls.as_ref(), &runtime).await?;
        Ok(AsyncTcpStream::Plain(Screened::new(socket, wanted, Greeting::clone(&greeting))))
    };
    let connection = Connection::connector(uri, runtime, open, properties).await?;
    Ok((connection, told.get().copied().flatten()))
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
        async move { Ok(Screened::new(AsyncTcpStream::Plain(connecting.await?), 0, Greeting::default())) }
    }
}

impl fmt::Debug for Screening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Screening")
    }
}
