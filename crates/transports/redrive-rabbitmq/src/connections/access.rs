//! The connections of one transport: its own, or shared ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redrive_core::TransportError;
use tokio::sync::watch;

use super::Connections;
use crate::connection::Connection;
use crate::error;
use crate::publish::PublishPool;

/// Owner of a transport's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// They end with the transport.
    Own,
    Shared,
}

/// The connections of one transport until it is closed. Afterwards it uses none, even if other transports still do.
#[derive(Debug)]
pub(crate) struct ConnectionAccess {
    connections: Connections,
    ownership: Ownership,
    closed: AtomicBool,
}

impl ConnectionAccess {
    pub(crate) fn new(connections: Connections, ownership: Ownership) -> Self {
        Self { connections, ownership, closed: AtomicBool::new(false) }
    }

    /// Returns the connection for deliveries; connects if there is none.
    pub(crate) async fn consuming(&self) -> Result<Arc<Connection>, TransportError> {
        self.check_open()?;
        self.connections.consuming().connection().await
    }

    /// Returns the connection for requests that the broker may answer by closing the channel or the connection. This is the consuming
    /// connection if no other transport shares it, or if the queues are deleted with the connection that declares them (`transient`).
    pub(crate) async fn control(&self, transient: bool) -> Result<Arc<Connection>, TransportError> {
        if self.ownership == Ownership::Own || transient {
            return self.consuming().await;
        }
        self.check_open()?;
        self.connections.control().connection().await
    }

    /// Returns the pool that publishes messages.
    pub(crate) fn publishing(&self) -> Result<&PublishPool, TransportError> {
        self.check_open()?;
        Ok(self.connections.publishing())
    }

    /// Changes when the broker accepts messages again: after an alarm, or on a new connection.
    pub(crate) fn recoveries(&self) -> watch::Receiver<u64> {
        self.connections.publishing().connection().recoveries()
    }

    /// Returns the first address.
    #[cfg(feature = "management")]
    pub(crate) fn uri(&self) -> lapin::uri::AMQPUri {
        self.connections.consuming().uri()
    }

    /// Returns the user of the connections.
    pub(crate) fn user(&self) -> String {
        self.connections.consuming().user().to_string()
    }

    /// Stops using the connections, and closes its own. Returns whose they are.
    pub(crate) async fn close(&self) -> Ownership {
        self.closed.store(true, Ordering::Release);
        if self.ownership == Ownership::Own {
            self.connections.close().await;
        }
        self.ownership
    }

    fn check_open(&self) -> Result<(), TransportError> {
        if self.closed.load(Ordering::Acquire) { Err(error::closed()) } else { Ok(()) }
    }
}
