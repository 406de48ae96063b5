//! One connection's task: bytes in, bytes out, time, and word from the rest of the emulator. What they mean is decided
//! in [`Connection`].

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use super::connection::Connection;
use super::hub::Hub;
use super::mailbox::Mailbox;

/// How much is read at once.
const READ_BUFFER: usize = 64 * 1024;
/// With this much not taken in nothing more is read; more than the largest frame.
const INPUT_LIMIT: usize = 2 * READ_BUFFER;
/// With this much unsent nothing more is read: a client that does not read cannot make us grow.
const UNSENT_LIMIT: usize = 4 * 1024 * 1024;
/// How long a client that we are closing gets to take the last frames.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// Serves one client until either side ends it. What it held is given back at the end.
pub(crate) async fn serve(mut stream: TcpStream, hub: Arc<Hub>) {
    let mailbox = hub.connect();
    let mut connection = Connection::new(Arc::clone(&hub), Arc::clone(&mailbox), Instant::now());
    let ended = exchange(&mut stream, &mut connection, &mailbox, &hub).await;
    connection.end();
    hub.disconnect(mailbox.id);
    if let Err(error) = ended {
        tracing::debug!(connection = mailbox.id, %error, "connection ended");
    }
}

async fn exchange(
    stream: &mut TcpStream,
    connection: &mut Connection,
    mailbox: &Mailbox,
    hub: &Hub,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut reading, mut writing) = stream.split();
    let mut input = BytesMut::with_capacity(READ_BUFFER);
    let mut output = BytesMut::new();
    // What must be on disk before the output may leave: an answer that a crash could make untrue is none.
    let mut unwritten = None;
    while !connection.is_over() {
        if output.is_empty() && connection.has_output() {
            output = connection.take_output();
            unwritten = hub.ticket();
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
            written = hub.written(unwritten), if unwritten.is_some() => {
                written?;
                unwritten = None;
            }
            written = writing.write_buf(&mut output), if !output.is_empty() && unwritten.is_none() => {
                written?;
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
            hub.written(hub.ticket()).await?;
            writing.write_all(&output).await?;
            writing.shutdown().await
        };
        tokio::time::timeout(CLOSE_PATIENCE, farewell).await.unwrap_or(Ok(()))?;
    }
    Ok(())
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}
