//! The stream that the client library reads: complete, readable frames, without the deliveries that are taken.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use futures::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;

use super::reader::FrameReader;
use super::waiter::GivenUp;

/// After this many reads in a row the library has a turn: it writes only when there is nothing to read for the moment.
const READS_IN_A_ROW: usize = 8;

/// The decrypted stream of one connection. It ends when nobody waits for the connection any more: otherwise the library would wait,
/// with a thread and a task, as long as the socket is open.
pub(crate) struct SanitizedStream<S> {
    /// Present until it is dropped.
    inner: Option<S>,
    /// The runtime of the socket.
    runtime: Handle,
    reader: FrameReader,
    /// Number of reads in a row.
    reads: usize,
    given_up: GivenUp,
}

impl<S> SanitizedStream<S> {
    pub(super) fn new(inner: S, runtime: Handle, reader: FrameReader, given_up: GivenUp) -> Self {
        Self { inner: Some(inner), runtime, reader, reads: 0, given_up }
    }
}

impl<S: Unpin> SanitizedStream<S> {
    fn inner(&mut self) -> io::Result<Pin<&mut S>> {
        pinned(&mut self.inner)
    }
}

fn pinned<S: Unpin>(inner: &mut Option<S>) -> io::Result<Pin<&mut S>> {
    inner.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
}

/// Drops the socket in its own runtime. The library drops the stream on its own thread; `async-compat` would start another runtime
/// there, with a thread and three files, and panic at the end of every connection if the process has no file left.
impl<S> Drop for SanitizedStream<S> {
    fn drop(&mut self) {
        let _in_its_runtime = self.runtime.enter();
        self.inner = None;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SanitizedStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if out.is_empty() {
            return Poll::Ready(Ok(0));
        }
        loop {
            this.reader.go_on(Instant::now())?;
            if !this.reader.readable().is_empty() {
                return Poll::Ready(Ok(this.reader.hand_on(out)));
            }
            if this.reads == READS_IN_A_ROW {
                this.reads = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let read = match pinned(&mut this.inner)?.poll_read(cx, this.reader.room()) {
                Poll::Pending if this.given_up.poll(cx) => 0,
                Poll::Pending => {
                    this.reads = 0;
                    return Poll::Pending;
                }
                Poll::Ready(read) => read?,
            };
            if read == 0 {
                return Poll::Ready(Ok(0));
            }
            this.reads += 1;
            this.reader.take_in(read);
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SanitizedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.inner()?.poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.inner()?.poll_write_vectored(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner()?.poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner()?.poll_close(cx)
    }
}
