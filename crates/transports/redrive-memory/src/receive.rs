//! Receives and settles deliveries.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use redrive_core::TransportError;
use redrive_core::transport::{
    DeliveryBuilder, Origin, Received, Receiver, SettleError, Settlement, Signals,
};
use tokio::time::{Instant, sleep_until};

use crate::broker::QueueHandle;
use crate::queue::{NextDelivery, Owner, Queue, Tag};
use crate::receipt::MemoryReceipt;

/// Receives from a queue. [`open`](redrive_core::Transport::open) returns it.
#[derive(Debug)]
pub struct MemoryReceiver {
    shared: Arc<TransportState>,
}

/// The state that a transport and its receiver share.
#[derive(Debug)]
pub(crate) struct TransportState {
    pub(crate) queue: Arc<QueueHandle>,
    origin: Origin,
    owner: Owner,
    lifecycle: Mutex<Lifecycle>,
    /// True after the end. Publishers share it, since they may outlive the transport.
    pub(crate) closed: Arc<AtomicBool>,
}

/// The phases of a transport.
#[derive(Debug)]
enum Lifecycle {
    New,
    Open {
        /// The prefetch that the needs set; 0 is no limit.
        prefetch: u32,
        limit: u32,
        signals: Signals,
    },
    Ended,
}

/// The result of one try to take deliveries from the queue.
#[derive(Debug)]
enum TakeResult {
    Found(Received<MemoryReceipt>),
    /// No message can be delivered; the next waiting one is due at this time.
    Nothing {
        next_due: Option<Instant>,
    },
    /// No deliveries come: the limit is 0, or the transport is not open.
    NoMore,
}

impl MemoryReceiver {
    pub(crate) fn new(shared: Arc<TransportState>) -> Self {
        Self { shared }
    }
}

impl Receiver for MemoryReceiver {
    type Receipt = MemoryReceipt;

    async fn receive(&self) -> Result<Option<Received<MemoryReceipt>>, TransportError> {
        // No I/O yields here: without this call, the consumer of a full queue would block other tasks.
        tokio::task::coop::consume_budget().await;
        loop {
            // Created before the check: `notify_waiters` reaches it from then on.
            let changed = self.shared.queue.broker.changed().notified();
            match self.shared.take_ready() {
                TakeResult::Found(received) => return Ok(Some(received)),
                TakeResult::NoMore => return Ok(None),
                TakeResult::Nothing { next_due: None } => changed.await,
                TakeResult::Nothing { next_due: Some(due) } => {
                    tokio::select! {
                        () = changed => {}
                        () = sleep_until(due) => {}
                    }
                }
            }
        }
    }

    async fn settle(
        &self,
        receipt: MemoryReceipt,
        settlement: Settlement,
    ) -> Result<(), SettleError<MemoryReceipt>> {
        // The receipt knows its broker and queue, so receipts of other transports work too.
        receipt.settle(settlement)
    }

    async fn set_limit(&self, limit: u32) -> Result<(), TransportError> {
        self.shared.set_limit(limit)
    }
}

impl TransportState {
    pub(crate) fn new(queue: QueueHandle, owner: Owner) -> Self {
        let name = &queue.name;
        Self {
            origin: Origin::new(Arc::clone(name), "", Arc::clone(name)),
            queue: Arc::new(queue),
            owner,
            lifecycle: Mutex::new(Lifecycle::New),
            closed: Arc::default(),
        }
    }

    pub(crate) fn open(&self, prefetch: u32, signals: Signals) -> Result<(), TransportError> {
        let mut lifecycle = self.lifecycle();
        match *lifecycle {
            Lifecycle::New => *lifecycle = Lifecycle::Open { prefetch, limit: 0, signals },
            Lifecycle::Open { .. } => return Err(TransportError::opened_before(&self.queue.name)),
            Lifecycle::Ended => return Err(TransportError::closed(&self.queue.name)),
        }
        Ok(())
    }

    pub(crate) fn signals(&self) -> Option<Signals> {
        match &*self.lifecycle() {
            Lifecycle::Open { signals, .. } => Some(signals.clone()),
            Lifecycle::New | Lifecycle::Ended => None,
        }
    }

    pub(crate) fn give_back_all(&self) {
        self.queue.change(|queue| {
            for tag in queue.tags_of(self.owner) {
                queue.give_back(tag, Instant::now());
            }
        });
    }

    /// Ends the transport and its deliveries in flight in one step, so that `take_ready` delivers nothing in between.
    pub(crate) fn end(&self, give_back: impl Fn(&mut Queue, Tag)) {
        let mut lifecycle = self.lifecycle();
        *lifecycle = Lifecycle::Ended;
        self.closed.store(true, Ordering::Release);
        self.queue.change(|queue| {
            for tag in queue.tags_of(self.owner) {
                give_back(queue, tag);
            }
        });
    }

    fn set_limit(&self, requested: u32) -> Result<(), TransportError> {
        match &mut *self.lifecycle() {
            Lifecycle::Open { prefetch, limit, .. } => {
                *limit = if *prefetch == 0 { requested } else { requested.min(*prefetch) };
            }
            Lifecycle::New | Lifecycle::Ended if requested > 0 => {
                return Err(TransportError::closed(&self.queue.name));
            }
            Lifecycle::New | Lifecycle::Ended => {}
        }
        self.queue.broker.changed().notify_waiters();
        Ok(())
    }

    fn take_ready(&self) -> TakeResult {
        let lifecycle = self.lifecycle();
        let Lifecycle::Open { limit: limit @ 1.., .. } = *lifecycle else { return TakeResult::NoMore };
        let now = Instant::now();
        match self.queue.with(|queue| queue.deliver_next(self.owner, limit, now)) {
            NextDelivery::Delivery { tag, position, message, delivery_count } => {
                let delivery =
                    DeliveryBuilder::new(message, self.origin.clone(), self.queue.broker.time_of(now))
                        .broker_delivery_count(delivery_count)
                        .broker_number(position)
                        .build();
                let receipt = MemoryReceipt::new(Arc::clone(&self.queue), tag);
                TakeResult::Found(Received { delivery, receipt })
            }
            NextDelivery::Nothing { next_due } => TakeResult::Nothing { next_due },
        }
    }

    fn lifecycle(&self) -> MutexGuard<'_, Lifecycle> {
        self.lifecycle.lock()
    }
}
