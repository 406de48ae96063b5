//! The stream that the client library reads and writes: a pipe to the task that has the socket.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use futures::io::{AsyncRead, AsyncWrite};
use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWrite as _, DuplexStream, ReadBuf};
use tokio::sync::oneshot::{self, error::TryRecvError};

/// Size of the pipe in each direction.
const PIPE: usize = 64 * 1024;

/// Why the socket cannot be used any more.
#[derive(Clone, Debug, Default)]
pub(super) struct Failure(Arc<OnceLock<(io::ErrorKind, String)>>);

impl Failure {
    pub(super) fn set(&self, error: &io::Error) {
        let _ = self.0.set((error.kind(), error.to_string()));
    }

    fn check(&self) -> io::Result<()> {
        match self.0.get() {
            None => Ok(()),
            Some((kind, text)) => Err(io::Error::new(*kind, text.clone())),
        }
    }
}

/// The library's end of the pipe.
pub(super) struct LibraryStream {
    pipe: DuplexStream,
    failure: Failure,
    _dropped: oneshot::Sender<()>,
}

/// The other end.
pub(super) struct Library {
    pub(super) pipe: DuplexStream,
    pub(super) failure: Failure,
    /// An error once the library's end is dropped: it is seen even while nothing can be read from the pipe.
    pub(super) is_gone: oneshot::Receiver<()>,
}

impl LibraryStream {
    /// Returns it, and the other end.
    pub(super) fn new() -> (Self, Library) {
        let (pipe, other) = tokio::io::duplex(PIPE);
        let (dropped, is_gone) = oneshot::channel();
        let failure = Failure::default();
        let library = Library { pipe: other, failure: failure.clone(), is_gone };
        (Self { pipe, failure, _dropped: dropped }, library)
    }
}

impl Library {
    /// Returns what the library wrote before it dropped its end. If it did not, it hears of the end now.
    pub(super) async fn rest(mut self) -> io::Result<Vec<u8>> {
        let mut rest = Vec::new();
        if self.is_gone.is_terminated() || self.is_gone.try_recv() == Err(TryRecvError::Closed) {
            self.pipe.read_to_end(&mut rest).await?;
        }
        Ok(rest)
    }
}

impl AsyncRead for LibraryStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let mut read = ReadBuf::new(out);
        ready!(Pin::new(&mut this.pipe).poll_read(cx, &mut read))?;
        let length = read.filled().len();
        if length == 0 {
            this.failure.check()?;
        }
        Poll::Ready(Ok(length))
    }
}

impl AsyncWrite for LibraryStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.pipe).poll_write(cx, data));
        // The pipe only knows that its other end has gone.
        Poll::Ready(written.or_else(|error| this.failure.check().and(Err(error))))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.pipe).poll_write_vectored(cx, data));
        Poll::Ready(written.or_else(|error| this.failure.check().and(Err(error))))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(cx)
    }
}
