//! How to connect, and how long connecting and storing a copy may take: for one transport, or for connections that several share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lapin::tcp::{OwnedIdentity, OwnedTLSConfig};
use redrive_core::{TransportError, TransportErrorKind};

use super::address::Addresses;
use super::credentials::CredentialsProvider;

/// How to connect; made by [`Connections::options`](crate::Connections::options) for connections that several transports share.
/// [`Options`](crate::Options) has the same settings for a transport with its own connections.
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
    /// Sets the name that the broker shows for the connections; the role of each is added.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The same as [`Options::heartbeat`](crate::Options::heartbeat).
    pub fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = heartbeat;
        self
    }

    /// The same as [`Options::shuffle_addresses`](crate::Options::shuffle_addresses), with a new order for each pair of connections.
    pub fn shuffle_addresses(mut self) -> Self {
        self.shuffle_addresses = true;
        self
    }

    /// The same as [`Options::credentials`](crate::Options::credentials).
    pub fn credentials(mut self, provider: impl CredentialsProvider) -> Self {
        self.credentials = Some(Arc::new(provider));
        self
    }

    /// The same as [`Options::connect_timeout`](crate::Options::connect_timeout).
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The same as [`Options::confirm_timeout`](crate::Options::confirm_timeout).
    pub fn confirm_timeout(mut self, timeout: Duration) -> Self {
        self.confirm_timeout = timeout;
        self
    }

    /// The same as [`Options::publish_channels`](crate::Options::publish_channels), for all transports on the connections together.
    pub fn publish_channels(mut self, channels: usize) -> Self {
        self.publish_channels = channels.max(1);
        self
    }

    /// The same as [`Options::ca_certificates`](crate::Options::ca_certificates).
    pub fn ca_certificates(mut self, pem: impl Into<String>) -> Self {
        self.tls.cert_chain = Some(pem.into());
        self
    }

    /// The same as [`Options::client_certificate`](crate::Options::client_certificate).
    pub fn client_certificate(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls.identity = Some(OwnedIdentity::PKCS8 { pem: certificate.into(), key: key.into() });
        self
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
