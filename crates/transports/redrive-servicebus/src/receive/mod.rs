//! Receives messages from the broker and passes them to the consumer.
//!
//! `intake` receives from an entity without sessions, `session_intake` from one with sessions; `arrival` is the part that both
//! share. Deliveries wait in the `inbox` for the consumer.

pub(crate) mod arrival;
pub(crate) mod inbox;
pub(crate) mod intake;
pub(crate) mod session_intake;

use std::sync::Arc;

use redrive_core::TransportError;
use redrive_core::transport::{Received, Receiver, SettleError, Settlement};

use self::inbox::Inbox;
use crate::receipt::Receipt;
use crate::settle;

/// Receives from one queue or subscription. [`open`](redrive_core::Transport::open) returns it.
#[derive(Debug)]
pub struct ServiceBusReceiver {
    inbox: Inbox,
    /// The most deliveries that each source may have in flight.
    most: u32,
}

impl ServiceBusReceiver {
    pub(crate) fn new(inbox: Inbox, most: u32) -> Self {
        Self { inbox, most }
    }
}

impl Receiver for ServiceBusReceiver {
    type Receipt = Receipt;

    async fn receive(&self) -> Result<Option<Received<Receipt>>, TransportError> {
        Ok(self.inbox.receive().await?.map(|unreceived| unreceived.0))
    }

    async fn settle(&self, receipt: Receipt, settlement: Settlement) -> Result<(), SettleError<Receipt>> {
        settle::settle(receipt, settlement).await
    }

    async fn set_limit(&self, limit: u32) -> Result<(), TransportError> {
        self.inbox.set_limit(limit.min(self.most)).await
    }

    fn lost(&self, receipt: &Receipt) -> impl Future<Output = ()> + Send + 'static {
        Arc::clone(&receipt.locked.lost).received()
    }
}
