//! A transport with a flaw.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use parking_lot::Mutex;
use redrive_contract::{InFlight, LockLossReceipt, LockLossReceiver, LockLossTransport};
use redrive_core::transport::{
    DeliveryBuilder, Facts, Needs, OpenError, Outgoing, Outline, Publish, Received, Receiver, SettleError,
    Settlement, Signals,
};
use redrive_core::{Delivery, Publisher, Transport, TransportError, TransportErrorKind};
use redrive_memory::{Memory, MemoryBroker, MemoryReceipt, MemoryReceiver};
use tokio::runtime::Handle;

use crate::Flaw;

/// The header that [`Flaw::ForeignHeadersControl`] obeys.
pub(crate) const ENDS_WAITS: &str = "flawed-ends-waits";

/// The transport in memory, whose deliveries can be lost, with a flaw.
pub(crate) struct Flawed {
    inner: LockLossTransport<Memory>,
    shared: Arc<Shared>,
}

struct Shared {
    flaw: Flaw,
    /// After this time the broker gives back what was not given back to it.
    lease: Arc<Mutex<Duration>>,
    cut_after_copy: AtomicBool,
    was_interrupted: AtomicBool,
    /// The other side of the connection is gone, or silent.
    is_dead: AtomicBool,
    last_number: AtomicU64,
}

pub(crate) struct FlawedReceiver {
    inner: LockLossReceiver<MemoryReceiver>,
    shared: Arc<Shared>,
    runtime: Handle,
    limit: AtomicU32,
}

pub(crate) struct FlawedReceipt {
    inner: Option<LockLossReceipt<MemoryReceipt>>,
    shared: Arc<Shared>,
    runtime: Handle,
}

struct FlawedPublisher {
    broker: MemoryBroker,
    inner: Publisher,
    shared: Arc<Shared>,
}

impl Flawed {
    pub(crate) fn new(inner: Memory, flaw: Flaw, lease: Arc<Mutex<Duration>>) -> Self {
        let shared = Shared {
            flaw,
            lease,
            cut_after_copy: AtomicBool::new(false),
            was_interrupted: AtomicBool::new(false),
            is_dead: AtomicBool::new(false),
            last_number: AtomicU64::new(0),
        };
        Self { inner: LockLossTransport::new(inner), shared: Arc::new(shared) }
    }

    pub(crate) fn in_flight(&self) -> InFlight<MemoryReceipt> {
        self.inner.in_flight()
    }

    pub(crate) fn die(&self) {
        self.inner.inner().crash();
        self.fall_silent();
    }

    pub(crate) fn fall_silent(&self) {
        self.shared.is_dead.store(true, Ordering::Relaxed);
    }

    pub(crate) fn interrupt(&self) {
        self.inner.inner().interrupt();
        self.shared.was_interrupted.store(true, Ordering::Relaxed);
    }

    pub(crate) fn cut_after_next_copy(&self) {
        self.shared.cut_after_copy.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    fn seen(&self, delivery: Delivery) -> Delivery {
        let (flaw, received_at) = (self.flaw, delivery.received_at());
        let delivery = DeliveryBuilder::from(delivery);
        let delivery = match flaw {
            Flaw::OneNumberForAll => delivery.broker_number(7),
            Flaw::NewNumbers => delivery.broker_number(self.last_number.fetch_add(1, Ordering::Relaxed)),
            Flaw::EnqueuedIn1970 => delivery.enqueued_at(Some(SystemTime::UNIX_EPOCH)),
            _ => delivery.enqueued_at(Some(received_at)),
        };
        delivery.build()
    }

    fn sent(&self, settlement: Settlement) -> Settlement {
        match settlement {
            Settlement::Reschedule { wait, copy } if self.has(Flaw::Late) => {
                Settlement::Reschedule { wait: wait + Duration::from_secs(8), copy }
            }
            Settlement::Reschedule { copy, .. }
                if self.has(Flaw::ForeignHeadersControl) && copy.headers().contains(ENDS_WAITS) =>
            {
                Settlement::Reschedule { wait: Duration::ZERO, copy }
            }
            settlement => settlement,
        }
    }
}

impl Transport for Flawed {
    type Receiver = FlawedReceiver;

    fn queue(&self) -> &str {
        self.inner.queue()
    }

    fn publisher(&self) -> Publisher {
        Publisher::new(FlawedPublisher {
            broker: self.inner.inner().broker().clone(),
            inner: self.inner.publisher(),
            shared: Arc::clone(&self.shared),
        })
    }

    async fn open(&self, needs: &Needs, signals: Signals) -> Result<(FlawedReceiver, Facts), OpenError> {
        let unchecked;
        let needs = if self.shared.has(Flaw::NoCheck) {
            unchecked = Needs::none();
            &unchecked
        } else {
            needs
        };
        let (inner, facts) = self.inner.open(needs, signals).await?;
        let shared = Arc::clone(&self.shared);
        Ok((FlawedReceiver { inner, shared, runtime: Handle::current(), limit: AtomicU32::new(0) }, facts))
    }

    async fn close(&self) {
        if self.shared.is_dead.load(Ordering::Relaxed) && self.shared.has(Flaw::CloseHangs) {
            std::future::pending::<()>().await;
        }
        if self.shared.has(Flaw::KeepsAtClose) {
            let lease = *self.shared.lease.lock();
            tokio::time::sleep(lease).await;
        }
        self.inner.close().await;
    }

    fn outline(&self, needs: &Needs) -> Outline {
        self.inner.outline(needs)
    }

    async fn preflight(&self, needs: &Needs) -> Result<Outline, TransportError> {
        if self.shared.has(Flaw::PreflightDeclares) {
            // The broker creates a queue when it is named.
            let _ = self.inner.inner().broker().depth("declared");
        }
        self.inner.preflight(needs).await
    }

    fn now(&self) -> SystemTime {
        self.inner.now()
    }
}

impl FlawedReceiver {
    fn wrap(&self, inner: LockLossReceipt<MemoryReceipt>) -> FlawedReceipt {
        let (shared, runtime) = (Arc::clone(&self.shared), self.runtime.clone());
        FlawedReceipt { inner: Some(inner), shared, runtime }
    }
}

impl Receiver for FlawedReceiver {
    type Receipt = FlawedReceipt;

    async fn receive(&self) -> Result<Option<Received<FlawedReceipt>>, TransportError> {
        let received = self.inner.receive().await?;
        if self.shared.has(Flaw::StopsAtForeign)
            && received.as_ref().is_some_and(|received| received.delivery.history().id_assigned)
        {
            std::future::pending::<()>().await;
        }
        Ok(received.map(|Received { delivery, receipt }| Received {
            delivery: self.shared.seen(delivery),
            receipt: self.wrap(receipt),
        }))
    }

    async fn settle(
        &self,
        mut receipt: FlawedReceipt,
        settlement: Settlement,
    ) -> Result<(), SettleError<FlawedReceipt>> {
        if settlement == Settlement::Release && self.shared.has(Flaw::KeepsReleased) {
            receipt.keep();
            return Ok(());
        }
        let Some(inner) = receipt.inner.take() else { return Ok(()) };
        let (stores_copy, is_reschedule) =
            (settlement.stores_copy(), matches!(settlement, Settlement::Reschedule { .. }));
        let settled = self.inner.settle(inner, self.shared.sent(settlement)).await;
        match settled {
            Ok(()) if stores_copy && self.shared.cut_after_copy.swap(false, Ordering::Relaxed) => {
                let error =
                    |kind| TransportError::new(kind, "the connection was cut after the copy was stored");
                Err(if self.shared.has(Flaw::DisownsCopies) {
                    SettleError::lost(error(TransportErrorKind::Unroutable))
                } else {
                    SettleError::lost_after_copy(error(TransportErrorKind::Lost))
                })
            }
            Ok(()) => Ok(()),
            Err(mut failed) => {
                if failed.receipt.is_none() && stores_copy && self.shared.has(Flaw::ClaimsCopies) {
                    failed.copy_stored = true;
                }
                if is_reschedule
                    && self.shared.has(Flaw::ConfirmsTooEarly)
                    && let Some(inner) = failed.receipt.take()
                {
                    let removed = self.inner.settle(inner, Settlement::Complete).await;
                    return removed.map_err(|failed| failed.map_receipt(|inner| self.wrap(inner)));
                }
                Err(failed.map_receipt(|inner| self.wrap(inner)))
            }
        }
    }

    async fn set_limit(&self, limit: u32) -> Result<(), TransportError> {
        let before = self.limit.swap(limit, Ordering::Relaxed);
        if self.shared.has(Flaw::IgnoresLowerLimits) && (1..before).contains(&limit) {
            return Ok(());
        }
        self.inner.set_limit(limit).await
    }

    fn lost(&self, receipt: &FlawedReceipt) -> impl Future<Output = ()> + Send + 'static {
        let lost = receipt.inner.as_ref().map(|inner| self.inner.lost(inner));
        async move {
            match lost {
                Some(lost) => lost.await,
                None => std::future::pending().await,
            }
        }
    }
}

impl FlawedReceipt {
    /// Gives nothing back: the broker does, when the lease ends.
    fn keep(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        let lease = *self.shared.lease.lock();
        self.runtime.spawn(async move {
            tokio::time::sleep(lease).await;
            drop(inner);
        });
    }
}

impl Drop for FlawedReceipt {
    fn drop(&mut self) {
        if self.shared.has(Flaw::KeepsDropped) {
            self.keep();
        }
    }
}

#[async_trait]
impl Publish for FlawedPublisher {
    fn destination(&self) -> &str {
        self.inner.destination()
    }

    fn to(&self, destination: &str) -> Arc<dyn Publish> {
        let (broker, shared) = (self.broker.clone(), Arc::clone(&self.shared));
        Arc::new(Self { broker, inner: self.inner.to(destination), shared })
    }

    async fn publish(&self, messages: Vec<Outgoing>) -> Vec<Result<(), TransportError>> {
        let is_dead =
            self.shared.has(Flaw::PublisherDies) && self.shared.was_interrupted.load(Ordering::Relaxed);
        let mut results = Vec::new();
        for Outgoing { message, wait, .. } in messages {
            results.push(if is_dead {
                let text = "the connection of the publisher is gone";
                Err(TransportError::new(TransportErrorKind::Unreachable, text))
            } else {
                self.inner.publish_after(message, wait).await
            });
        }
        results
    }

    fn now(&self) -> SystemTime {
        self.broker.now()
    }
}
