//! The right to settle one delivery.

use std::sync::Arc;

use redrive_core::transport::{SettleError, Settlement};
use redrive_transport::{GiveBack, InFlight};
use tokio::time::Instant;

use crate::broker::QueueHandle;
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
    queue: Arc<QueueHandle>,
    tag: Tag,
}

impl MemoryReceipt {
    pub(crate) fn new(queue: Arc<QueueHandle>, tag: Tag) -> Self {
        Self { held: InFlight::new(Held { queue, tag }) }
    }

    /// Carries out the settlement in one step.
    pub(crate) fn settle(self, settlement: Settlement) -> Result<(), SettleError<Self>> {
        let Held { queue, tag } = &*self.held;
        let settled = queue.change(|queue| queue.settle(*tag, settlement, Instant::now));
        let settled = settled.map_err(|refusal| (refusal, refusal.on(&queue.name)));
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
        self.queue.change(|queue| queue.give_back(self.tag, Instant::now()));
    }
}
