//! A transport that records every settlement.

use std::sync::Arc;

use parking_lot::Mutex;
use redrive_core::transport::{Received, Receiver, SettleError, Settlement};
use redrive_core::{Delivery, Message, Transport, TransportError, TransportErrorKind};

use crate::wrapper::forward_transport;

/// Wraps a transport and records every settlement, for tests to check.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use redrive_core::{Message, Transport};
/// use redrive_core::transport::{Needs, Settlement};
/// use redrive_memory::Memory;
/// use redrive_contract::{Recording, Started};
///
/// let transport = Started::open(Recording::new(Memory::new("orders")), &Needs::none()).await?;
/// let log = transport.log();
/// transport.inner().publish(Message::new("one").with_id("order-1")).await?;
/// let received = transport.receive().await?.unwrap();
/// transport.settle(received.receipt, Settlement::Complete).await.map_err(|refused| refused.error)?;
/// assert_eq!(log.of("order-1")[0].settlement, Settlement::Complete);
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Debug)]
pub struct Recording<T> {
    inner: T,
    log: Log,
}

/// The receiver of a [`Recording`].
#[derive(Debug)]
pub struct RecordingReceiver<R> {
    inner: R,
    log: Log,
}

/// The record. Clones share it: keep one when the transport goes to a consumer.
#[derive(Clone, Debug, Default)]
pub struct Log {
    entries: Arc<Mutex<Vec<Recorded>>>,
}

/// One settlement: the request and its result.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Recorded {
    /// The settled delivery.
    pub delivery: Delivery,
    /// The requested settlement, with its copy if there is one.
    pub settlement: Settlement,
    /// Its result.
    pub outcome: Result<(), TransportErrorKind>,
}

/// The right to settle a delivery of a [`Recording`].
#[derive(Debug)]
pub struct RecordingReceipt<R> {
    inner: R,
    delivery: Delivery,
}

impl<T: Transport> Recording<T> {
    /// Wraps a transport and records its settlements.
    #[must_use]
    pub fn new(inner: T) -> Self {
        Self { inner, log: Log::default() }
    }

    /// Returns the wrapped transport.
    #[must_use]
    pub fn inner(&self) -> &T {
        &self.inner
    }

    /// Returns the record.
    #[must_use]
    pub fn log(&self) -> Log {
        self.log.clone()
    }
}

impl Log {
    /// Returns all settlements, in the order in which they ended.
    #[must_use]
    pub fn all(&self) -> Vec<Recorded> {
        self.entries.lock().clone()
    }

    /// Returns the settlements of the message with this id.
    #[must_use]
    pub fn of(&self, id: &str) -> Vec<Recorded> {
        self.all().into_iter().filter(|recorded| recorded.delivery.id() == id).collect()
    }

    fn add(&self, recorded: Recorded) {
        self.entries.lock().push(recorded);
    }
}

impl Recorded {
    /// Returns the copy to store, if there is one.
    #[must_use]
    pub fn copy(&self) -> Option<&Message> {
        match &self.settlement {
            Settlement::Reschedule { copy, .. } | Settlement::Shelve { copy, .. } => Some(copy),
            _ => None,
        }
    }
}

forward_transport!(Recording, RecordingReceiver, |this, inner| RecordingReceiver { inner, log: this.log() });

impl<R: Receiver> Receiver for RecordingReceiver<R> {
    type Receipt = RecordingReceipt<R::Receipt>;

    async fn receive(&self) -> Result<Option<Received<Self::Receipt>>, TransportError> {
        let wrap = |Received { delivery, receipt }: Received<R::Receipt>| Received {
            delivery: delivery.clone(),
            receipt: RecordingReceipt { inner: receipt, delivery },
        };
        Ok(self.inner.receive().await?.map(wrap))
    }

    async fn settle(
        &self,
        receipt: Self::Receipt,
        settlement: Settlement,
    ) -> Result<(), SettleError<Self::Receipt>> {
        let RecordingReceipt { inner, delivery } = receipt;
        let settled = self.inner.settle(inner, settlement.clone()).await;
        let outcome = settled.as_ref().map_err(|refused| refused.error.kind()).map(|&()| ());
        self.log.add(Recorded { delivery: delivery.clone(), settlement, outcome });
        settled.map_err(|failed| failed.map_receipt(|inner| RecordingReceipt { inner, delivery }))
    }

    async fn set_limit(&self, limit: u32) -> Result<(), TransportError> {
        self.inner.set_limit(limit).await
    }

    fn lost(&self, receipt: &Self::Receipt) -> impl Future<Output = ()> + Send + 'static {
        self.inner.lost(&receipt.inner)
    }
}
