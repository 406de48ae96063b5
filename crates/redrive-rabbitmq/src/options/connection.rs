//! The options that say how to connect, and how long that and storing a copy may take: of one transport, or of
//! connections that several share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lapin::tcp::{OwnedIdentity, OwnedTLSConfig};
use redrive_core::{TransportError, TransportErrorKind};

use super::Options;
use crate::address::Addresses;
use crate::connections::Connections;
use crate::credentials::CredentialsProvider;

/// How to connect; made by [`Connections::options`] for connections that several transports share. [`Options`] has the same
/// for a transport with connections of its own.
#[derive(Clone)]
#[must_use = "options do nothing until `connect`"]
pub struct ConnectionOptions {
    pub(crate) name: String,
    pub(crate) heartbeat: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) confirm_timeout: Duration,
    pub(crate) publish_channels: usize,
    pub(crate) shuffle_addresses: bool,
    pub(crate) tls: OwnedTLSConfig,
    pub(crate) credentials: Option<Arc<dyn CredentialsProvider>>,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        Self {
            name: "redrive".to_owned(),
            heartbeat: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            confirm_timeout: Duration::from_secs(30),
            publish_channels: 32,
            shuffle_addresses: false,
            tls: OwnedTLSConfig::default(),
            credentials: None,
        }
    }
}

impl ConnectionOptions {
    /// The name that the broker shows for the connections; what each is for is added.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// As [`Options::heartbeat`].
    pub fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = heartbeat;
        self
    }

    /// As [`Options::shuffle_addresses`]: in an order that is new for each pair of connections.
    pub fn shuffle_addresses(mut self) -> Self {
        self.shuffle_addresses = true;
        self
    }

    /// As [`Options::credentials`].
    pub fn credentials(mut self, provider: impl CredentialsProvider) -> Self {
        self.credentials = Some(Arc::new(provider));
        self
    }

    /// As [`Options::connect_timeout`].
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// As [`Options::confirm_timeout`].
    pub fn confirm_timeout(mut self, timeout: Duration) -> Self {
        self.confirm_timeout = timeout;
        self
    }

    /// As [`Options::publish_channels`]: of all that share the connections together.
    pub fn publish_channels(mut self, channels: usize) -> Self {
        self.publish_channels = channels.max(1);
        self
    }

    /// As [`Options::ca_certificates`].
    pub fn ca_certificates(mut self, pem: impl Into<String>) -> Self {
        self.tls.cert_chain = Some(pem.into());
        self
    }

    /// As [`Options::client_certificate`].
    pub fn client_certificate(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls.identity = Some(OwnedIdentity::PKCS8 { pem: certificate.into(), key: key.into() });
        self
    }

    /// Connects to the broker at this URL, once, as [`Options::connect`] does.
    ///
    /// # Errors
    ///
    /// When the broker does not answer or refuses the credentials, and when a timeout is zero.
    pub async fn connect(self, url: &str) -> Result<Connections, TransportError> {
        self.connect_any([url]).await
    }

    /// Connects to the first of these nodes of one cluster that answers, as [`Options::connect_any`] does.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub async fn connect_any<U: AsRef<str>>(
        self,
        urls: impl IntoIterator<Item = U>,
    ) -> Result<Connections, TransportError> {
        self.check()?;
        let connections = Connections::new(self.addresses(urls)?, self);
        connections.connected().await?;
        Ok(connections)
    }

    pub(crate) fn addresses<U: AsRef<str>>(
        &self,
        urls: impl IntoIterator<Item = U>,
    ) -> Result<Addresses, TransportError> {
        let urls: Vec<U> = urls.into_iter().collect();
        let mut addresses =
            Addresses::parse(urls.iter().map(AsRef::as_ref), |name| std::env::var(name).ok())?;
        if self.shuffle_addresses {
            addresses.shuffle();
        }
        Ok(addresses)
    }

    pub(crate) fn check(&self) -> Result<(), TransportError> {
        if !self.connect_timeout.is_zero() && !self.confirm_timeout.is_zero() {
            return Ok(());
        }
        let message = "a timeout of zero is over before RabbitMQ can answer: set connect_timeout and confirm_timeout to more";
        Err(TransportError::new(TransportErrorKind::Unsupported, message))
    }
}

/// Without the TLS key.
impl fmt::Debug for ConnectionOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionOptions")
            .field("name", &self.name)
            .field("heartbeat", &self.heartbeat)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// How often a sign of life is asked for, in whole seconds: 10 s, unless told otherwise. A dead connection is
    /// noticed after twice that time.
    pub fn heartbeat(self, heartbeat: Duration) -> Self {
        self.own("heartbeat", |connection| connection.heartbeat(heartbeat))
    }

    /// The name that the broker shows for the connections: `redrive {queue}`, unless told otherwise. What each is for is
    /// added.
    pub fn connection_name(self, name: impl Into<String>) -> Self {
        self.own("connection_name", |connection| connection.name(name))
    }

    /// Tries several addresses in an order that is new for each transport, so that the consumers of a cluster spread over
    /// its nodes. Unless told so: in the order in which they are given.
    pub fn shuffle_addresses(self) -> Self {
        self.own("shuffle_addresses", ConnectionOptions::shuffle_addresses)
    }

    /// Asks for user and password, or for a token, before each connection, and again before what was got expires: see
    /// [`CredentialsProvider`]. What stands in the URL is then not used.
    pub fn credentials(self, provider: impl CredentialsProvider) -> Self {
        self.own("credentials", |connection| connection.credentials(provider))
    }

    /// How long connecting to one address may take: 10 s, unless told otherwise.
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        self.own("connect_timeout", |connection| connection.connect_timeout(timeout))
    }

    /// How long storing a copy may take: 30 s, unless told otherwise. After that it is not known whether it was
    /// stored, and the original stays. For a consumer's copies the time in which the broker takes no messages, because its
    /// memory or disk is full, does not count; for [`RabbitMq::publish`](crate::RabbitMq::publish) and for operators it does.
    pub fn confirm_timeout(self, timeout: Duration) -> Self {
        self.own("confirm_timeout", |connection| connection.confirm_timeout(timeout))
    }

    /// On how many channels copies may be on their way at once: 32, unless told otherwise. Each carries up to 256 copies
    /// for one target, and a target has two of them at most.
    pub fn publish_channels(self, channels: usize) -> Self {
        self.own("publish_channels", |connection| connection.publish_channels(channels))
    }

    /// Certificates (PEM) to trust besides those of the system.
    pub fn ca_certificates(self, pem: impl Into<String>) -> Self {
        self.own("ca_certificates", |connection| connection.ca_certificates(pem))
    }

    /// The certificate and key (PEM, PKCS #8) to show to the broker.
    pub fn client_certificate(self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.own("client_certificate", |connection| connection.client_certificate(certificate, key))
    }

    /// An option that means nothing on connections that are there already.
    fn own(
        mut self,
        option: &'static str,
        change: impl FnOnce(ConnectionOptions) -> ConnectionOptions,
    ) -> Self {
        self.connection = change(self.connection);
        self.wants_own_connections = Some(option);
        self
    }
}
