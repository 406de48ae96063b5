//! The stream below the protocol: TCP, TLS on it, and a WebSocket on that.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::tls;
#[cfg(feature = "websockets")]
use super::websocket;
use crate::address::Address;
use crate::error::WireError;
use crate::options::TransportType;

/// Whatever carries bytes both ways.
pub(crate) trait Stream: AsyncRead + AsyncWrite + std::fmt::Debug + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + std::fmt::Debug + Send + Unpin> Stream for S {}

/// Connects; with TLS, but for the emulator.
pub(crate) async fn connect(address: &Address) -> Result<Box<dyn Stream>, WireError> {
    let (host, port) = address.target();
    let tcp = TcpStream::connect((host, port)).await.map_err(|error| unreachable(address, &error))?;
    tcp.set_nodelay(true).map_err(|error| unreachable(address, &error))?;
    let stream: Box<dyn Stream> = if address.development_emulator {
        Box::new(tcp)
    } else {
        Box::new(tls::connect(address, tcp).await?)
    };
    match address.transport {
        TransportType::AmqpTcp => Ok(stream),
        #[cfg(feature = "websockets")]
        TransportType::AmqpWebSockets => Ok(Box::new(websocket::connect(address, stream).await?)),
    }
}

pub(super) fn unreachable(address: &Address, why: &dyn std::fmt::Display) -> WireError {
    let (host, port) = address.target();
    WireError::interrupted(format!("no connection to {host}:{port}: {why}"))
}
