//! The connections of one transport, or of several.
//!
//! | module | contains |
//! |---|---|
//! | [`access`] | those connections as one transport uses them |

mod access;

use std::fmt;
use std::sync::Arc;

use redrive_core::TransportError;

use crate::connection::{Addresses, ChannelPool, ConnectionOptions, ReconnectingConnection, Role};
use crate::publish::PublishPool;
pub(crate) use access::{ConnectionAccess, Ownership};

/// A consuming and a publishing connection for several transports in one process, and, on demand, a control connection that
/// declares and checks queues.
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
/// Each connection costs a thread and some 250 KiB. Clones share the same connections. They are closed by
/// [`close`](Self::close), or when all clones and all transports on them are dropped. A lost connection is made again, for all.
///
/// A failure of a shared connection affects all of its transports:
/// [when to share](https://github.com/redrive-rs/redrive/blob/main/docs/transports/rabbitmq.md#many-consumers-in-one-process).
#[derive(Clone)]
pub struct Connections {
    inner: Arc<Inner>,
}

struct Inner {
    consuming: ReconnectingConnection,
    /// Shared, so that all transports' messages for one target are batched together.
    publishing: PublishPool,
    /// For requests that the broker may answer by closing the channel or the connection: whether a queue exists, or can be declared.
    /// Made on demand.
    control: ReconnectingConnection,
    options: ConnectionOptions,
}

impl Connections {
    /// Connects to the broker at this URL with default [`options`](Self::options).
    ///
    /// # Errors
    ///
    /// The same as [`ConnectionOptions::connect`].
    pub async fn connect(url: &str) -> Result<Self, TransportError> {
        Self::options().connect(url).await
    }

    /// Returns options for connections that several transports share.
    pub fn options() -> ConnectionOptions {
        ConnectionOptions::default()
    }

    /// Closes the connections for good. Close the transports first: those that still use them end with an error.
    pub async fn close(&self) {
        // Together: a broker that does not answer costs its time once.
        let Inner { consuming, publishing, control, .. } = &*self.inner;
        tokio::join!(publishing.close(), consuming.close(), control.close());
    }

    pub(crate) fn new(addresses: &Addresses, options: ConnectionOptions) -> Self {
        let connection = |role| ReconnectingConnection::new(role, &options, addresses.clone());
        let (consuming, control) = (connection(Role::Consuming), connection(Role::Control));
        let channels = ChannelPool::new(connection(Role::Publishing), options.publish_channels);
        let publishing = PublishPool::new(channels, options.confirm_timeout);
        Self { inner: Arc::new(Inner { consuming, publishing, control, options }) }
    }

    fn consuming(&self) -> &ReconnectingConnection {
        &self.inner.consuming
    }

    fn control(&self) -> &ReconnectingConnection {
        &self.inner.control
    }

    fn publishing(&self) -> &PublishPool {
        &self.inner.publishing
    }

    /// Returns the options that they were made with.
    pub(crate) fn options_of(&self) -> &ConnectionOptions {
        &self.inner.options
    }
}

impl ConnectionOptions {
    /// Connects to the broker at this URL, once, as [`Options::connect`](crate::Options::connect) does.
    ///
    /// # Errors
    ///
    /// If the broker does not answer or refuses the credentials, or if a timeout is zero.
    pub async fn connect(self, url: &str) -> Result<Connections, TransportError> {
        self.connect_any([url]).await
    }

    /// Connects to the first of these nodes of one cluster that answers, as [`Options::connect_any`](crate::Options::connect_any) does.
    ///
    /// # Errors
    ///
    /// The same as [`connect`](Self::connect).
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
