//! Proxies between a client and the emulator: one replaces bytes, one delays what the broker sends in a session.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Forwards everything to `target`, and replaces `those` bytes wherever a client sends them in one piece. Returns the port to
/// connect to.
pub(crate) async fn that_replaces<const N: usize>(
    target: SocketAddr,
    those: &'static [u8; N],
    these: &'static [u8; N],
) -> std::io::Result<u16> {
    accepting(move |client| pass_on(client, target, those, these)).await
}

/// Passes each client to a task of its own. Returns the port to connect to.
pub(crate) async fn accepting<F>(
    mut forward: impl FnMut(TcpStream) -> F + Send + 'static,
) -> std::io::Result<u16>
where
    F: Future<Output = std::io::Result<()>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(forward(client));
        }
    });
    Ok(port)
}

async fn pass_on(client: TcpStream, target: SocketAddr, those: &[u8], these: &[u8]) -> std::io::Result<()> {
    let server = TcpStream::connect(target).await?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    tokio::spawn(async move { copy(&mut from_server, &mut to_client).await });
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from_client.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        let sent = &mut buffer[..read];
        let found = sent.windows(those.len()).position(|window| window == those);
        if let Some(at) = found {
            sent[at..at + these.len()].copy_from_slice(these);
        }
        to_server.write_all(sent).await?;
    }
}

/// Forwards everything to `target`. What the broker sends in a session from a frame with `marker` on arrives `by` later, in order: it
/// promises no order between sessions. Returns the port to connect to.
pub(crate) async fn that_delays_sessions(
    target: SocketAddr,
    marker: &'static [u8],
    by: Duration,
) -> std::io::Result<u16> {
    accepting(move |client| delay_sessions(client, target, marker, by)).await
}

async fn delay_sessions(
    client: TcpStream,
    target: SocketAddr,
    marker: &[u8],
    by: Duration,
) -> std::io::Result<()> {
    let server = TcpStream::connect(target).await?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    tokio::spawn(async move { copy(&mut from_client, &mut to_server).await });
    let (write, mut frames) = mpsc::unbounded_channel::<Vec<u8>>();
    tokio::spawn(async move {
        while let Some(frame) = frames.recv().await {
            to_client.write_all(&frame).await?;
        }
        std::io::Result::Ok(())
    });
    let mut delayed = HashMap::<[u8; 2], mpsc::UnboundedSender<(Instant, Vec<u8>)>>::new();
    loop {
        let mut frame = vec![0; 8];
        from_server.read_exact(&mut frame).await?;
        // A protocol header has no other content.
        if !frame.starts_with(b"AMQP") {
            let size = u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize;
            frame.resize(size, 0);
            from_server.read_exact(&mut frame[8..]).await?;
        }
        let session = [frame[6], frame[7]];
        if frame.windows(marker.len()).any(|window| window == marker) && !delayed.contains_key(&session) {
            let (delay, mut late) = mpsc::unbounded_channel();
            let write = write.clone();
            tokio::spawn(async move {
                while let Some((due, frame)) = late.recv().await {
                    sleep_until(due).await;
                    let _ = write.send(frame);
                }
            });
            delayed.insert(session, delay);
        }
        match delayed.get(&session) {
            Some(delay) => drop(delay.send((Instant::now() + by, frame))),
            None => drop(write.send(frame)),
        }
    }
}
