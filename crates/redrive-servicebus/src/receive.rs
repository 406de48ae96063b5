//! Receiving and settling.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use redrive_core::{Received, Receiver, SettleError, Settlement, TransportError};
use tokio::sync::watch;

use crate::broker::Broker;
use crate::error;
use crate::intake::Wanted;
use crate::receipt::Receipt;
use crate::settle;

/// Receives from one queue or subscription; what [`open`](redrive_core::Transport::open) gives.
#[derive(Debug)]
pub struct ServiceBusReceiver {
    broker: Arc<Broker>,
    wanted: Arc<watch::Sender<Wanted>>,
}

impl ServiceBusReceiver {
    pub(crate) fn new(broker: Arc<Broker>, wanted: Arc<watch::Sender<Wanted>>) -> Self {
        Self { broker, wanted }
    }

    async fn stop(&self) {
        Wanted::Pause.say(&self.wanted, false);
        let mut wanted = self.wanted.subscribe();
        tokio::select! {
            () = self.broker.inbox.until_drained() => {}
            // Somebody else took it up again meanwhile.
            _ = wanted.wait_for(|wanted| wanted.is_deliveries()) => {}
        }
    }
}

impl Receiver for ServiceBusReceiver {
    type Receipt = Receipt;

    async fn receive(
        &self,
        batch: &mut VecDeque<Received<Receipt>>,
        most: usize,
    ) -> Result<usize, TransportError> {
        self.broker.inbox.receive(batch, most).await
    }

    async fn settle(&self, receipt: Receipt, settlement: Settlement) -> Result<(), SettleError<Receipt>> {
        settle::settle(receipt, settlement).await
    }

    async fn set_limit(&self, limit: u32) -> Result<(), TransportError> {
        let now = *self.wanted.borrow();
        if limit == 0 {
            if now != Wanted::Close {
                self.stop().await;
            }
            return Ok(());
        }
        if now == Wanted::Close {
            return Err(error::closed(&self.broker.entity()));
        }
        self.broker.limit.store(limit, Ordering::Relaxed);
        let deliveries = Wanted::Deliveries(self.broker.capacity());
        if now == deliveries && !self.broker.inbox.has_failed() {
            return Ok(());
        }
        // Also for an intake that had given up, and waits for this word.
        let say = || deliveries.say(&self.wanted, true);
        self.broker.inbox.open(self.broker.options.intakes(), say);
        Ok(())
    }

    fn lost(&self, receipt: &Receipt) -> impl Future<Output = ()> + Send + 'static {
        Arc::clone(&receipt.lost).heard()
    }
}
