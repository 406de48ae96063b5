//! Connections that are made anew when they are lost. Each has an epoch: what belongs to an earlier one is stale.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use lapin::tcp::OwnedTLSConfig;
use lapin::{Channel, Connection, ConnectionProperties, Event};
use redrive_core::TransportError;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use crate::address::Address;
use crate::error;
use crate::options::Options;
use crate::version::{self, Version};

/// How long closing in order may take; a broker that does not answer is left alone.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// What a connection is for. Consuming and publishing never share one: when the broker runs out of memory or disk it
/// stops reading connections that publish, and with them the acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Consuming,
    Publishing,
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Self::Consuming => "consuming",
            Self::Publishing => "publishing",
        }
    }
}

/// One of the two connections, whichever epoch it is in.
pub(crate) struct Link {
    role: Role,
    address: Address,
    tls: OwnedTLSConfig,
    name: String,
    connect_timeout: Duration,
    epochs: AtomicU64,
    closed: AtomicBool,
    current: Mutex<Option<Arc<Live>>>,
}

/// A connection of one epoch.
#[derive(Debug)]
pub(crate) struct Live {
    connection: Connection,
    pub(crate) epoch: u64,
    /// The broker's version; only the consuming connection asks.
    pub(crate) version: Option<Version>,
}

impl Link {
    pub(crate) fn new(role: Role, options: &Options, mut address: Address) -> Self {
        // Zero would switch it off; the protocol counts in seconds.
        let heartbeat = options.heartbeat.as_secs().clamp(1, u64::from(u16::MAX));
        address.uri_mut().query.heartbeat.get_or_insert(u16::try_from(heartbeat).unwrap_or(u16::MAX));
        Self {
            role,
            address,
            tls: options.tls.clone(),
            name: format!("{} ({})", options.connection_name, role.word()),
            connect_timeout: options.connect_timeout,
            epochs: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            current: Mutex::new(None),
        }
    }

    /// The connection, made now if there is none: one attempt.
    pub(crate) async fn live(&self) -> Result<Arc<Live>, TransportError> {
        let mut current = self.current.lock().await;
        if self.closed.load(Ordering::Acquire) {
            return Err(error::closed());
        }
        if let Some(live) = current.as_ref().filter(|live| live.is_up()) {
            return Ok(Arc::clone(live));
        }
        *current = None;
        let live = Arc::new(self.connect().await?);
        *current = Some(Arc::clone(&live));
        Ok(live)
    }

    /// Closes the connection, for good.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let Some(live) = self.current.lock().await.take() else { return };
        if timeout(CLOSE_TIMEOUT, live.connection.close(200, "OK".into())).await.is_err() {
            warn!(connection = %self.name, "RabbitMQ does not answer to the closing of the connection; leaving it");
        }
    }

    pub(crate) fn user(&self) -> &str {
        self.address.user()
    }

    pub(crate) fn shown(&self) -> String {
        self.address.shown()
    }

    async fn connect(&self) -> Result<Live, TransportError> {
        let opening = timeout(self.connect_timeout, self.open());
        opening.await.unwrap_or_else(|_| Err(error::no_answer(&self.shown(), self.connect_timeout)))
    }

    async fn open(&self) -> Result<Live, TransportError> {
        let shown = self.shown();
        let connecting = |error| error::connecting(&shown, self.user(), error);
        let version = match self.role {
            Role::Consuming => {
                let greeting = version::greet(&self.address, &self.tls).await;
                greeting.map_err(|error| connecting(error.into()))?
            }
            Role::Publishing => None,
        };
        let properties = ConnectionProperties::default()
            .with_connection_name(self.name.as_str().into())
            .with_client_property("product".into(), "redrive".into())
            .with_client_property("version".into(), env!("CARGO_PKG_VERSION").into());
        let runtime = lapin::runtime::default_runtime().map_err(connecting)?;
        let uri = self.address.uri().clone();
        let connection = Connection::connect_uri_with_config(uri, properties, self.tls.clone(), runtime);
        let connection = connection.await.map_err(connecting)?;
        let epoch = self.epochs.fetch_add(1, Ordering::Relaxed) + 1;
        info!(
            connection = %self.name, broker = %shown, epoch, tls = self.address.is_encrypted(),
            version = version.map(tracing::field::display), "connected to RabbitMQ"
        );
        self.watch(&connection);
        Ok(Live { connection, epoch, version })
    }

    /// Tells the log what happens to the connection.
    fn watch(&self, connection: &Connection) {
        let mut events = connection.events_listener();
        let name = self.name.clone();
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Event::ConnectionBlocked(reason) => {
                        warn!(connection = %name, %reason, "RabbitMQ takes no more messages: its memory or disk is full");
                    }
                    Event::ConnectionUnblocked => info!(connection = %name, "RabbitMQ takes messages again"),
                    Event::Error(error) => debug!(connection = %name, %error, "error on the connection"),
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
            .field("address", &self.address)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Live {
    pub(crate) fn is_up(&self) -> bool {
        self.connection.status().connected()
    }

    /// True while the broker takes no messages, because its memory or disk is full.
    pub(crate) fn is_blocked(&self) -> bool {
        self.connection.status().blocked()
    }

    /// A new channel; closed when it is dropped.
    pub(crate) async fn channel(&self) -> Result<Channel, TransportError> {
        let channel = answered(self.connection.create_channel()).await;
        channel.map_err(|error| error::interrupted("cannot open a channel", error))
    }

    /// The largest frame agreed on; 0 means any size.
    pub(crate) fn frame_max(&self) -> u32 {
        self.connection.configuration().frame_max()
    }
}

/// The broker's answer. The client library forgets some questions when the connection ends just then: without a limit
/// they would be waited for for ever.
pub(crate) async fn answered<T>(question: impl Future<Output = lapin::Result<T>>) -> lapin::Result<T> {
    const LIMIT: Duration = Duration::from_secs(30);
    let answer = timeout(LIMIT, question).await;
    answer.unwrap_or_else(|_| Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer").into()))
}

/// The broker's answer, waited for only as long as the channel that it comes on is open.
pub(crate) async fn answered_on<T>(
    channel: &Channel,
    question: impl Future<Output = lapin::Result<T>>,
) -> lapin::Result<T> {
    const LOOK_EVERY: Duration = Duration::from_millis(100);
    tokio::pin!(question);
    loop {
        if let Ok(answer) = timeout(LOOK_EVERY, &mut question).await {
            return answer;
        }
        if !channel.status().connected() {
            return Err(
                std::io::Error::new(std::io::ErrorKind::ConnectionAborted, "the channel ended").into()
            );
        }
    }
}

/// Waits between attempts: twice as long each time, up to ten seconds, and never the same for two processes.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    attempts: u32,
}

impl Backoff {
    pub(crate) fn next(&mut self) -> Duration {
        const SHORTEST_MILLIS: u64 = 100;
        const LONGEST_MILLIS: u64 = 10_000;
        let full = (SHORTEST_MILLIS << self.attempts.min(10)).min(LONGEST_MILLIS);
        self.attempts = self.attempts.saturating_add(1);
        Duration::from_millis(fastrand::u64(full / 2..=full))
    }

    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_the_password_nor_the_tls_key_is_shown() {
        let options = Options::new("orders").client_certificate(*b"certificate", *b"s3cret-key");
        let address = Address::parse("amqps://alice:s3cret@host/", |_| None).unwrap();
        let shown = format!("{:?}", Link::new(Role::Consuming, &options, address));
        let key = format!("{:?}", b"s3cret-key");
        assert!(!shown.contains("s3cret") && !shown.contains(key.trim_matches(['[', ']'])), "{shown}");
    }
}
