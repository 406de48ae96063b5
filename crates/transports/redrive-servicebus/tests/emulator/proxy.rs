//! A proxy between a client and the emulator that replaces bytes.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};

/// Forwards everything to `target`, and replaces `those` bytes wherever a client sends them in one piece. Returns the port to
/// connect to.
pub(crate) async fn that_replaces<const N: usize>(
    target: SocketAddr,
    those: &'static [u8; N],
    these: &'static [u8; N],
) -> std::io::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(pass_on(client, target, those, these));
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
