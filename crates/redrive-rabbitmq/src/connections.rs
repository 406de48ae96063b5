//! The connections of a transport, or of many.

use std::fmt;
use std::sync::Arc;

use redrive_core::TransportError;

use crate::address::Addresses;
use crate::connection::{Link, Role};
use crate::options::ConnectionOptions;
use crate::publish::PublishPool;

/// One consuming and one publishing connection, for many transports in one process; and, when it is needed, one on which queues
/// are declared and looked at.
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
/// [`close`](Self::close), or when this and all transports on them are gone. When one is lost it is made anew, for all.
///
/// What several share can also fail for several: `docs/transports/rabbitmq.md` says when to share.
#[derive(Clone)]
pub struct Connections {
    inner: Arc<Inner>,
}

struct Inner {
    consuming: Link,
    publisher: PublishPool,
    /// For what the broker may answer by closing the channel, or the connection: is a queue there, can it be declared. Made
    /// when it is needed.
    asking: Link,
    options: ConnectionOptions,
}

/// Whose connections a transport uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// They end with it.
    Own,
    Shared,
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

    /// Closes them, for good. Transports that still use them end with an error: close those first.
    pub async fn close(&self) {
        self.inner.publisher.close().await;
        self.inner.consuming.close().await;
        self.inner.asking.close().await;
    }

    pub(crate) fn new(addresses: Addresses, options: ConnectionOptions) -> Self {
        let consuming = Link::new(Role::Consuming, &options, addresses.clone());
        let asking = Link::new(Role::Asking, &options, addresses.clone());
        let publishing = Link::new(Role::Publishing, &options, addresses);
        let publisher = PublishPool::new(publishing, options.publish_channels, options.confirm_timeout);
        Self { inner: Arc::new(Inner { consuming, publisher, asking, options }) }
    }

    /// Both are there, or an error says why not.
    pub(crate) async fn connected(&self) -> Result<(), TransportError> {
        self.inner.consuming.live().await?;
        self.inner.publisher.link().live().await?;
        Ok(())
    }

    pub(crate) fn consuming(&self) -> &Link {
        &self.inner.consuming
    }

    pub(crate) fn asking(&self) -> &Link {
        &self.inner.asking
    }

    pub(crate) fn publisher(&self) -> &PublishPool {
        &self.inner.publisher
    }

    /// How they are made.
    pub(crate) fn made_with(&self) -> &ConnectionOptions {
        &self.inner.options
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("consuming", &self.inner.consuming).finish_non_exhaustive()
    }
}
