//! A TCP proxy with faults on demand: for tests of dead, slow and half-open connections.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A TCP proxy in front of one address. Dropped, it closes its port and all connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    control: watch::Sender<Control>,
    /// Number of refused connections.
    refused: watch::Receiver<u64>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Control {
    frozen: bool,
    /// Nothing comes from the other side.
    unanswered: bool,
    refuse: bool,
    delay: Duration,
    /// Number of cuts: a connection ends when it changes.
    cuts: u64,
}

impl Proxy {
    /// Starts a proxy to `upstream` on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// When no port can be opened. (Nobody needs to listen on `upstream` yet.)
    pub async fn start(upstream: SocketAddr) -> io::Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let control = watch::Sender::new(Control::default());
        let (refuses, refused) = watch::channel(0);
        let accepting = tokio::spawn(accept(listener, upstream, control.subscribe(), refuses));
        Ok(Proxy { address, control, refused, accepting })
    }

    /// Where the proxy listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Stops forwarding: connections stay open and silent, and new ones are accepted and silent.
    pub fn freeze(&self) {
        self.control.send_modify(|control| control.frozen = true);
    }

    /// Stops forwarding what the other side sends: it receives everything, and its answers do not arrive.
    pub fn freeze_answers(&self) {
        self.control.send_modify(|control| control.unanswered = true);
    }

    /// Forwards again, beginning with the data that came in while frozen.
    pub fn thaw(&self) {
        self.control.send_modify(|control| (control.frozen, control.unanswered) = (false, false));
    }

    /// Resets all existing connections. New ones are accepted.
    pub fn cut(&self) {
        self.control.send_modify(|control| control.cuts += 1);
    }

    /// Sets whether new connections are reset as soon as they are accepted.
    pub fn refuse(&self, refuse: bool) {
        self.control.send_modify(|control| control.refuse = refuse);
    }

    /// Waits until this many more connections were refused.
    pub async fn refused(&self, more: u64) {
        let mut refused = self.refused.clone();
        let enough = *refused.borrow() + more;
        // An error means that the proxy is gone, and nothing is refused any more.
        let _ = refused.wait_for(|count| *count >= enough).await;
    }

    /// Holds back each piece of data for `delay`, in both directions.
    pub fn delay(&self, delay: Duration) {
        self.control.send_modify(|control| control.delay = delay);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
        self.accepting.abort();
    }
}

async fn accept(
    listener: TcpListener,
    upstream: SocketAddr,
    control: watch::Receiver<Control>,
    refuses: watch::Sender<u64>,
) {
    loop {
        // Too many open files, or the client is gone already: accepts the next one.
        let Ok((client, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        if control.borrow().refuse {
            reset(&client);
            refuses.send_modify(|count| *count += 1);
        } else {
            tokio::spawn(serve(client, upstream, control.clone()));
        }
    }
}

/// One connection, from its beginning to its end or to the next cut.
async fn serve(client: TcpStream, upstream: SocketAddr, control: watch::Receiver<Control>) {
    let cuts = control.borrow().cuts;
    let mut until_cut = control.clone();
    // An error means that the proxy is gone, which is a cut too.
    let cut = async move { until_cut.wait_for(|now| now.cuts != cuts).await.map_or((), |_| ()) };
    tokio::pin!(cut);

    let mut thawed = control.clone();
    let server = tokio::select! {
        () = &mut cut => return reset(&client),
        server = async {
            thawed.wait_for(|now| !now.frozen).await.ok()?;
            TcpStream::connect(upstream).await.ok()
        } => server,
    };
    let Some(server) = server else { return reset(&client) };
    let _only_slower = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let both = async {
        tokio::join!(
            forward(&mut from_client, &mut to_server, control.clone(), |control| control.frozen),
            forward(&mut from_server, &mut to_client, control.clone(), |control| {
                control.frozen || control.unanswered
            }),
        )
    };
    tokio::select! {
        // A freeze must also hide that the other side hung up: `forward` checks for the end of a stream only when it may pass it on.
        _ = both => {}
        () = &mut cut => {
            reset(from_client.as_ref());
            reset(from_server.as_ref());
            // Otherwise dropping a write half would close the connection in order before the reset.
            to_client.forget();
            to_server.forget();
        }
    }
}

/// Forwards data and its end, while this direction is not frozen.
async fn forward(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    mut control: watch::Receiver<Control>,
    is_frozen: fn(&Control) -> bool,
) -> io::Result<()> {
    let mut piece = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut piece).await?;
        let delay = control.borrow().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        // After reading: data that arrived just before the freeze must not pass.
        if control.wait_for(|now| !is_frozen(now)).await.is_err() {
            return Ok(());
        }
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&piece[..length]).await?;
    }
}

/// Makes the closing of `stream` a reset, as if the peer's machine had restarted.
fn reset(stream: &TcpStream) {
    let _at_worst_a_plain_close = stream.set_zero_linger();
}
