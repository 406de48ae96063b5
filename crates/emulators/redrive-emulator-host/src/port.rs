//! Ports that stay reserved across crashes and stops, so that no other program gets them in between.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::Poll;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::time::{Instant, sleep};

/// Time limit for the sockets of the previous start to free the port.
const PORT_TIMEOUT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

/// An address to listen on: `host:port`; port 0 is any free one.
#[derive(Debug, Clone)]
pub struct Listen {
    /// The address.
    pub address: String,
    required: bool,
}

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct ListenError {
    /// The wanted address.
    pub address: String,
    /// The system's error.
    pub source: io::Error,
}

impl Listen {
    /// Listens there, or not at all.
    pub fn required(address: impl Into<String>) -> Self {
        Self { address: address.into(), required: true }
    }

    /// Listens there, except where this machine has no such address.
    pub fn if_available(address: impl Into<String>) -> Self {
        Self { address: address.into(), required: false }
    }

    /// Puts a free port of 127.0.0.1 before them unless the first is required.
    pub(crate) fn with_first(mut wanted: Vec<Self>) -> Vec<Self> {
        if wanted.first().is_none_or(|first| !first.required) {
            wanted.insert(0, Self::required("127.0.0.1:0"));
        }
        wanted
    }
}

/// The addresses on which the emulator listens while it runs.
#[derive(Debug)]
pub struct Ports(Vec<Port>);

/// Listens on all of them.
#[derive(Debug)]
pub struct Listeners(Vec<TcpListener>);

impl Ports {
    /// Reserves the ports, and listens on them.
    ///
    /// # Errors
    /// The address that cannot be listened on, and why.
    pub async fn take(wanted: &[Listen]) -> Result<(Self, Listeners), ListenError> {
        let mut ports = Vec::new();
        let mut listeners = Vec::new();
        for Listen { address, required } in wanted {
            match Port::take(address).await {
                Ok((port, listener)) => {
                    ports.push(port);
                    listeners.push(listener);
                }
                // A port that another program has would leave half of the clients to that program.
                Err(error) if !required && error.kind() != io::ErrorKind::AddrInUse => {
                    tracing::info!(address, %error, "this machine has no such address: not listening there");
                }
                Err(source) => return Err(ListenError { address: address.clone(), source }),
            }
        }
        Ok((Self(ports), Listeners(listeners)))
    }

    /// Returns the addresses, in the order in which they were wanted.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().map(Port::address).collect()
    }

    /// Listens again after the last listeners were dropped.
    ///
    /// # Errors
    /// The address that cannot be listened on, and why.
    pub async fn listen(&self) -> Result<Listeners, ListenError> {
        let mut listeners = Vec::new();
        for port in &self.0 {
            let listener = port.listen().await;
            let refused = |source| ListenError { address: port.address().to_string(), source };
            listeners.push(listener.map_err(refused)?);
        }
        Ok(Listeners(listeners))
    }
}

impl Listeners {
    /// Accepts the next connection, on any address. Cancel safe.
    ///
    /// # Errors
    /// Those of the system, such as too many open files.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let mut polled = |context: &mut std::task::Context<'_>| {
            let mut accepted = self.0.iter().map(|listener| listener.poll_accept(context));
            accepted.find(Poll::is_ready).unwrap_or(Poll::Pending)
        };
        poll_fn(&mut polled).await
    }
}

/// One address.
#[derive(Debug)]
struct Port {
    address: SocketAddr,
    /// Bound but never listening: clients are refused while nothing else listens there, and the system does not give the port to
    /// programs that ask for any free one.
    #[cfg(unix)]
    _kept: tokio::net::TcpSocket,
}

impl Port {
    /// Reserves a port, and listens on it: `host:port`; port 0 is any free one.
    async fn take(listen: &str) -> io::Result<(Self, TcpListener)> {
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, "this is no address");
        for address in lookup_host(listen).await? {
            match Self::take_at(address).await {
                Ok(taken) => return Ok(taken),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens again after the last listener was dropped.
    async fn listen(&self) -> io::Result<TcpListener> {
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

    #[tokio::test]
    async fn an_address_that_this_machine_has_not_is_left_out_if_it_is_not_required() {
        // For documentation: no machine has it.
        let missing = "192.0.2.1:0";
        let wanted = [
            Listen::required("127.0.0.1:0"),
            Listen::if_available(missing),
            Listen::if_available("127.0.0.1:0"),
        ];
        let (ports, listeners) = Ports::take(&wanted).await.unwrap();
        assert_eq!(ports.addresses().len(), 2);
        for address in ports.addresses() {
            let (accepted, connected) =
                tokio::join!(listeners.accept(), tokio::net::TcpStream::connect(address));
            assert_eq!(accepted.unwrap().1, connected.unwrap().local_addr().unwrap());
        }
        let refused = Ports::take(&[Listen::required(missing)]).await.unwrap_err();
        assert_eq!(refused.address, missing);
        let used = ports.addresses()[1].to_string();
        assert!(Ports::take(&[Listen::if_available(used)]).await.is_err(), "another program has it");
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
