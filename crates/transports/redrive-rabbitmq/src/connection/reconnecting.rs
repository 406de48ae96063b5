//! The connection of one role, made again when it is lost.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use lapin::tcp::OwnedTLSConfig;
use lapin::uri::SASLMechanism;
use lapin::{ConnectionProperties, Event};
use parking_lot::RwLock;
use redrive_core::TransportError;
use redrive_transport::{Connect, Reconnecting};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::address::{Address, Addresses};
use super::credentials::{Credentials, CredentialsProvider};
use super::open::Connection;
use super::options::ConnectionOptions;
use super::renewal::keep_fresh;
use crate::error;
use crate::frames::{self, Opened};

/// Time limit for an orderly close; after that the connection is dropped.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Purpose of a connection. Consuming and publishing never share one: a broker without memory or disk stops reading connections
/// that publish, and would not read the acknowledgements either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Consuming,
    Publishing,
    /// It carries no deliveries and no copies: it can be replaced at any time.
    Control,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Consuming => "consuming",
            Self::Publishing => "publishing",
            Self::Control => "control",
        }
    }
}

/// The connection of one role, in its current epoch.
#[derive(Debug)]
pub(crate) struct ReconnectingConnection(Reconnecting<Connector>);

/// Makes connections of one role.
struct Connector {
    role: Role,
    addresses: Addresses,
    /// Index of the address that is tried next.
    next: AtomicUsize,
    credentials: Option<Arc<dyn CredentialsProvider>>,
    /// The user of the last connection; before the first one, the user that it will have.
    user: RwLock<Arc<str>>,
    tls: OwnedTLSConfig,
    name: String,
    connect_timeout: Duration,
    epochs: AtomicU64,
    /// Counts how often the broker began to accept messages: after an alarm, or on a new connection.
    recoveries: watch::Sender<u64>,
}

impl ReconnectingConnection {
    pub(crate) fn new(role: Role, options: &ConnectionOptions, addresses: impl Into<Addresses>) -> Self {
        let mut addresses = addresses.into();
        // The protocol counts in seconds, and zero would switch the heartbeat off.
        let heartbeat = options.heartbeat.as_secs().clamp(1, u64::from(u16::MAX));
        for address in addresses.as_mut_slice() {
            let asked = &mut address.uri_mut().query.heartbeat;
            if *asked == Some(0) {
                warn!(
                    "`heartbeat=0` in the RabbitMQ URL is ignored: without heartbeats a dead connection is not noticed"
                );
            }
            *asked =
                asked.filter(|&seconds| seconds > 0).or(Some(u16::try_from(heartbeat).unwrap_or(u16::MAX)));
        }
        let user = addresses.as_slice().first().map(authenticated).unwrap_or_default();
        Self(Reconnecting::new(Connector {
            role,
            next: AtomicUsize::new(0),
            credentials: options.credentials.clone(),
            user: RwLock::new(user.into()),
            addresses,
            tls: options.tls.clone(),
            name: format!("{} ({})", options.name, role.name()),
            connect_timeout: options.connect_timeout,
            epochs: AtomicU64::new(0),
            recoveries: watch::Sender::new(0),
        }))
    }

    /// Returns the connection; if there is none, connects with one attempt at each address.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>, TransportError> {
        self.0.connection().await
    }

    /// Returns true while the broker accepts no messages on the connection.
    pub(crate) fn is_blocked(&self) -> bool {
        self.0.last().is_some_and(|connection| connection.is_blocked())
    }

    /// Closes the connection for good.
    pub(crate) async fn close(&self) {
        let Some(connection) = self.0.close().await else { return };
        if connection.is_blocked() {
            // A broker in an alarm does not read from it: nothing can be answered until the alarm is over.
            debug!(connection = %self.0.connector().name, "dropping the connection: RabbitMQ accepts no messages and does not answer");
            return;
        }
        let closing = async {
            connection.settle_down().await;
            let _ = connection.lapin.close(200, "OK".into()).await;
        };
        if timeout(CLOSE_TIMEOUT, closing).await.is_err() {
            let name = &self.0.connector().name;
            warn!(connection = %name, "RabbitMQ did not confirm `connection.close` in time; dropping the connection");
        }
    }

    /// Returns the first address.
    #[cfg(feature = "management")]
    pub(crate) fn uri(&self) -> lapin::uri::AMQPUri {
        let addresses = self.0.connector().addresses.as_slice();
        addresses.first().map(|address| address.uri().clone()).unwrap_or_default()
    }

    /// Returns the user of the connection.
    pub(crate) fn user(&self) -> Arc<str> {
        Arc::clone(&self.0.connector().user.read())
    }

    /// Changes when the broker accepts messages again: after an alarm, or on a new connection.
    pub(crate) fn recoveries(&self) -> watch::Receiver<u64> {
        self.0.connector().recoveries.subscribe()
    }
}

impl Connect for Connector {
    type Connection = Arc<Connection>;
    type Error = TransportError;

    /// Tries each address once, starting after the address of the last connection.
    async fn connect(&self) -> Result<Arc<Connection>, TransportError> {
        let addresses = self.addresses.as_slice();
        let mut refusals = Vec::new();
        for _ in addresses {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(address) = addresses.get(next % addresses.len()) else { continue };
            let opening = timeout(self.connect_timeout, self.open(address));
            let opened = opening
                .await
                .unwrap_or_else(|_| Err(error::no_answer(&address.to_string(), self.connect_timeout)));
            match opened {
                Ok(connection) => return Ok(connection),
                Err(error) => {
                    debug!(connection = %self.name, broker = %address, %error, "not connected");
                    refusals.push(error);
                }
            }
        }
        Err(error::none_connected(refusals))
    }

    fn is_usable(&self, connection: &Arc<Connection>) -> bool {
        connection.is_up() && !(self.role == Role::Control && connection.is_worn())
    }

    fn closed(&self) -> TransportError {
        error::closed()
    }
}

impl Connector {
    async fn open(&self, address: &Address) -> Result<Arc<Connection>, TransportError> {
        let shown = address.to_string();
        let (address, credentials) = self.signed(address).await?;
        let user = address.user();
        let frame_max = address.uri().query.frame_max;
        let connecting = |error| error::connecting(&shown, user, credentials.is_some(), frame_max, error);
        let properties = ConnectionProperties::default()
            .with_connection_name(self.name.as_str().into())
            .with_client_property("product".into(), "redrive".into())
            .with_client_property("version".into(), env!("CARGO_PKG_VERSION").into());
        let opening = frames::connect(address.uri().clone(), self.tls.clone(), properties);
        let opened = opening.await.map_err(connecting)?;
        let Opened { version, .. } = opened;
        let epoch = self.epochs.fetch_add(1, Ordering::Relaxed) + 1;
        info!(
            connection = %self.name, broker = %shown, epoch, tls = address.is_encrypted(),
            version = version.map(tracing::field::display), "connected to RabbitMQ"
        );
        *self.user.write() = authenticated(&address).into();
        let refused = Arc::new(Notify::new());
        self.watch(&opened.connection, Arc::clone(&refused));
        self.recoveries.send_modify(|times| *times += 1);
        let connection = Arc::new(Connection::new(opened, epoch));
        if let (Some(provider), Some(credentials)) = (&self.credentials, credentials) {
            let fresh = keep_fresh(
                Arc::downgrade(&connection),
                refused,
                Arc::clone(provider),
                credentials,
                self.connect_timeout,
                self.name.clone(),
            );
            tokio::spawn(fresh);
        }
        Ok(connection)
    }

    /// Returns the address with the provider's current credentials, if there is a provider.
    async fn signed(&self, address: &Address) -> Result<(Address, Option<Credentials>), TransportError> {
        let mut address = address.clone();
        let Some(provider) = &self.credentials else { return Ok((address, None)) };
        let credentials = provider.credentials().await.map_err(error::no_credentials)?;
        let userinfo = &mut address.uri_mut().authority.userinfo;
        userinfo.username.clone_from(&credentials.user);
        userinfo.password.clone_from(&credentials.secret);
        Ok((address, Some(credentials)))
    }

    /// Logs the events of the connection. Notifies `refused` when the broker refuses access.
    fn watch(&self, connection: &lapin::Connection, refused: Arc<Notify>) {
        let mut events = connection.events_listener();
        let name = self.name.clone();
        let recoveries = self.recoveries.clone();
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Event::ConnectionBlocked(reason) => {
                        warn!(connection = %name, %reason, "RabbitMQ accepts no messages: its memory or disk is full");
                    }
                    Event::ConnectionUnblocked => {
                        info!(connection = %name, "RabbitMQ accepts messages again");
                        recoveries.send_modify(|times| *times += 1);
                    }
                    Event::Error(error) => {
                        debug!(connection = %name, %error, "error on the connection");
                        if error::is_refused_access(&error) {
                            refused.notify_one();
                        }
                    }
                    other => debug!(connection = %name, event = ?other, "event on the connection"),
                }
            }
        });
    }
}

/// Returns the user as whom the broker knows a connection to this address; empty if only the broker knows it, from a certificate.
fn authenticated(address: &Address) -> &str {
    match address.uri().query.auth_mechanism {
        Some(SASLMechanism::External) => "",
        _ => address.user(),
    }
}

/// Without the TLS key, which the configuration would show.
impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("role", &self.role)
            .field("addresses", &self.addresses)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use redrive_contract::eventually;

    use super::*;

    #[test]
    fn neither_the_password_nor_the_tls_key_is_shown() {
        let options = ConnectionOptions::default().client_certificate(*b"certificate", *b"s3cret-key");
        let address = Address::parse("amqps://alice:s3cret@host/", |_| None).unwrap();
        let shown = format!("{:?}", ReconnectingConnection::new(Role::Consuming, &options, address));
        let key = format!("{:?}", b"s3cret-key");
        assert!(!shown.contains("s3cret") && !shown.contains(key.trim_matches(['[', ']'])), "{shown}");
    }

    #[test]
    fn a_url_does_not_switch_the_heartbeat_off() {
        let heartbeat = |url: &str| {
            let options = ConnectionOptions::default().heartbeat(Duration::from_secs(7));
            let connection = ReconnectingConnection::new(
                Role::Consuming,
                &options,
                Address::parse(url, |_| None).unwrap(),
            );
            connection.0.connector().addresses.as_slice()[0].uri().query.heartbeat
        };
        assert_eq!(heartbeat("amqp://host"), Some(7));
        assert_eq!(heartbeat("amqp://host?heartbeat=0"), Some(7));
        assert_eq!(heartbeat("amqp://host?heartbeat=3"), Some(3));
    }

    #[test]
    fn the_user_of_a_certificate_is_not_known() {
        let user = |url: &str| {
            let address = Address::parse(url, |_| None).unwrap();
            ReconnectingConnection::new(Role::Publishing, &ConnectionOptions::default(), address).user()
        };
        assert_eq!(&*user("amqps://alice:s3cret@host"), "alice");
        assert_eq!(&*user("amqps://alice@host?auth_mechanism=external"), "");
    }

    /// Checks that no task of this runtime is left after a connection failed five times.
    async fn leaves_no_task_behind(address: std::net::SocketAddr) {
        let options = ConnectionOptions::default().connect_timeout(Duration::from_millis(200));
        let address = Address::parse(&format!("amqp://{address}"), |_| None).unwrap();
        let connection = ReconnectingConnection::new(Role::Consuming, &options, address);
        let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let before = alive();
        for _ in 0..5 {
            assert!(connection.connection().await.is_err());
        }
        eventually("no task is left", async || alive() <= before).await;
    }

    #[tokio::test]
    async fn a_connection_that_is_refused_leaves_no_task_behind() {
        // Bound but not listening, so that no other program can listen there.
        let taken = tokio::net::TcpSocket::new_v4().unwrap();
        taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        leaves_no_task_behind(taken.local_addr().unwrap()).await;
    }

    #[tokio::test]
    async fn a_connection_that_is_turned_away_leaves_no_task_behind() {
        let broker = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = broker.local_addr().unwrap();
        std::thread::spawn(move || while broker.accept().is_ok() {});
        leaves_no_task_behind(address).await;
    }

    #[tokio::test]
    async fn a_connection_that_is_not_answered_leaves_no_task_behind() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        leaves_no_task_behind(silent.local_addr().unwrap()).await;
    }
}
