//! Connections that are made anew when they are lost. Each has an epoch: what belongs to an earlier one is stale.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::StreamExt;
use lapin::tcp::OwnedTLSConfig;
use lapin::{Connection, ConnectionProperties, Event};
use redrive_core::TransportError;
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info, warn};

use super::live::Live;
use crate::address::{Address, Addresses};
use crate::credentials::{self, Credentials, CredentialsProvider};
use crate::error;
use crate::options::ConnectionOptions;
use crate::screen;

/// How long closing in order may take; a broker that does not answer is left alone.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// After an attempt that failed the next one begins no sooner, however many ask for the connection.
const NOT_SOONER: Duration = Duration::from_millis(100);

/// What a connection is for. Consuming and publishing never share one: when the broker runs out of memory or disk it
/// stops reading connections that publish, and with them the acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Consuming,
    Publishing,
    /// Nobody has deliveries or copies on it: it can be changed for a new one at any time.
    Asking,
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Self::Consuming => "consuming",
            Self::Publishing => "publishing",
            Self::Asking => "asking",
        }
    }
}

/// The connection of one role, whichever epoch it is in.
pub(crate) struct Link {
    role: Role,
    addresses: Addresses,
    /// Which of the addresses is tried next.
    next: AtomicUsize,
    credentials: Option<Arc<dyn CredentialsProvider>>,
    /// As whom the last connection was made, or is to be.
    user: RwLock<Arc<str>>,
    tls: OwnedTLSConfig,
    name: String,
    connect_timeout: Duration,
    epochs: AtomicU64,
    closed: AtomicBool,
    current: Mutex<Current>,
    /// How many attempts to connect failed.
    failures: AtomicU64,
    /// Counts the times that the broker began to take messages again: after an alarm, or on a new connection.
    recoveries: watch::Sender<u64>,
}

/// What the last attempt came to.
#[derive(Default)]
struct Current {
    live: Option<Arc<Live>>,
    failed: Option<Failed>,
}

struct Failed {
    at: Instant,
    error: TransportError,
}

impl Link {
    pub(crate) fn new(role: Role, options: &ConnectionOptions, addresses: impl Into<Addresses>) -> Self {
        let mut addresses = addresses.into();
        // Zero would switch it off; the protocol counts in seconds.
        let heartbeat = options.heartbeat.as_secs().clamp(1, u64::from(u16::MAX));
        for address in addresses.as_mut_slice() {
            address.uri_mut().query.heartbeat.get_or_insert(u16::try_from(heartbeat).unwrap_or(u16::MAX));
        }
        let user = addresses.as_slice().first().map(Address::user).unwrap_or_default();
        Self {
            role,
            next: AtomicUsize::new(0),
            credentials: options.credentials.clone(),
            user: RwLock::new(user.into()),
            addresses,
            tls: options.tls.clone(),
            name: format!("{} ({})", options.name, role.word()),
            connect_timeout: options.connect_timeout,
            epochs: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            current: Mutex::default(),
            failures: AtomicU64::new(0),
            recoveries: watch::Sender::new(0),
        }
    }

    /// The connection, made now if there is none: one attempt at each address. Who waits while somebody else tries has
    /// what that one gets, so that many who share a connection ask a broker that is down no more often than one does.
    pub(crate) async fn live(&self) -> Result<Arc<Live>, TransportError> {
        let failures = self.failures.load(Ordering::Acquire);
        let mut current = self.current.lock().await;
        if let Some(failed) = &current.failed {
            if self.failures.load(Ordering::Acquire) != failures {
                return Err(failed.error.clone());
            }
            sleep_until(failed.at + NOT_SOONER).await;
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(error::closed());
        }
        let worn = |live: &Live| self.role == Role::Asking && live.is_worn();
        if let Some(live) = current.live.as_ref().filter(|live| live.is_up() && !worn(live)) {
            return Ok(Arc::clone(live));
        }
        *current = Current::default();
        match self.connect().await {
            Ok(live) => {
                current.live = Some(Arc::clone(&live));
                Ok(live)
            }
            Err(error) => {
                current.failed = Some(Failed { at: Instant::now(), error: error.clone() });
                self.failures.fetch_add(1, Ordering::Release);
                Err(error)
            }
        }
    }

    /// True while the broker takes no messages on the connection of now.
    pub(crate) fn is_blocked(&self) -> bool {
        // Somebody who connects has none.
        let current = self.current.try_lock();
        current.is_ok_and(|current| current.live.as_ref().is_some_and(|live| live.is_blocked()))
    }

    /// Closes the connection, for good.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let Some(live) = self.current.lock().await.live.take() else { return };
        live.settle_down().await;
        if timeout(CLOSE_TIMEOUT, live.connection.close(200, "OK".into())).await.is_err() {
            warn!(connection = %self.name, "RabbitMQ does not answer to the closing of the connection; leaving it");
        }
    }

    /// The first address.
    #[cfg(feature = "management")]
    pub(crate) fn uri(&self) -> lapin::uri::AMQPUri {
        self.addresses.as_slice().first().map(|address| address.uri().clone()).unwrap_or_default()
    }

    /// As whom we are connected.
    pub(crate) fn user(&self) -> Arc<str> {
        Arc::clone(&self.user.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes when the broker takes messages again: after an alarm, or on a new connection.
    pub(crate) fn recoveries(&self) -> watch::Receiver<u64> {
        self.recoveries.subscribe()
    }

    /// Tries each address once, beginning with the one after that of the last connection.
    async fn connect(&self) -> Result<Arc<Live>, TransportError> {
        let addresses = self.addresses.as_slice();
        let mut refusals = Vec::new();
        for _ in addresses {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(address) = addresses.get(next % addresses.len()) else { continue };
            let opening = timeout(self.connect_timeout, self.open(address));
            let opened = opening
                .await
                .unwrap_or_else(|_| Err(error::no_answer(&address.shown(), self.connect_timeout)));
            match opened {
                Ok(live) => return Ok(live),
                Err(error) => {
                    debug!(connection = %self.name, broker = %address.shown(), %error, "not connected");
                    refusals.push(error);
                }
            }
        }
        Err(error::none_connected(refusals))
    }

    async fn open(&self, address: &Address) -> Result<Arc<Live>, TransportError> {
        let shown = address.shown();
        let (address, credentials) = self.signed(address).await?;
        let user = address.user();
        let connecting = |error| error::connecting(&shown, user, credentials.is_some(), error);
        let properties = ConnectionProperties::default()
            .with_connection_name(self.name.as_str().into())
            .with_client_property("product".into(), "redrive".into())
            .with_client_property("version".into(), env!("CARGO_PKG_VERSION").into());
        let opening = screen::connect(address.uri().clone(), self.tls.clone(), properties);
        let (connection, version) = opening.await.map_err(connecting)?;
        let epoch = self.epochs.fetch_add(1, Ordering::Relaxed) + 1;
        info!(
            connection = %self.name, broker = %shown, epoch, tls = address.is_encrypted(),
            version = version.map(tracing::field::display), "connected to RabbitMQ"
        );
        *self.user.write().unwrap_or_else(PoisonError::into_inner) = user.into();
        let refused = Arc::new(Notify::new());
        self.watch(&connection, Arc::clone(&refused));
        self.recoveries.send_modify(|times| *times += 1);
        let live = Arc::new(Live::new(connection, epoch, version));
        if let (Some(provider), Some(credentials)) = (&self.credentials, credentials) {
            let fresh = credentials::keep_fresh(
                Arc::downgrade(&live),
                refused,
                Arc::clone(provider),
                credentials,
                self.connect_timeout,
                self.name.clone(),
            );
            tokio::spawn(fresh);
        }
        Ok(live)
    }

    /// The address with the credentials of now, where somebody provides them.
    async fn signed(&self, address: &Address) -> Result<(Address, Option<Credentials>), TransportError> {
        let mut address = address.clone();
        let Some(provider) = &self.credentials else { return Ok((address, None)) };
        let credentials = provider.credentials().await.map_err(error::no_credentials)?;
        let userinfo = &mut address.uri_mut().authority.userinfo;
        userinfo.username.clone_from(&credentials.user);
        userinfo.password.clone_from(&credentials.secret);
        Ok((address, Some(credentials)))
    }

    /// Tells the log what happens to the connection, and who waits for it that access was refused.
    fn watch(&self, connection: &Connection, refused: Arc<Notify>) {
        let mut events = connection.events_listener();
        let name = self.name.clone();
        let recoveries = self.recoveries.clone();
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Event::ConnectionBlocked(reason) => {
                        warn!(connection = %name, %reason, "RabbitMQ takes no more messages: its memory or disk is full");
                    }
                    Event::ConnectionUnblocked => {
                        info!(connection = %name, "RabbitMQ takes messages again");
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

/// Without the TLS key, which the configuration would show.
impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("role", &self.role)
            .field("addresses", &self.addresses)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_the_password_nor_the_tls_key_is_shown() {
        let options = ConnectionOptions::default().client_certificate(*b"certificate", *b"s3cret-key");
        let address = Address::parse("amqps://alice:s3cret@host/", |_| None).unwrap();
        let shown = format!("{:?}", Link::new(Role::Consuming, &options, address));
        let key = format!("{:?}", b"s3cret-key");
        assert!(!shown.contains("s3cret") && !shown.contains(key.trim_matches(['[', ']'])), "{shown}");
    }

    /// What becomes of the tasks of this runtime when a connection fails five times.
    async fn leaves_no_task_behind(address: std::net::SocketAddr) {
        let options = ConnectionOptions::default().connect_timeout(Duration::from_millis(200));
        let address = Address::parse(&format!("amqp://{address}"), |_| None).unwrap();
        let link = Link::new(Role::Consuming, &options, address);
        let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let before = alive();
        for _ in 0..5 {
            assert!(link.live().await.is_err());
        }
        // What ends does so a moment later.
        let ended = async {
            while alive() > before {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let ended = timeout(Duration::from_secs(10), ended).await;
        assert!(ended.is_ok(), "{} tasks are left", alive() - before);
    }

    #[tokio::test]
    async fn a_connection_that_is_refused_leaves_no_task_behind() {
        // Taken, so that nobody else comes to listen there; and not listened on.
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

    #[tokio::test]
    async fn many_who_wait_for_a_broker_that_is_down_ask_as_often_as_one() {
        // Whoever comes is turned away.
        let broker = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = broker.local_addr().unwrap().port();
        let asked = Arc::new(AtomicUsize::new(0));
        let counting = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = broker.accept().await {
                counting.fetch_add(1, Ordering::Relaxed);
                drop(stream);
            }
        });
        // Given up before it is turned away, an attempt would not be seen here.
        let options = ConnectionOptions::default().connect_timeout(Duration::from_secs(120));
        let address = Address::parse(&format!("amqp://127.0.0.1:{port}"), |_| None).unwrap();
        let link = Link::new(Role::Consuming, &options, address);
        let answers = futures::future::join_all((0..500).map(|_| link.live())).await;
        assert!(answers.iter().all(Result::is_err));
        let first = asked.load(Ordering::Relaxed);
        assert!((1..10).contains(&first), "each tried for himself: {first}");
        assert!(link.live().await.is_err());
        assert!(asked.load(Ordering::Relaxed) > first, "who asks later has an attempt of his own");
    }
}
