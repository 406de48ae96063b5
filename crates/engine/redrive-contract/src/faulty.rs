//! A transport that fails on purpose.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redrive_core::transport::{DeliveryBuilder, Received, Receiver, SettleError, Settlement};
use redrive_core::{Delivery, Transport, TransportError, TransportErrorKind};
use tokio::sync::Notify;

use crate::wrapper::forward_transport;

/// Fault of one settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// No fault.
    None,
    /// The settlement is not carried out, and the receipt comes back with an error of this kind: for example because the shelf is
    /// full.
    Refused(TransportErrorKind),
    /// The settlement is not carried out, and the delivery is lost: the connection broke before. The message is redelivered.
    LostBefore,
    /// The settlement is carried out, but the consumer does not learn of it: the connection broke after the copy was stored and
    /// before the original was acknowledged. The message is redelivered, although its copy exists.
    LostAfter,
    /// The settlement is carried out after this delay.
    Late(Duration),
    /// The settlement is never carried out, and never returns.
    Hangs,
}

/// A settlement that is about to be carried out; a rule inspects it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Attempted<'a> {
    /// Number of the settlement on this transport, counted from 1.
    pub number: u64,
    /// The delivery to settle.
    pub delivery: &'a Delivery,
    /// How to settle it.
    pub settlement: &'a Settlement,
}

/// Wraps a transport and makes operations fail according to rules.
///
/// ```
/// use redrive_core::{Shelf, TransportErrorKind};
/// use redrive_core::transport::Settlement;
/// use redrive_memory::Memory;
/// use redrive_contract::{Fault, Faulty};
///
/// // The first three messages that go to a shelf find it full.
/// let transport = Faulty::new(Memory::new("orders")).on_settle(|attempted| match attempted.settlement {
///     Settlement::Shelve { .. } if attempted.number <= 3 => Fault::Refused(TransportErrorKind::Unconfirmed),
///     _ => Fault::None,
/// });
/// # drop(transport);
/// ```
pub struct Faulty<T> {
    inner: T,
    rules: Arc<Rules>,
}

/// The receiver of a [`Faulty`] transport.
pub struct FaultyReceiver<R> {
    inner: R,
    rules: Arc<Rules>,
}

struct Rules {
    settle: Box<SettleRule>,
    receive: Box<ReceiveRule>,
    settled: AtomicU64,
    received: AtomicU64,
    ghosts: Arc<Ghosts>,
}

type SettleRule = dyn Fn(&Attempted<'_>) -> Fault + Send + Sync;
type ReceiveRule = dyn Fn(u64) -> Option<TransportError> + Send + Sync;

/// Deliveries that were settled without the consumer learning of it, and that are redelivered.
#[derive(Debug, Default)]
struct Ghosts {
    ready: Mutex<VecDeque<Delivery>>,
    second_copies: Mutex<Vec<Settlement>>,
    changed: Notify,
}

/// The right to settle a delivery of a [`Faulty`] transport.
#[derive(Debug)]
pub struct FaultyReceipt<R> {
    /// `None`: the broker no longer has the message.
    inner: Option<R>,
    delivery: Delivery,
    /// Where a ghost returns to when its receipt is dropped.
    ghosts: Option<Arc<Ghosts>>,
}

impl<T: Transport> Faulty<T> {
    /// Wraps a transport, without faults at first.
    #[must_use]
    pub fn new(inner: T) -> Self {
        Self { inner, rules: Rules::new(Box::new(|_| Fault::None), Box::new(|_| None)) }
    }

    /// Makes a settlement fail if the rule returns a fault for it.
    #[must_use]
    pub fn on_settle(self, rule: impl Fn(&Attempted<'_>) -> Fault + Send + Sync + 'static) -> Self {
        let before = Arc::clone(&self.rules);
        let receive = move |number| (before.receive)(number);
        Self { rules: Rules::new(Box::new(rule), Box::new(receive)), ..self }
    }

    /// Makes the settlement with this number (counted from 1) fail.
    #[must_use]
    pub fn fail_settle(self, number: u64, fault: Fault) -> Self {
        self.on_settle(move |attempted| if attempted.number == number { fault } else { Fault::None })
    }

    /// Makes a call of `receive` fail if the rule returns an error for its number (counted from 1). Such a call takes no delivery.
    #[must_use]
    pub fn on_receive(self, rule: impl Fn(u64) -> Option<TransportError> + Send + Sync + 'static) -> Self {
        let before = Arc::clone(&self.rules);
        let settle = move |attempted: &Attempted<'_>| (before.settle)(attempted);
        Self { rules: Rules::new(Box::new(settle), Box::new(rule)), ..self }
    }

    /// Returns the wrapped transport.
    #[must_use]
    pub fn inner(&self) -> &T {
        &self.inner
    }

    /// Returns the settlements that would have stored a second copy of a message that was already settled ([`Fault::LostAfter`]).
    /// They are not carried out. Empty if the consumer recognizes such messages.
    #[must_use]
    pub fn second_copies(&self) -> Vec<Settlement> {
        self.rules.ghosts.second_copies.lock().clone()
    }
}

impl Rules {
    fn new(settle: Box<SettleRule>, receive: Box<ReceiveRule>) -> Arc<Self> {
        let (settled, received) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { settle, receive, settled, received, ghosts: Arc::default() })
    }

    fn settle_ghost<R>(&self, mut receipt: FaultyReceipt<R>, settlement: Settlement) {
        if settlement == Settlement::Release {
            return; // Dropped as a ghost, it is redelivered.
        }
        receipt.ghosts = None;
        if settlement.stores_copy() {
            self.ghosts.second_copies.lock().push(settlement);
        }
    }
}

impl Ghosts {
    fn haunt(&self, delivery: Delivery) {
        self.ready.lock().push_back(delivery);
        // `Notify` keeps one permit if nobody waits yet; the receiver of a ghost wakes the next one.
        self.changed.notify_one();
    }

    fn next<R>(self: &Arc<Self>) -> Option<Received<FaultyReceipt<R>>> {
        let mut ready = self.ready.lock();
        let delivery = ready.pop_front()?;
        if !ready.is_empty() {
            self.changed.notify_one();
        }
        let by_broker = delivery.broker_delivery_count().saturating_sub(delivery.history().deliveries_before);
        let delivery =
            DeliveryBuilder::from(delivery).broker_delivery_count(by_broker.saturating_add(1)).build();
        let ghosts = Some(Arc::clone(self));
        Some(Received {
            delivery: delivery.clone(),
            receipt: FaultyReceipt { inner: None, delivery, ghosts },
        })
    }
}

impl<R> FaultyReceipt<R> {
    fn wrap(received: Received<R>) -> Received<Self> {
        let Received { delivery, receipt } = received;
        let receipt = Self { inner: Some(receipt), delivery: delivery.clone(), ghosts: None };
        Received { delivery, receipt }
    }
}

impl<R> Drop for FaultyReceipt<R> {
    fn drop(&mut self) {
        if let Some(ghosts) = self.ghosts.take() {
            ghosts.haunt(self.delivery.clone());
        }
    }
}

forward_transport!(Faulty, FaultyReceiver, |this, inner| FaultyReceiver {
    inner,
    rules: Arc::clone(&this.rules)
});

impl<R: Receiver> Receiver for FaultyReceiver<R> {
    type Receipt = FaultyReceipt<R::Receipt>;

    async fn receive(&self) -> Result<Option<Received<Self::Receipt>>, TransportError> {
        let number = self.rules.received.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(error) = (self.rules.receive)(number) {
            return Err(error);
        }
        loop {
            if let Some(ghost) = self.rules.ghosts.next() {
                return Ok(Some(ghost));
            }
            tokio::select! {
                received = self.inner.receive() => return Ok(received?.map(FaultyReceipt::wrap)),
                () = self.rules.ghosts.changed.notified() => {}
            }
        }
    }

    async fn settle(
        &self,
        mut receipt: Self::Receipt,
        settlement: Settlement,
    ) -> Result<(), SettleError<Self::Receipt>> {
        let number = self.rules.settled.fetch_add(1, Ordering::Relaxed) + 1;
        let fault =
            (self.rules.settle)(&Attempted { number, delivery: &receipt.delivery, settlement: &settlement });
        match fault {
            Fault::Refused(kind) => return Err(SettleError::held(error(kind, number), receipt)),
            Fault::LostBefore => return Err(SettleError::lost(error(TransportErrorKind::Lost, number))),
            Fault::Late(wait) => tokio::time::sleep(wait).await,
            Fault::Hangs => std::future::pending().await,
            Fault::None | Fault::LostAfter => {}
        }
        let Some(inner) = receipt.inner.take() else {
            self.rules.settle_ghost(receipt, settlement);
            return Ok(());
        };
        let (released, stores_copy) = (settlement == Settlement::Release, settlement.stores_copy());
        match self.inner.settle(inner, settlement).await {
            Ok(()) if fault == Fault::LostAfter => {
                // A released message is redelivered.
                if !released {
                    self.rules.ghosts.haunt(receipt.delivery.clone());
                }
                let error = error(TransportErrorKind::Lost, number);
                Err(if stores_copy { SettleError::lost_after_copy(error) } else { SettleError::lost(error) })
            }
            Ok(()) => Ok(()),
            Err(failed) => Err(failed.map_receipt(|inner| {
                receipt.inner = Some(inner);
                receipt
            })),
        }
    }

    async fn set_limit(&self, limit: u32) -> Result<(), TransportError> {
        self.inner.set_limit(limit).await
    }

    fn lost(&self, receipt: &Self::Receipt) -> impl Future<Output = ()> + Send + 'static {
        let inner = receipt.inner.as_ref().map(|inner| self.inner.lost(inner));
        async move {
            match inner {
                Some(lost) => lost.await,
                None => std::future::pending().await,
            }
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Faulty<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<R: fmt::Debug> fmt::Debug for FaultyReceiver<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyReceiver").field("inner", &self.inner).finish_non_exhaustive()
    }
}

fn error(kind: TransportErrorKind, number: u64) -> TransportError {
    TransportError::new(kind, format!("settlement {number} fails on purpose"))
}
