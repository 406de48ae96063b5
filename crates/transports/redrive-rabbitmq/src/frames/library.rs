//! The stream that the client library reads and writes: a pipe to the task that has the socket.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use futures::io::{AsyncRead, AsyncWrite};
use parking_lot::{Condvar, Mutex};
use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWrite as _, DuplexStream, ReadBuf};
use tokio::sync::oneshot::{self, error::TryRecvError};

/// Size of the pipe in each direction.
const PIPE: usize = 64 * 1024;

/// By this text the library recognizes the end of tokio's runtime, of which it logs no error.
const RUNTIME_ENDS: &str = "A Tokio 1.x context was found, but it is being shutdown.";

/// Why the stream ends, as the library is told. The first reason counts.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamEnd(Arc<OnceLock<Why>>);

#[derive(Debug)]
enum Why {
    /// The broker or the library gave up.
    Silently,
    /// The socket cannot be used any more.
    Failed(io::ErrorKind, String),
    /// The broker has confirmed that the library closes the connection. It needs nothing more, and would log the end of the stream
    /// as an error.
    Closed,
    /// The runtime ends before the connection.
    WithTheRuntime(Tasks),
}

/// The tasks of the library that are not yet dropped.
#[derive(Clone, Debug, Default)]
pub(super) struct Tasks(Arc<(Mutex<usize>, Condvar)>);

/// One of them.
pub(super) struct Counted(Tasks);

impl Tasks {
    pub(super) fn count(&self) -> Counted {
        *self.0.0.lock() += 1;
        Counted(self.clone())
    }

    /// Blocks until none is left.
    fn wait_until_gone(&self) {
        let (count, gone) = &*self.0;
        gone.wait_while(&mut count.lock(), |count| *count > 0);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let (count, gone) = &*self.0.0;
        *count.lock() -= 1;
        gone.notify_all();
    }
}

impl StreamEnd {
    pub(super) fn failed(&self, error: &io::Error) {
        let _ = self.0.set(Why::Failed(error.kind(), error.to_string()));
    }

    pub(super) fn silently(&self) {
        let _ = self.0.set(Why::Silently);
    }

    pub(super) fn closed(&self) {
        let _ = self.0.set(Why::Closed);
    }

    /// Returns what a stream that has ended reads.
    fn read(&self) -> Poll<io::Result<usize>> {
        match self.0.get() {
            None | Some(Why::Silently) => Poll::Ready(Ok(0)),
            Some(Why::Closed) => Poll::Pending,
            Some(Why::Failed(kind, text)) => Poll::Ready(Err(io::Error::new(*kind, text.clone()))),
            Some(Why::WithTheRuntime(tasks)) => {
                // One that heard of it would log it as an error. The library reads in a thread of its own.
                tasks.wait_until_gone();
                Poll::Ready(Err(io::Error::other(RUNTIME_ENDS)))
            }
        }
    }

    /// Returns the reason instead of the error of the pipe, which only knows that its other end has gone.
    fn instead_of(&self, error: io::Error) -> io::Error {
        match self.read() {
            Poll::Ready(Err(reason)) => reason,
            _ => error,
        }
    }
}

/// Gives the end of the runtime as the reason if there is no other when it is dropped: the task that owns the socket is never aborted.
struct EndsWithTheRuntime(StreamEnd, Tasks);

impl Drop for EndsWithTheRuntime {
    fn drop(&mut self) {
        let why = match std::thread::panicking() {
            true => Why::Failed(io::ErrorKind::Other, "the task that owns the socket panicked".to_owned()),
            false => Why::WithTheRuntime(self.1.clone()),
        };
        let _ = self.0.0.set(why);
    }
}

/// The library's end of the pipe.
pub(super) struct LibraryStream {
    pipe: DuplexStream,
    end: StreamEnd,
    _dropped: oneshot::Sender<()>,
}

/// The other end.
pub(super) struct Library {
    /// Before the pipe: its end is seen with its reason.
    _ends_with_the_runtime: EndsWithTheRuntime,
    pub(super) pipe: DuplexStream,
    pub(super) end: StreamEnd,
    /// An error once the library's end is dropped: it is seen even while nothing can be read from the pipe.
    pub(super) is_gone: oneshot::Receiver<()>,
}

impl LibraryStream {
    /// Returns it, and the other end.
    pub(super) fn new(tasks: Tasks) -> (Self, Library) {
        let (pipe, other) = tokio::io::duplex(PIPE);
        let (dropped, is_gone) = oneshot::channel();
        let end = StreamEnd::default();
        let _ends_with_the_runtime = EndsWithTheRuntime(end.clone(), tasks);
        let library = Library { _ends_with_the_runtime, pipe: other, end: end.clone(), is_gone };
        (Self { pipe, end, _dropped: dropped }, library)
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
        match read.filled().len() {
            0 => this.end.read(),
            length => Poll::Ready(Ok(length)),
        }
    }
}

impl AsyncWrite for LibraryStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.pipe).poll_write(cx, data));
        Poll::Ready(written.map_err(|error| this.end.instead_of(error)))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.pipe).poll_write_vectored(cx, data));
        Poll::Ready(written.map_err(|error| this.end.instead_of(error)))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_end_of_the_runtime_is_recognized() {
        assert!(tokio::runtime::is_rt_shutdown_err(&io::Error::other(RUNTIME_ENDS)));
    }

    #[test]
    fn the_end_of_the_runtime_is_told_when_the_last_task_of_the_library_is_gone() {
        let tasks = Tasks::default();
        let (stream, library) = LibraryStream::new(tasks.clone());
        let last_task = tasks.count();
        drop(library);
        let (told, read) = mpsc::channel();
        std::thread::spawn(move || told.send(stream.end.read()));
        assert!(read.recv_timeout(Duration::from_millis(100)).is_err(), "while a task runs");
        drop(last_task);
        let Poll::Ready(Err(error)) = read.recv().unwrap() else { panic!("it is no error") };
        assert!(tokio::runtime::is_rt_shutdown_err(&error));
    }
}
