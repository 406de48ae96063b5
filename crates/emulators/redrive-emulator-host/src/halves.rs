//! The two halves of a connection, independent of the protocol below.

use std::future::pending;
use std::io;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

/// The input from the client, and the output to it.
pub type Halves = (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>);

/// Splits a connection without TLS.
pub fn plain(stream: TcpStream) -> Halves {
    let (reading, writing) = stream.into_split();
    (Box::new(reading), Box::new(writing))
}

/// Sends some or all of the output; after all of it, flushes. `unflushed`: a flush is due. Cancel safe.
///
/// # Errors
/// Those of the connection.
pub async fn send(
    writing: &mut (impl AsyncWrite + Unpin),
    output: &mut BytesMut,
    unflushed: &mut bool,
) -> io::Result<()> {
    if !output.is_empty() {
        writing.write_buf(output).await?;
        *unflushed = true;
    }
    if output.is_empty() {
        writing.flush().await?;
        *unflushed = false;
    }
    Ok(())
}

/// Resolves at the deadline; never if there is none.
pub async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}
