//! The task of one connection: moves bytes in and out, and passes on time and notifications from the rest of the emulator.
//! [`Connection`] interprets them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use redrive_emulator_host::{Halves, send, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::connection::{Connection, OPEN_TIME_OUT};
use super::mailbox::Mailbox;
use super::protocol_detect::ProtocolDetect;
use super::shared_state::SharedState;

/// Size of one read.
const READ_BUFFER: usize = 64 * 1024;
/// With this much unprocessed input nothing more is read; larger than the largest frame.
const INPUT_LIMIT: usize = 2 * READ_BUFFER;
/// With this much unsent output nothing more is read: a client that does not read must not use up memory.
const UNSENT_LIMIT: usize = 4 * 1024 * 1024;
/// Time limit for a client to read the last frames when the server closes the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves one client until either side ends the connection, then gives back what the client held.
pub(crate) async fn serve(
    stream: TcpStream,
    mailbox: Arc<Mailbox>,
    protocols: Arc<ProtocolDetect>,
    shared: Arc<SharedState>,
) {
    let ended = match let_in(stream, &protocols, &mailbox).await {
        Ok(Some(halves)) => converse(halves, &mailbox, &shared).await,
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    shared.disconnect(mailbox.id);
    if let Err(error) = ended {
        tracing::debug!(connection = mailbox.id, %error, "connection ended");
    }
}

/// Returns `None` if the emulator ends first.
async fn let_in(
    stream: TcpStream,
    protocols: &ProtocolDetect,
    mailbox: &Mailbox,
) -> io::Result<Option<Halves>> {
    stream.set_nodelay(true)?;
    tokio::select! {
        halves = timeout(OPEN_TIME_OUT, protocols.accept(stream)) => match halves {
            Ok(halves) => halves.map(Some),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the client did not open the connection in time")),
        },
        () = told_to_end(mailbox) => Ok(None),
    }
}

/// Waits for the end of the emulator. Other notifications do not matter before the client is accepted.
async fn told_to_end(mailbox: &Mailbox) {
    loop {
        mailbox.changed().await;
        let mail = mailbox.take();
        if mail.close || mail.drop {
            return;
        }
    }
}

async fn converse(halves: Halves, mailbox: &Arc<Mailbox>, shared: &Arc<SharedState>) -> io::Result<()> {
    let mut connection = Connection::new(Arc::clone(shared), Arc::clone(mailbox), Instant::now());
    let ended = exchange(halves, &mut connection, mailbox, shared).await;
    connection.end();
    ended
}

async fn exchange(
    (mut reading, mut writing): Halves,
    connection: &mut Connection,
    mailbox: &Mailbox,
    shared: &SharedState,
) -> io::Result<()> {
    let mut input = BytesMut::with_capacity(READ_BUFFER);
    let mut output = BytesMut::new();
    // Output waits until the changes behind it are on disk: a crash must not make a response untrue.
    let mut unwritten = None;
    // True if all changes behind the output could be stored.
    let mut kept = true;
    // TLS and WebSockets may buffer output until a flush.
    let mut unflushed = false;
    while !connection.is_over() {
        if output.is_empty() && connection.has_output() {
            output = connection.take_output();
            unwritten = shared.ticket();
        }
        let room = connection.unsent() < UNSENT_LIMIT;
        let deadline = connection.next_deadline();
        tokio::select! {
            read = reading.read_buf(&mut input), if room && input.len() < INPUT_LIMIT => {
                if read? == 0 {
                    return Ok(());
                }
                connection.receive(&mut input, Instant::now());
                input.reserve(READ_BUFFER);
            }
            written = shared.written(unwritten, connection.outages), if unwritten.is_some() => {
                unwritten = None;
                if let Err(error) = written {
                    output.clear();
                    connection.fail(&error);
                    kept = false;
                }
            }
            sent = send(&mut writing, &mut output, &mut unflushed),
                if unwritten.is_none() && (unflushed || !output.is_empty()) =>
            {
                sent?;
                if output.is_empty() {
                    connection.receive(&mut input, Instant::now());
                    connection.serve();
                }
            }
            () = mailbox.changed() => connection.read_mail(mailbox.take()),
            () = until(deadline) => connection.on_time(Instant::now()),
        }
    }
    output.unsplit(connection.take_output());
    if !connection.is_dropped() {
        let farewell = async {
            if kept {
                shared.written(shared.ticket(), connection.outages).await.map_err(io::Error::other)?;
            }
            writing.write_all(&output).await?;
            writing.flush().await?;
            writing.shutdown().await?;
            // Closing a socket with unread input would discard our last frames: lets the client close first.
            while reading.read_buf(&mut input).await? > 0 {
                input.clear();
            }
            io::Result::Ok(())
        };
        timeout(CLOSE_TIMEOUT, farewell).await.unwrap_or(Ok(()))?;
    }
    Ok(())
}
