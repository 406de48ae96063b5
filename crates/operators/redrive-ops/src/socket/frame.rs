//! Frames: four bytes with the length, big endian, and then JSON.

use std::io::{Error, ErrorKind, Result};
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

/// The maximum length of a frame, in bytes: a message with a body of 10 MiB fits, whatever characters it has.
pub(super) const MAX_FRAME: usize = 64 * 1024 * 1024;
/// How long the other end may take for a frame that was begun.
const STALL: Duration = Duration::from_secs(30);

/// The value makes a frame that is too large.
#[derive(Debug)]
pub(super) struct TooLarge {
    /// Its length in bytes.
    pub(super) length: usize,
}

/// Writes a value as JSON.
///
/// # Errors
///
/// If it is longer than [`MAX_FRAME`].
pub(super) fn encode(value: &impl Serialize) -> std::result::Result<Vec<u8>, TooLarge> {
    check(serde_json::to_vec(value).expect("texts, numbers, and maps with texts as keys"))
}

/// Refuses what is longer than [`MAX_FRAME`].
///
/// # Errors
///
/// If it is.
pub(super) fn check(frame: Vec<u8>) -> std::result::Result<Vec<u8>, TooLarge> {
    if frame.len() > MAX_FRAME { Err(TooLarge { length: frame.len() }) } else { Ok(frame) }
}

/// Reads a frame. Waits for its first byte as long as it takes. Returns `None` if the other end closed instead.
///
/// # Errors
///
/// If the frame is announced as longer than [`MAX_FRAME`], ends early, or takes longer than [`STALL`]; or if the stream cannot be read.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Option<Vec<u8>>> {
    let mut first = [0];
    if stream.read(&mut first).await? == 0 {
        return Ok(None);
    }
    in_time(rest(first[0], stream)).await.map(Some)
}

async fn rest(first: u8, stream: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>> {
    let mut length = [first, 0, 0, 0];
    stream.read_exact(&mut length[1..]).await?;
    let length = u32::from_be_bytes(length);
    if length as usize > MAX_FRAME {
        return Err(Error::new(ErrorKind::InvalidData, format!("a frame of {length} bytes is too large")));
    }
    // It grows with what arrives, and not with what was announced.
    let mut frame = Vec::new();
    stream.take(length.into()).read_to_end(&mut frame).await?;
    if frame.len() < length as usize {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(frame)
}

/// Writes a frame. Does not flush.
///
/// # Errors
///
/// If the other end does not take it within [`STALL`], or has closed.
pub(super) async fn write(stream: &mut (impl AsyncWrite + Unpin), frame: &[u8]) -> Result<()> {
    let length = u32::try_from(frame.len()).map_err(|_| Error::from(ErrorKind::InvalidInput))?;
    in_time(async {
        stream.write_all(&length.to_be_bytes()).await?;
        stream.write_all(frame).await
    })
    .await
}

/// Flushes what was written.
///
/// # Errors
///
/// The same as [`write`].
pub(super) async fn flush(stream: &mut (impl AsyncWrite + Unpin)) -> Result<()> {
    in_time(stream.flush()).await
}

async fn in_time<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    match timeout(STALL, work).await {
        Ok(done) => done,
        Err(_) => Err(Error::new(ErrorKind::TimedOut, "the other end neither reads nor writes")),
    }
}
