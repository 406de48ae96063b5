//! The right to settle one delivery.

use std::sync::Arc;

use redrive_core::{SettleError, Settlement};
use redrive_transport::{GiveBack, InFlight};
use tokio::time::Instant;

use crate::broker::MemoryBroker;
use crate::error::Refusal;
use crate::queue::Tag;

/// The right to settle one delivery. Dropping it gives the delivery back, which counts as a delivery.
#[derive(Debug)]
#[must_use = "dropping the receipt gives the delivery back"]
pub struct MemoryReceipt {
    held: InFlight<Held>,
}

/// One unsettled delivery.
#[derive(Debug)]
struct Held {
    broker: MemoryBroker,
    queue: Arc<str>,
    tag: Tag,
}

impl MemoryReceipt {
    pub(crate) fn new(broker: MemoryBroker, queue: Arc<str>, tag: Tag) -> Self {
        Self { held: InFlight::new(Held { broker, queue, tag }) }
    }

    /// Carries out the settlement in one step.
    pub(crate) fn settle(self, settlement: Settlement) -> Result<(), SettleError<Self>> {
        let Held { broker, queue, tag } = &*self.held;
        let settled = broker.change(queue, |queue| queue.settle(*tag, settlement, Instant::now()));
        let settled = settled.map_err(|refusal| (refusal, refusal.on(queue)));
        match settled {
            Ok(()) => drop(self.held.take()),
            Err((Refusal::Lost, error)) => {
                drop(self.held.take());
                return Err(SettleError::lost(error));
            }
            Err((_, error)) => return Err(SettleError::held(error, self)),
        }
        Ok(())
    }
}

impl GiveBack for Held {
    fn give_back(self) {
        self.broker.change(&self.queue, |queue| queue.give_back(self.tag, Instant::now()));
    }
}
