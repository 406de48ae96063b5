//! Receiving and settling.

use std::collections::VecDeque;
use std::sync::Arc;

use redrive_core::{Received, Receiver, SettleError, Settlement, TransportError};

use crate::inbox::Inbox;
use crate::receipt::Receipt;
use crate::settle;

/// Receives from one queue or subscription; what [`open`](redrive_core::Transport::open) gives.
#[derive(Debug)]
pub struct ServiceBusReceiver {
    inbox: Inbox,
    /// The most deliveries that each source may have in hand.
    most: u32,
}

impl ServiceBusReceiver {
    pub(crate) fn new(inbox: Inbox, most: u32) -> Self {
        Self { inbox, most }
    }
}

impl Receiver for ServiceBusReceiver {
    type Receipt = Receipt;

    async fn receive(
        &self,
        batch: &mut VecDeque<Received<Receipt>>,
        most: usize,
    ) -> Result<usize, TransportError> {
        self.inbox.receive(batch, most, |unreceived| unreceived.0).await
    }

    async fn settle(&self, receipt: Receipt, settlement: Settlement) -> Result<(), SettleError<Receipt>> {
        settle::settle(receipt, settlement).await
    }

    async fn set_limit(&self, limit: u32) -> Result<(), TransportError> {
        self.inbox.set_limit(limit.min(self.most)).await
    }

    fn lost(&self, receipt: &Receipt) -> impl Future<Output = ()> + Send + 'static {
        Arc::clone(&receipt.lost).heard()
    }
}
