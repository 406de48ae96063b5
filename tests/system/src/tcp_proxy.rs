//! The way of new connections, which can be changed while old ones go on.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Forwards each new connection to where it leads at that moment.
#[derive(Debug)]
pub struct TcpProxy {
    address: SocketAddr,
    leads_to: watch::Sender<SocketAddr>,
    accepting: JoinHandle<()>,
}

impl TcpProxy {
    /// A tcp_proxy to `upstream`, on a free port.
    ///
    /// # Panics
    /// When there is none.
    pub async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it has an address");
        let leads_to = watch::Sender::new(upstream);
        let upstream = leads_to.subscribe();
        let accepting = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let to = *upstream.borrow();
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(to).await else { return };
                    let _until_closed = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { address, leads_to, accepting }
    }

    /// Where it begins.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// New connections lead there from now on.
    pub fn lead_to(&self, upstream: SocketAddr) {
        self.leads_to.send_replace(upstream);
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
