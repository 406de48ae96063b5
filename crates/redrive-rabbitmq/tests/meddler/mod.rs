//! A way to the broker on which somebody ends the subscription, on both sides, and leaves the channel open: as the broker does
//! when a queue is no longer there for the consumer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// `basic.consume` and `basic.cancel`, as the first four bytes of a method.
const CONSUME: [u8; 4] = [0, 60, 0, 20];
const CANCEL: [u8; 4] = [0, 60, 0, 30];
const CONSUMER_TAG: &[u8] = b"redrive";

/// Passes everything on, and says one thing that nobody said.
pub(crate) struct Meddler {
    address: SocketAddr,
    cancels: watch::Sender<u32>,
    accepting: JoinHandle<()>,
}

impl Meddler {
    pub(crate) async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it has an address");
        let cancels = watch::Sender::new(0);
        let asked = cancels.subscribe();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connect(client, upstream, asked.clone()));
            }
        });
        Self { address, cancels, accepting }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Ends the subscription that was made last on each connection.
    pub(crate) fn cancel_subscription(&self) {
        self.cancels.send_modify(|cancels| *cancels += 1);
    }
}

impl Drop for Meddler {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn connect(client: TcpStream, upstream: SocketAddr, mut asked: watch::Receiver<u32>) {
    // What was asked for before is of the connections of then.
    asked.mark_unchanged();
    let server = TcpStream::connect(upstream).await.expect("the broker is there");
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let channel = Arc::new(AtomicU16::new(0));
    // The broker first: what the client gives back then is handed out to others.
    let told = watch::Sender::new(0);
    let then = told.subscribe();
    let _ = tokio::join!(
        pass(from_client, to_server, &channel, asked, Some(told)),
        pass(from_server, to_client, &channel, then, None),
    );
}

/// Passes whole frames on, and in between, when that is asked for, the end of the subscription.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    channel: &AtomicU16,
    mut asked: watch::Receiver<u32>,
    told: Option<watch::Sender<u32>>,
) -> std::io::Result<()> {
    let mut passing = Vec::new();
    loop {
        while let Some(length) = frame(&passing) {
            let frame: Vec<u8> = passing.drain(..length).collect();
            if frame.get(7..11) == Some(&CONSUME) {
                channel.store(u16::from_be_bytes([frame[1], frame[2]]), Ordering::SeqCst);
            }
            to.write_all(&frame).await?;
        }
        tokio::select! {
            read = from.read_buf(&mut passing) => if read? == 0 { return to.shutdown().await },
            Ok(()) = asked.changed() => {
                let channel = channel.load(Ordering::SeqCst);
                if channel > 0 {
                    to.write_all(&cancel(channel)).await?;
                }
                told.iter().for_each(|told| told.send_modify(|cancels| *cancels += 1));
            }
        }
    }
}

/// How long the first frame is, if all of it is there. A connection begins with eight bytes that are none.
fn frame(bytes: &[u8]) -> Option<usize> {
    let length = match bytes {
        [b'A', ..] => 8,
        [_, _, _, a, b, c, d, ..] => 8 + u32::from_be_bytes([*a, *b, *c, *d]) as usize,
        _ => return None,
    };
    (bytes.len() >= length).then_some(length)
}

/// A `basic.cancel` to which no answer is wanted.
fn cancel(channel: u16) -> Vec<u8> {
    let tag_length = u8::try_from(CONSUMER_TAG.len()).expect("a short tag");
    let method = [&CANCEL, &[tag_length][..], CONSUMER_TAG, &[1]].concat();
    let length = u32::try_from(method.len()).expect("a short method");
    [&[1][..], &channel.to_be_bytes(), &length.to_be_bytes(), &method, &[0xCE]].concat()
}
