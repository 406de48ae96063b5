//! The task of one connection: moves bytes between a socket and the broker.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use redrive_amqp091::HEARTBEAT;
use redrive_emulator_host::{Halves, send, until};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::decoder::Decoder;
use super::protocol_detect::ProtocolDetect;
use super::shared_state::SharedState;
use crate::broker::ConnectionId;

/// Size of one read.
const READ_BUFFER: usize = 128 * 1024;
/// With this much unprocessed input nothing more is read; larger than the largest frame.
const INPUT_LIMIT: usize = 2 * READ_BUFFER;
/// Time limit for a client to log in, and to confirm that the server closed the connection.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for a client to read the last frames.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Unregisters the connection however its task ends, also when it is aborted.
pub(crate) struct Registered {
    pub(crate) shared: Arc<SharedState>,
    pub(crate) id: ConnectionId,
    pub(crate) wake: Arc<Notify>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.disconnect(self.id);
    }
}

/// Serves one client until either side ends the connection.
pub(crate) async fn serve(
    stream: TcpStream,
    registered: Registered,
    protocols: Arc<ProtocolDetect>,
    max_body: u64,
) {
    let accepted = async {
        stream.set_nodelay(true)?;
        match timeout(HANDSHAKE_TIMEOUT, protocols.accept(stream)).await {
            Ok(halves) => halves,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the client did not begin in time")),
        }
    };
    let accepted = tokio::select! {
        halves = accepted => halves,
        () = ended(&registered) => return,
    };
    let done = match accepted {
        Ok(halves) => Task::new(&registered, max_body).exchange(halves).await,
        Err(error) => Err(error),
    };
    if let Err(error) = done {
        tracing::debug!(connection = registered.id.0, %error, "connection ended");
    }
}

/// Resolves when the connection is to end before it has begun.
async fn ended(registered: &Registered) {
    loop {
        registered.wake.notified().await;
        let next = registered.shared.next(registered.id, false);
        if next.over || next.cut {
            return;
        }
    }
}

struct Task<'a> {
    registered: &'a Registered,
    decoder: Decoder,
    input: BytesMut,
    output: BytesMut,
    begun: Instant,
    last_read: Instant,
    /// When bytes were last due: a heartbeat counts, also if it could not be sent.
    last_sent: Instant,
    /// When the socket last took bytes.
    last_taken: Instant,
}

impl<'a> Task<'a> {
    fn new(registered: &'a Registered, max_body: u64) -> Self {
        let now = Instant::now();
        Self {
            registered,
            decoder: Decoder::new(max_body),
            input: BytesMut::with_capacity(READ_BUFFER),
            output: BytesMut::new(),
            begun: now,
            last_read: now,
            last_sent: now,
            last_taken: now,
        }
    }

    async fn exchange(&mut self, (mut reading, mut writing): Halves) -> io::Result<()> {
        let (shared, id) = (&self.registered.shared, self.registered.id);
        let mut commands = Vec::new();
        // TLS may buffer output until a flush.
        let mut unflushed = false;
        // Output waits until the changes behind it are on disk: a crash must not make a response untrue.
        let mut unwritten = None;
        let mut closing_since = None;
        loop {
            let next = shared.next(id, self.output.is_empty());
            if next.cut {
                return Ok(());
            }
            if !next.output.is_empty() {
                self.output = next.output;
                // What is said while a connection is opened or closed depends on no change.
                unwritten = if next.open || next.over { shared.ticket() } else { None };
            }
            if next.over && unwritten.is_none() {
                let rest = shared.next(id, true).output;
                self.output.unsplit(rest);
                return self.say_farewell(&mut reading, &mut writing).await;
            }
            if next.closing {
                closing_since.get_or_insert_with(Instant::now);
            }
            let timing =
                Timing { heartbeat: next.heartbeat, reads: next.wants_input, open: next.open, closing_since };
            let deadline = self.deadline(&timing);
            if shared.is_frozen() {
                tokio::select! {
                    () = shared.thawed() => {}
                    () = self.registered.wake.notified() => {}
                }
                self.last_read = Instant::now();
                self.last_taken = self.last_read;
                continue;
            }
            tokio::select! {
                read = reading.read_buf(&mut self.input), if next.wants_input && self.input.len() < INPUT_LIMIT => {
                    if read? == 0 {
                        return Ok(());
                    }
                    self.last_read = Instant::now();
                    self.decoder.decode(&mut self.input, &mut commands);
                    shared.handle(id, &mut commands);
                    self.input.reserve(READ_BUFFER);
                }
                written = shared.written(unwritten), if unwritten.is_some() => {
                    unwritten = None;
                    if let Err(reason) = written {
                        // What cannot be kept was not done, as far as this client knows.
                        self.output.clear();
                        shared.with(|broker, now| broker.fail_connection(id, &reason, now));
                    }
                }
                sent = send(&mut writing, &mut self.output, &mut unflushed),
                    if unwritten.is_none() && (unflushed || !self.output.is_empty()) =>
                {
                    sent?;
                    self.last_sent = Instant::now();
                    self.last_taken = self.last_sent;
                }
                () = self.registered.wake.notified() => {}
                () = shared.frozen() => {}
                () = until(deadline) => self.on_time(&timing)?,
            }
        }
    }

    async fn say_farewell(
        &mut self,
        reading: &mut (impl AsyncRead + Unpin),
        writing: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<()> {
        let farewell = async {
            writing.write_all(&self.output).await?;
            writing.shutdown().await?;
            // Closing a socket with unread input would discard our last frames: lets the client close first.
            while reading.read_buf(&mut self.input).await? > 0 {
                self.input.clear();
            }
            io::Result::Ok(())
        };
        timeout(CLOSE_TIMEOUT, farewell).await.unwrap_or(Ok(()))
    }

    fn deadline(&self, timing: &Timing) -> Option<Instant> {
        let closing = timing.closing_since.map(|since| since + HANDSHAKE_TIMEOUT);
        let opening =
            (!timing.open && timing.closing_since.is_none()).then(|| self.begun + HANDSHAKE_TIMEOUT);
        let alive = (timing.heartbeat > 0).then(|| {
            let half = Duration::from_secs(u64::from(timing.heartbeat)) / 2;
            (self.last_sent + half).min(self.last_read + 4 * half)
        });
        [closing, opening, alive].into_iter().flatten().min()
    }

    /// Sends a sign of life, or gives up on a client that sends none.
    fn on_time(&mut self, timing: &Timing) -> io::Result<()> {
        let now = Instant::now();
        let late = |what: &str| Err(io::Error::new(io::ErrorKind::TimedOut, what.to_owned()));
        if timing.closing_since.is_some_and(|since| since + HANDSHAKE_TIMEOUT <= now) {
            return late("the client did not confirm the end of the connection");
        }
        if !timing.open && timing.closing_since.is_none() && self.begun + HANDSHAKE_TIMEOUT <= now {
            return late("the client did not log in in time");
        }
        if timing.heartbeat == 0 {
            return Ok(());
        }
        let heartbeat = Duration::from_secs(u64::from(timing.heartbeat));
        let takes = self.output.is_empty() || self.last_taken + 2 * heartbeat > now;
        if !timing.reads && takes {
            // Nothing is read: the client may well have sent something.
            self.last_read = now;
        }
        if self.last_read + 2 * heartbeat <= now {
            return late(if timing.reads {
                "missed heartbeats from the client"
            } else {
                "the client reads nothing"
            });
        }
        if self.last_sent + heartbeat / 2 <= now {
            if self.output.is_empty() {
                self.output.extend_from_slice(&HEARTBEAT);
            }
            self.last_sent = now;
        }
        Ok(())
    }
}

/// What the times of a connection depend on.
struct Timing {
    /// In seconds.
    heartbeat: u16,
    /// The socket is read.
    reads: bool,
    open: bool,
    closing_since: Option<Instant>,
}

#[cfg(test)]
mod tests;
