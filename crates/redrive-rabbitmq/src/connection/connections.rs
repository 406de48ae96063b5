//! The connections of a transport, or of many.

use std::fmt;
use std::sync::Arc;

use redrive_core::TransportError;

use super::address::Addresses;
use super::channel_pool::ChannelPool;
use super::options::ConnectionOptions;
use super::reconnecting::{ReconnectingConnection, Role};
use crate::publish::PublishPool;

/// One consuming and one publishing connection, for many transports in one process; and, when it is needed, a control connection
/// on which queues are declared and looked up.
///
/// ```no_run
/// # use redrive_rabbitmq::{Connections, RabbitMq};
/// # async fn connect(queues: Vec<String>) -> Result<(), Box<dyn std::error::Error>> {
/// let connections = Connections::connect("amqp://localhost").await?;
/// for queue in queues {
///     let transport = RabbitMq::options(&queue).connect_over(&connections).await?;
/// #   drop(transport);
/// }
/// # Ok(()) }
/// ```
///
/// Each connection costs a thread, and 8 MiB when it is busy. Clones are the same connections. They are closed by
/// [`close`](Self::close), or when this and all transports on them are gone. When one is lost it is made again, for all.
///
/// What several share can also fail for several:
/// [when to share](https://github.com/redrive-rs/redrive/blob/main/docs/transports/rabbitmq.md#many-consumers-in-one-process).
#[derive(Clone)]
pub struct Connections {
    inner: Arc<Inner>,
}

struct Inner {
    consuming: ReconnectingConnection,
    /// Shared, as what all transports publish to one target goes together.
    publishing: PublishPool,
    /// For requests that the broker may answer by closing the channel or the connection: does a queue exist, can it be declared.
    /// Made when it is needed.
    control: ReconnectingConnection,
    options: ConnectionOptions,
}

impl Connections {
    /// Connects to the broker at this URL, with all [`options`](Self::options) as they are.
    ///
    /// # Errors
    ///
    /// As [`ConnectionOptions::connect`].
    pub async fn connect(url: &str) -> Result<Self, TransportError> {
        Self::options().connect(url).await
    }

    /// Options for connections that several transports share.
    pub fn options() -> ConnectionOptions {
        ConnectionOptions::default()
    }

    /// Closes them for good. Transports that still use them end with an error: close those first.
    pub async fn close(&self) {
        self.inner.publishing.close().await;
        self.inner.consuming.close().await;
        self.inner.control.close().await;
    }

    pub(crate) fn new(addresses: &Addresses, options: ConnectionOptions) -> Self {
        let connection = |role| ReconnectingConnection::new(role, &options, addresses.clone());
        let (consuming, control) = (connection(Role::Consuming), connection(Role::Control));
        let channels = ChannelPool::new(connection(Role::Publishing), options.publish_channels);
        let publishing = PublishPool::new(channels, options.confirm_timeout);
        Self { inner: Arc::new(Inner { consuming, publishing, control, options }) }
    }

    pub(super) fn consuming(&self) -> &ReconnectingConnection {
        &self.inner.consuming
    }

    pub(super) fn control(&self) -> &ReconnectingConnection {
        &self.inner.control
    }

    pub(super) fn publishing(&self) -> &PublishPool {
        &self.inner.publishing
    }

    /// How they are made.
    pub(crate) fn options_of(&self) -> &ConnectionOptions {
        &self.inner.options
    }
}

impl ConnectionOptions {
    /// Connects to the broker at this URL, once, as [`Options::connect`](crate::Options::connect) does.
    ///
    /// # Errors
    ///
    /// When the broker does not answer or refuses the credentials, and when a timeout is zero.
    pub async fn connect(self, url: &str) -> Result<Connections, TransportError> {
        self.connect_any([url]).await
    }

    /// Connects to the first of these nodes of one cluster that answers, as [`Options::connect_any`](crate::Options::connect_any) does.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub async fn connect_any<U: AsRef<str>>(
        self,
        urls: impl IntoIterator<Item = U>,
    ) -> Result<Connections, TransportError> {
        self.check()?;
        let connections = Connections::new(&self.addresses(urls)?, self);
        connections.inner.consuming.connection().await?;
        connections.inner.publishing.connection().connection().await?;
        Ok(connections)
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("consuming", &self.inner.consuming).finish_non_exhaustive()
    }
}
