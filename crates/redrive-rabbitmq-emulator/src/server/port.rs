//! A port that stays reserved across crashes and stops, so that no other program gets it in between.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, lookup_host};
use tokio::time::{Instant, sleep};

/// Time limit for the sockets of the previous start to free the port.
const PORT_TIMEOUT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

/// The address on which the emulator listens while it runs.
#[derive(Debug)]
pub(crate) struct Port {
    address: SocketAddr,
    /// Bound but never listening: clients are refused while nothing else listens there, and the system does not give the port to
    /// programs that ask for any free one.
    #[cfg(unix)]
    _kept: tokio::net::TcpSocket,
}

impl Port {
    /// Reserves a port, and listens on it: `host:port`; port 0 is any free one.
    pub(crate) async fn take(listen: &str) -> io::Result<(Self, TcpListener)> {
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, "this is no address");
        for address in lookup_host(listen).await? {
            match Self::take_at(address).await {
                Ok(taken) => return Ok(taken),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens again after the last listener was dropped.
    pub(crate) async fn listen(&self) -> io::Result<TcpListener> {
        let end = Instant::now() + PORT_TIMEOUT;
        loop {
            match TcpListener::bind(self.address).await {
                // A child process of this process holds the listener too, from its fork until its program starts.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                    sleep(PAUSE).await;
                }
                bound => return bound,
            }
        }
    }

    #[cfg(unix)]
    async fn take_at(address: SocketAddr) -> io::Result<(Self, TcpListener)> {
        use tokio::net::TcpSocket;

        let kept = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        kept.set_reuseaddr(true)?;
        kept.bind(address)?;
        let address = kept.local_addr()?;
        let listener = TcpListener::bind(address).await?;
        Ok((Self { address, _kept: kept }, listener))
    }

    /// On this system, two sockets on one port have another meaning.
    #[cfg(not(unix))]
    async fn take_at(address: SocketAddr) -> io::Result<(Self, TcpListener)> {
        let listener = TcpListener::bind(address).await?;
        Ok((Self { address: listener.local_addr()? }, listener))
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_else_gets_a_port_that_is_not_listened_on_for_a_while() {
        let mut kept = Vec::new();
        for _ in 0..200 {
            let (port, listener) = Port::take("127.0.0.1:0").await.unwrap();
            drop(listener);
            kept.push(port);
        }
        let ports: std::collections::BTreeSet<u16> = kept.iter().map(|port| port.address().port()).collect();
        assert_eq!(ports.len(), kept.len());
        for port in &kept {
            tokio::net::TcpStream::connect(port.address()).await.expect_err("nobody listens");
            let _listener = port.listen().await.unwrap();
            tokio::net::TcpStream::connect(port.address()).await.expect("somebody listens");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_that_a_child_process_still_has_is_waited_for() {
        let (port, listener) = Port::take("127.0.0.1:0").await.unwrap();
        let inherited = listener.into_std().unwrap();
        let (again, ()) = tokio::join!(port.listen(), async {
            sleep(Duration::from_millis(100)).await;
            drop(inherited);
        });
        again.expect("it is free by now");
    }

    #[tokio::test]
    async fn a_port_that_is_in_use_is_refused_at_once() {
        let (port, _listener) = Port::take("localhost:0").await.unwrap();
        let refused = Port::take(&port.address().to_string()).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    }
}
