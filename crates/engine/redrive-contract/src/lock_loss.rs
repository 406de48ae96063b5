//! A transport whose deliveries can be lost while they are in flight.

use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use redrive_core::transport::{ReceiptOf, Received, Receiver, SettleError, Settlement};
use redrive_core::{Transport, TransportError, TransportErrorKind};
use tokio::sync::watch;

use crate::wrapper::forward_transport;

/// Wraps a transport. A test can make it lose a delivery, as the broker does when a lock expires.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use redrive_core::{Message, Transport};
/// use redrive_core::transport::Needs;
/// use redrive_memory::Memory;
/// use redrive_contract::{LockLossTransport, Started};
///
/// let transport = Started::open(LockLossTransport::new(Memory::new("orders")), &Needs::none()).await?;
/// let in_flight = transport.in_flight();
/// transport.inner().publish(Message::new("one").with_id("order-1")).await?;
/// let received = transport.receive().await?.unwrap();
/// assert!(in_flight.lose("order-1"));
/// transport.lost(&received.receipt).await;
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
/// ```
pub struct LockLossTransport<T: Transport> {
    inner: T,
    in_flight: InFlight<ReceiptOf<T>>,
}

/// The receiver of a [`LockLossTransport`] transport.
pub struct LockLossReceiver<R: Receiver> {
    inner: R,
    in_flight: InFlight<R::Receipt>,
}

/// The deliveries in flight of a [`LockLossTransport`]. Clones share them: keep one when the transport goes to a consumer.
pub struct InFlight<R> {
    holds: Arc<Mutex<Vec<Weak<Hold<R>>>>>,
}

/// The right to settle a delivery of a [`LockLossTransport`] transport.
pub struct LockLossReceipt<R> {
    hold: Arc<Hold<R>>,
}

struct Hold<R> {
    id: String,
    /// `None`: the delivery is lost, or is being settled.
    receipt: Mutex<Option<R>>,
    lost: watch::Sender<bool>,
}

impl<T: Transport> LockLossTransport<T> {
    /// Wraps a transport. Nothing is lost yet.
    #[must_use]
    pub fn new(inner: T) -> Self {
        Self { inner, in_flight: InFlight { holds: Arc::default() } }
    }

    /// Returns the wrapped transport.
    #[must_use]
    pub fn inner(&self) -> &T {
        &self.inner
    }

    /// Returns the deliveries in flight.
    #[must_use]
    pub fn in_flight(&self) -> InFlight<ReceiptOf<T>> {
        self.in_flight.clone()
    }
}

impl<R> InFlight<R> {
    /// Loses the delivery with this id: it goes back to the broker as with a dropped receipt, and the transport reports it as
    /// lost. Returns false if it is not in flight, or is being settled.
    #[must_use]
    pub fn lose(&self, id: &str) -> bool {
        let holds: Vec<_> = self.holds().iter().filter_map(Weak::upgrade).collect();
        for hold in holds.iter().filter(|hold| hold.id == id) {
            if let Some(receipt) = hold.take() {
                drop(receipt);
                hold.lost.send_replace(true);
                return true;
            }
        }
        false
    }

    fn enter(&self, id: &str, receipt: R) -> LockLossReceipt<R> {
        let hold = Arc::new(Hold {
            id: id.to_owned(),
            receipt: Mutex::new(Some(receipt)),
            lost: watch::Sender::new(false),
        });
        let mut holds = self.holds();
        holds.retain(|hold| hold.strong_count() > 0);
        holds.push(Arc::downgrade(&hold));
        LockLossReceipt { hold }
    }

    fn holds(&self) -> MutexGuard<'_, Vec<Weak<Hold<R>>>> {
        self.holds.lock()
    }
}

impl<R> Hold<R> {
    fn take(&self) -> Option<R> {
        self.receipt.lock().take()
    }
}

forward_transport!(LockLossTransport, LockLossReceiver, |this, inner| LockLossReceiver {
    inner,
    in_flight: this.in_flight()
});

impl<R: Receiver> Receiver for LockLossReceiver<R> {
    type Receipt = LockLossReceipt<R::Receipt>;

    async fn receive(&self) -> Result<Option<Received<Self::Receipt>>, TransportError> {
        let wrap = |Received { delivery, receipt }: Received<R::Receipt>| Received {
            receipt: self.in_flight.enter(delivery.id(), receipt),
            delivery,
        };
        Ok(self.inner.receive().await?.map(wrap))
    }

    async fn settle(
        &self,
        receipt: Self::Receipt,
        settlement: Settlement,
    ) -> Result<(), SettleError<Self::Receipt>> {
        let LockLossReceipt { hold } = receipt;
        let Some(inner) = hold.take() else {
            let message = format!("`{}` cannot be settled: it was lost on purpose", hold.id);
            return Err(SettleError::lost(TransportError::new(TransportErrorKind::Lost, message)));
        };
        let settled = self.inner.settle(inner, settlement).await;
        settled.map_err(|failed| failed.map_receipt(|inner| self.in_flight.enter(&hold.id, inner)))
    }

    async fn set_limit(&self, limit: u32) -> Result<(), TransportError> {
        self.inner.set_limit(limit).await
    }

    fn lost(&self, receipt: &Self::Receipt) -> impl Future<Output = ()> + Send + 'static {
        let mut lost = receipt.hold.lost.subscribe();
        async move {
            if lost.wait_for(|lost| *lost).await.is_err() {
                // It was settled.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl<R> Clone for InFlight<R> {
    fn clone(&self) -> Self {
        Self { holds: Arc::clone(&self.holds) }
    }
}

impl<T: Transport + fmt::Debug> fmt::Debug for LockLossTransport<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockLossTransport").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<R: Receiver> fmt::Debug for LockLossReceiver<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockLossReceiver").finish_non_exhaustive()
    }
}

impl<R> fmt::Debug for InFlight<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").finish_non_exhaustive()
    }
}

impl<R> fmt::Debug for LockLossReceipt<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockLossReceipt").field("id", &self.hold.id).finish_non_exhaustive()
    }
}
