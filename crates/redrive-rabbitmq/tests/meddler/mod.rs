//! A way to the broker on which somebody says what the broker would say on a bad day: that a subscription ended (on both sides,
//! and the channel stays open, as when a queue is no longer there for the consumer), or that a queue could not be declared.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// `queue.declare-ok`, `basic.consume` and `basic.cancel`, as the first four bytes of a method.
const DECLARED: [u8; 4] = [0, 50, 0, 11];
const CONSUME: [u8; 4] = [0, 60, 0, 20];
const CANCEL: [u8; 4] = [0, 60, 0, 30];
const CONSUMER_TAG: &[u8] = b"redrive";
/// `connection.close` with 541, INTERNAL_ERROR: what 3.10 says when a new quorum queue has no leader within 5 s.
const GIVEN_UP: [u8; 23] = *b"\x01\0\0\0\0\0\x0f\0\x0a\0\x32\x02\x1d\x04busy\0\x32\0\x0a\xce";

/// Passes everything on, and says one thing that nobody said.
pub(crate) struct Meddler {
    address: SocketAddr,
    cancels: watch::Sender<u32>,
    refusals: Arc<AtomicU32>,
    accepting: JoinHandle<()>,
}

impl Meddler {
    pub(crate) async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it has an address");
        let cancels = watch::Sender::new(0);
        let asked = cancels.subscribe();
        let refusals = Arc::new(AtomicU32::new(0));
        let refusing = Arc::clone(&refusals);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connect(client, upstream, asked.clone(), Arc::clone(&refusing)));
            }
        });
        Self { address, cancels, refusals, accepting }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.address
    }

    /// The next so many declarations of queues end their connection, as if the broker had given up the queue.
    pub(crate) fn refuse_declarations(&self, times: u32) {
        self.refusals.store(times, Ordering::SeqCst);
    }

    /// How many more do.
    pub(crate) fn refusals_left(&self) -> u32 {
        self.refusals.load(Ordering::SeqCst)
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

async fn connect(
    client: TcpStream,
    upstream: SocketAddr,
    mut asked: watch::Receiver<u32>,
    refusals: Arc<AtomicU32>,
) {
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
        pass(from_client, to_server, &channel, asked, Some(told), None),
        pass(from_server, to_client, &channel, then, None, Some(&refusals)),
    );
}

/// Passes whole frames on, and in between, when that is asked for, the end of the subscription.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    channel: &AtomicU16,
    mut asked: watch::Receiver<u32>,
    told: Option<watch::Sender<u32>>,
    refusals: Option<&AtomicU32>,
) -> std::io::Result<()> {
    let mut passing = Vec::new();
    loop {
        while let Some(length) = frame(&passing) {
            let frame: Vec<u8> = passing.drain(..length).collect();
            if frame.get(7..11) == Some(&CONSUME) {
                channel.store(u16::from_be_bytes([frame[1], frame[2]]), Ordering::SeqCst);
            }
            let refused = frame.get(7..11) == Some(&DECLARED) && refusals.is_some_and(one_less);
            to.write_all(if refused { &GIVEN_UP } else { &frame }).await?;
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

/// True when there was one to take.
fn one_less(refusals: &AtomicU32) -> bool {
    refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
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
