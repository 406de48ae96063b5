//! A way to the broker that changes what passes: for bytes that a client library would never send.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Replaces bytes on their way to the broker by as many others.
#[derive(Debug)]
pub struct Forger {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Forger {
    /// A way to `upstream` on which `old` becomes `new`.
    ///
    /// # Panics
    /// When they are not of the same length, or there is no free port.
    pub async fn start(upstream: SocketAddr, old: Vec<u8>, new: Vec<u8>) -> Self {
        assert_eq!(old.len(), new.len(), "frames say how long they are");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it has an address");
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (old, new) = (old.clone(), new.clone());
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(upstream).await else { return };
                    let (from_client, mut to_client) = client.into_split();
                    let (mut from_server, to_server) = server.into_split();
                    // An error ends the connection, as it should.
                    let _ = tokio::join!(
                        forge(from_client, to_server, &old, &new),
                        tokio::io::copy(&mut from_server, &mut to_client),
                    );
                });
            }
        });
        Self { address, accepting }
    }

    /// Where the way begins.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Forger {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn forge(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    old: &[u8],
    new: &[u8],
) -> std::io::Result<()> {
    let mut passing = Vec::new();
    while from.read_buf(&mut passing).await? > 0 {
        while let Some(at) = passing.windows(old.len()).position(|bytes| bytes == old) {
            passing[at..at + old.len()].copy_from_slice(new);
        }
        // What may be the beginning of it has to wait for the rest.
        let begins = |at: &usize| old.starts_with(&passing[*at..]);
        let first = passing.len().saturating_sub(old.len());
        let pass = (first..passing.len()).find(begins).unwrap_or(passing.len());
        to.write_all(&passing[..pass]).await?;
        passing.drain(..pass);
    }
    to.shutdown().await
}
