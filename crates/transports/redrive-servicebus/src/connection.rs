//! The connection of a transport, and reconnecting.

use std::sync::Arc;
use std::time::Duration;

use redrive_transport::{Connect, Reconnecting};

use crate::address::Address;
use crate::error::WireError;
use crate::options::Protocol;
use crate::wire::{self, Wire};

/// The longest wait between two attempts to reach the namespace or one of its entities.
pub(crate) const LONGEST_BACKOFF: Duration = Duration::from_secs(20);

/// The connection of a transport. It connects again when the connection is lost.
pub(crate) type ReconnectingConnection = Reconnecting<Namespace>;

/// A namespace and the protocol to reach it.
#[derive(Debug)]
pub(crate) struct Namespace {
    address: Arc<Address>,
    protocol: Protocol,
}

impl Namespace {
    pub(crate) fn new(address: Address, protocol: Protocol) -> Self {
        Self { address: Arc::new(address), protocol }
    }
}

impl Connect for Namespace {
    type Connection = Arc<dyn Wire>;
    type Error = WireError;

    async fn connect(&self) -> Result<Arc<dyn Wire>, WireError> {
        wire::open(Arc::clone(&self.address), self.protocol).await
    }

    fn is_usable(&self, connection: &Arc<dyn Wire>) -> bool {
        connection.is_live()
    }

    fn closed(&self) -> WireError {
        WireError::interrupted("the transport was closed")
    }
}
