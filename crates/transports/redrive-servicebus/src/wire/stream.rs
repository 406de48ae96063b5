//! The stream below AMQP: TCP, optionally with TLS and a WebSocket.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::tls;
#[cfg(feature = "websockets")]
use super::websocket;
use crate::address::Address;
use crate::error::WireError;
use crate::options::TransportType;

/// A byte stream in both directions.
pub(crate) trait Stream: AsyncRead + AsyncWrite + std::fmt::Debug + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + std::fmt::Debug + Send + Unpin> Stream for S {}

/// Connects, with TLS except for the emulator.
pub(crate) async fn connect(address: &Address) -> Result<Box<dyn Stream>, WireError> {
    let (host, port) = address.target();
    let tcp = TcpStream::connect((host, port)).await.map_err(|error| address.unreachable(&error))?;
    tcp.set_nodelay(true).map_err(|error| address.unreachable(&error))?;
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

/// A stream that counts the received bytes.
#[derive(Debug)]
pub(super) struct CountingStream {
    stream: Box<dyn Stream>,
    received: Arc<AtomicU64>,
}

impl CountingStream {
    /// Wraps a stream, and returns it with its counter.
    pub(super) fn new(stream: Box<dyn Stream>) -> (Self, Arc<AtomicU64>) {
        let received = Arc::new(AtomicU64::new(0));
        (Self { stream, received: Arc::clone(&received) }, received)
    }
}

impl AsyncRead for CountingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.received.fetch_add((buffer.filled().len() - before) as u64, Ordering::Relaxed);
        polled
    }
}

impl AsyncWrite for CountingStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
