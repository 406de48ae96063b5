//! A way to the broker on which somebody says what the broker would say on a bad day: that a subscription ended (on both sides,
//! and the channel stays open, as when a queue is no longer there for the consumer), that a queue could not be declared, or that
//! its node is down.
#![allow(dead_code)] // each test binary uses some of it

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::common::{self, Scene};

/// The first four bytes of methods: `channel.open`, `channel.close`, its answer, `queue.declare`, its answer,
/// `basic.consume`, `basic.cancel` and `basic.ack`.
const OPEN: [u8; 4] = [0, 20, 0, 10];
const CLOSE: [u8; 4] = [0, 20, 0, 40];
const CLOSED: [u8; 4] = [0, 20, 0, 41];
const DECLARE: [u8; 4] = [0, 50, 0, 10];
const DECLARED: [u8; 4] = [0, 50, 0, 11];
const CONSUME: [u8; 4] = [0, 60, 0, 20];
const CANCEL: [u8; 4] = [0, 60, 0, 30];
const ACK: [u8; 4] = [0, 60, 0, 80];
const CONSUMER_TAG: &[u8] = b"redrive";
/// `connection.close` with 541, INTERNAL_ERROR: what 3.10 says when a new quorum queue has no leader within 5 s.
const GIVEN_UP: [u8; 23] = *b"\x01\0\0\0\0\0\x0f\0\x0a\0\x32\x02\x1d\x04busy\0\x32\0\x0a\xce";
/// What a cluster says of a queue whose node is down.
const DOWN: &str = "NOT_FOUND - home node 'rabbit@b' of durable queue is down or inaccessible";

/// Passes everything on, and says one thing that nobody said.
pub(crate) struct FaultProxy {
    address: SocketAddr,
    cancels: watch::Sender<u32>,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    refusals: AtomicU32,
    /// The queue whose node is down, and how often it was declared or looked at since.
    down: Mutex<Option<String>>,
    missed: AtomicU32,
    opened: AtomicU32,
    acks_to_lose: AtomicU32,
}

/// Starts one before the broker of a scene, and returns the URL that leads through it.
pub(crate) async fn through_proxy(scene: &Scene) -> (FaultProxy, String) {
    let address = common::address(&scene.url);
    let fault_proxy = FaultProxy::start(address).await;
    let url = scene.url.replace(&address.to_string(), &fault_proxy.addr().to_string());
    (fault_proxy, url)
}

impl FaultProxy {
    pub(crate) async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it has an address");
        let cancels = watch::Sender::new(0);
        let asked = cancels.subscribe();
        let shared = Arc::new(Shared::default());
        let accepted = Arc::clone(&shared);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connect(client, upstream, asked.clone(), Arc::clone(&accepted)));
            }
        });
        Self { address, cancels, shared, accepting }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.address
    }

    /// The next this many declarations of queues end their connection, as if the broker had given up the queue.
    pub(crate) fn refuse_declarations(&self, times: u32) {
        self.shared.refusals.store(times, Ordering::SeqCst);
    }

    /// How many more do.
    pub(crate) fn refusals_left(&self) -> u32 {
        self.shared.refusals.load(Ordering::SeqCst)
    }

    /// The connection of the next acknowledgement ends instead.
    pub(crate) fn lose_acknowledgement(&self) {
        self.shared.acks_to_lose.store(1, Ordering::SeqCst);
    }

    /// Ends the subscription that was made last on each connection.
    pub(crate) fn cancel_subscription(&self) {
        self.cancels.send_modify(|cancels| *cancels += 1);
    }

    /// The node of this queue is down from now on; of none with `None`.
    pub(crate) fn take_down(&self, queue: Option<&str>) {
        *self.shared.down.lock().unwrap() = queue.map(str::to_owned);
    }

    /// How often a queue whose node is down was asked for.
    pub(crate) fn missed(&self) -> u32 {
        self.shared.missed.load(Ordering::SeqCst)
    }

    /// How many channels were opened.
    pub(crate) fn opened(&self) -> u32 {
        self.shared.opened.load(Ordering::SeqCst)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// What both directions of one connection know.
struct Between {
    shared: Arc<Shared>,
    /// The channel of the last subscription.
    subscribed: AtomicU16,
    /// The channels that are being closed over a queue whose node is down.
    closing: Mutex<HashSet<u16>>,
}

async fn connect(
    client: TcpStream,
    upstream: SocketAddr,
    mut asked: watch::Receiver<u32>,
    shared: Arc<Shared>,
) {
    // What was asked for before is of the connections of then.
    asked.mark_unchanged();
    let server = TcpStream::connect(upstream).await.expect("the broker is there");
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let between = Between { shared, subscribed: AtomicU16::new(0), closing: Mutex::default() };
    // The broker first: what the client gives back then is handed out to others.
    let told = watch::Sender::new(0);
    let then = told.subscribe();
    let _ = tokio::join!(
        pass(from_client, to_server, &between, asked, Some(told), Between::to_broker),
        pass(from_server, to_client, &between, then, None, Between::to_client),
    );
}

/// Passes whole frames on, as they are changed, and in between, when that is asked for, the end of the subscription.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    between: &Between,
    mut asked: watch::Receiver<u32>,
    told: Option<watch::Sender<u32>>,
    changed: impl Fn(&Between, Vec<u8>) -> Option<Vec<u8>>,
) -> std::io::Result<()> {
    let mut passing = Vec::new();
    loop {
        while let Some(length) = frame(&passing) {
            let frame: Vec<u8> = passing.drain(..length).collect();
            let Some(changed) = changed(between, frame) else { return to.shutdown().await };
            to.write_all(&changed).await?;
        }
        tokio::select! {
            read = from.read_buf(&mut passing) => if read? == 0 { return to.shutdown().await },
            Ok(()) = asked.changed() => {
                let channel = between.subscribed.load(Ordering::SeqCst);
                if channel > 0 {
                    to.write_all(&cancel(channel)).await?;
                }
                told.iter().for_each(|told| told.send_modify(|cancels| *cancels += 1));
            }
        }
    }
}

impl Between {
    /// `None`: the connection ends.
    fn to_broker(&self, frame: Vec<u8>) -> Option<Vec<u8>> {
        let Some(method) = frame.get(7..11) else { return Some(frame) };
        if method == ACK && one_less(&self.shared.acks_to_lose) {
            return None;
        }
        let channel = u16::from_be_bytes([frame[1], frame[2]]);
        let mut closing = self.closing.lock().unwrap();
        if closing.contains(&channel) {
            // The broker has closed it already.
            if method == CLOSED {
                closing.remove(&channel);
            }
            return Some(Vec::new());
        }
        if method == OPEN {
            self.shared.opened.fetch_add(1, Ordering::SeqCst);
        }
        if method == CONSUME {
            self.subscribed.store(channel, Ordering::SeqCst);
        }
        if method == DECLARE && self.is_down(&frame) {
            self.shared.missed.fetch_add(1, Ordering::SeqCst);
            closing.insert(channel);
            return Some(close(channel, 200, ""));
        }
        Some(frame)
    }

    fn to_client(&self, frame: Vec<u8>) -> Option<Vec<u8>> {
        let Some(method) = frame.get(7..11) else { return Some(frame) };
        let channel = u16::from_be_bytes([frame[1], frame[2]]);
        if method == CLOSED && self.closing.lock().unwrap().contains(&channel) {
            return Some(close(channel, 404, DOWN));
        }
        Some(if method == DECLARED && one_less(&self.shared.refusals) { GIVEN_UP.to_vec() } else { frame })
    }

    fn is_down(&self, declare: &[u8]) -> bool {
        let name = declare.get(14..).and_then(|name| name.get(..usize::from(declare[13])));
        self.shared.down.lock().unwrap().as_deref().map(str::as_bytes).is_some_and(|down| name == Some(down))
    }
}

fn close(channel: u16, code: u16, text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).expect("a short text");
    method(channel, &[&CLOSE, &code.to_be_bytes()[..], &[length], text.as_bytes(), &[0; 4]].concat())
}

fn method(channel: u16, method: &[u8]) -> Vec<u8> {
    let length = u32::try_from(method.len()).expect("a short method");
    [&[1][..], &channel.to_be_bytes(), &length.to_be_bytes(), method, &[0xCE]].concat()
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
    method(channel, &[&CANCEL, &[tag_length][..], CONSUMER_TAG, &[1]].concat())
}
