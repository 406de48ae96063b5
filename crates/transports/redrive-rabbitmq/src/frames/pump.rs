//! The task that has the socket: it moves bytes between the socket, the library, and redrive's own channels.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::time::timeout;

use super::channels::OwnChannels;
use super::ended::Ended;
use super::library::Library;
use super::reader::FrameReader;
use super::writer::FrameWriter;

/// Size of what is read from the library at once.
const READ: usize = 16 * 1024;
/// Time limit for an orderly end.
const CLOSING: Duration = Duration::from_secs(2);

/// The socket of one connection, and all that reads from it and writes to it.
pub(super) struct Pump<S> {
    socket: S,
    library: Library,
    from_library: Box<[u8]>,
    reader: FrameReader,
    writer: FrameWriter,
    channels: EndsWithIt,
}

/// Ends the channels if the task ends early: otherwise those who wait for confirms would wait for ever.
struct EndsWithIt(OwnChannels);

impl Drop for EndsWithIt {
    fn drop(&mut self) {
        self.0.connection_has_ended(Ended::default());
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Pump<S> {
    pub(super) fn new(socket: S, library: Library, reader: FrameReader, channels: OwnChannels) -> Self {
        let writer = FrameWriter::new(channels.clone());
        let from_library = vec![0; READ].into();
        Self { socket, library, from_library, reader, writer, channels: EndsWithIt(channels) }
    }

    /// Moves bytes until the broker or the library ends the connection. Once it is `unwanted` they have a moment left.
    pub(super) async fn run(mut self, unwanted: impl Future<Output = ()>) {
        let ended = tokio::select! {
            ended = std::future::poll_fn(|cx| self.poll(cx)) => Some(ended),
            () = unwanted => None,
        };
        let ended = match ended {
            Some(ended) => ended,
            None => timeout(CLOSING, std::future::poll_fn(|cx| self.poll(cx))).await.unwrap_or(Ok(())),
        };
        let Self { mut socket, library, mut writer, channels, .. } = self;
        // Before the library hears of the end, and another connection is made.
        if let Err(error) = ended {
            library.end.failed(&error);
            channels.0.connection_has_ended((&error).into());
            return;
        }
        channels.0.connection_has_ended(Ended::default());
        library.end.silently();
        // What the library wrote last: usually that the connection is closed.
        let closing = async {
            writer.add(&library.rest().await?);
            std::future::poll_fn(|cx| poll_written(&mut socket, &mut writer, cx)).await?;
            socket.close().await
        };
        let _ = timeout(CLOSING, closing).await;
    }

    /// Ready when the connection is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.channels.0.wake_for_frames(cx);
        if Pin::new(&mut self.library.is_gone).poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        loop {
            let steps = [self.poll_library(cx)?, self.poll_write(cx)?, self.poll_read(cx)?];
            if steps.contains(&Step::Ended) {
                return Poll::Ready(Ok(()));
            }
            if !steps.contains(&Step::Moved) {
                return Poll::Pending;
            }
        }
    }

    /// Takes what the library writes.
    fn poll_library(&mut self, cx: &mut Context<'_>) -> io::Result<Step> {
        if !self.writer.has_room() {
            return Ok(Step::Waits);
        }
        let mut read = ReadBuf::new(&mut self.from_library);
        match Pin::new(&mut self.library.pipe).poll_read(cx, &mut read)? {
            Poll::Pending => Ok(Step::Waits),
            Poll::Ready(()) if read.filled().is_empty() => Ok(Step::Ended),
            Poll::Ready(()) => {
                self.writer.add(read.filled());
                Ok(Step::Moved)
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> io::Result<Step> {
        let waits = self.writer.next().is_empty();
        let written = poll_written(&mut self.socket, &mut self.writer, cx)?;
        Ok(if waits || written.is_pending() { Step::Waits } else { Step::Moved })
    }

    /// Reads only when the library has all that came before.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> io::Result<Step> {
        self.reader.go_on(Instant::now())?;
        if self.reader.is_closed() {
            self.library.end.closed();
        }
        if !self.reader.readable().is_empty() {
            return match Pin::new(&mut self.library.pipe).poll_write(cx, self.reader.readable()) {
                Poll::Pending => Ok(Step::Waits),
                Poll::Ready(Ok(length)) => {
                    self.reader.handed_on(length);
                    Ok(Step::Moved)
                }
                // It has dropped its end.
                Poll::Ready(Err(_)) => Ok(Step::Ended),
            };
        }
        match Pin::new(&mut self.socket).poll_read(cx, self.reader.room())? {
            Poll::Pending => Ok(Step::Waits),
            Poll::Ready(0) => Ok(Step::Ended),
            Poll::Ready(read) => {
                self.reader.take_in(read);
                Ok(Step::Moved)
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Moved,
    Waits,
    /// One side has ended.
    Ended,
}

/// Ready when all that waits is written and sent.
fn poll_written<S: AsyncWrite + Unpin>(
    socket: &mut S,
    writer: &mut FrameWriter,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    loop {
        let next = writer.next();
        if next.is_empty() {
            return Pin::new(socket).poll_flush(cx);
        }
        match ready!(Pin::new(&mut *socket).poll_write(cx, next))? {
            0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            length => writer.written(length),
        }
    }
}

#[cfg(test)]
#[path = "pump_tests.rs"]
mod tests;
