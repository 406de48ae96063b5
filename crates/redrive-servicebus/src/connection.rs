//! The connection that a transport has, and gets again when it is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;

use crate::address::Address;
use crate::error::WireError;
use crate::wire::{self, Protocol, Wire};

/// The connection, opened when it is needed.
#[derive(Debug)]
pub(crate) struct Link {
    address: Arc<Address>,
    protocol: Protocol,
    current: Mutex<Option<Arc<dyn Wire>>>,
    closed: AtomicBool,
}

impl Link {
    pub(crate) fn new(address: Address, protocol: Protocol) -> Self {
        Self {
            address: Arc::new(address),
            protocol,
            current: Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// The connection that stands, or a new one.
    pub(crate) async fn live(&self) -> Result<Arc<dyn Wire>, WireError> {
        // Held while connecting: everybody else needs the same connection.
        let mut current = self.current.lock().await;
        if self.closed.load(Ordering::Acquire) {
            return Err(WireError::interrupted("the transport was closed"));
        }
        if let Some(wire) = current.as_ref().filter(|wire| wire.is_live()) {
            return Ok(Arc::clone(wire));
        }
        let wire = wire::open(Arc::clone(&self.address), self.protocol).await?;
        *current = Some(Arc::clone(&wire));
        Ok(wire)
    }

    /// Closes it in order; there is none from here on.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if let Some(wire) = self.current.lock().await.take() {
            wire.close().await;
        }
    }

    /// Ends it as the death of the process would.
    pub(crate) async fn abort(&self) {
        self.closed.store(true, Ordering::Release);
        if let Some(wire) = self.current.lock().await.take() {
            wire.abort();
            wire.ended().await;
        }
    }
}

/// How long to wait before connecting again: longer each time, and never all at once.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    failures: u32,
}

impl Pace {
    const SHORTEST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(20);

    /// After a failure.
    pub(crate) async fn wait(&mut self) {
        let longest = Self::SHORTEST.saturating_mul(1 << self.failures.min(10)).min(Self::LONGEST);
        self.failures = self.failures.saturating_add(1);
        tokio::time::sleep(longest.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
    }

    /// After a success.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}
