//! The steps that clauses are made of: receiving and settling.

use redrive_core::transport::{Received, SettleError, Settlement};
use redrive_core::{Delivery, TransportError, TransportErrorKind};
use tokio::time::timeout;

use crate::case::{ARRIVAL, Case};
use crate::harness::{Harness, ReceiptOf, StartedOf};
use crate::transcript::describe;

impl<H: Harness> Case<H> {
    /// Returns the next delivery. Fails if none comes in time.
    pub(crate) async fn next(&self, transport: &StartedOf<H>) -> Received<ReceiptOf<H>> {
        match timeout(ARRIVAL, transport.receive()).await {
            Ok(Ok(Some(received))) => {
                self.note_received(transport, &received.delivery);
                received
            }
            Ok(Ok(None)) => panic!("`receive` answers that there is no more, and there should be a delivery"),
            Ok(Err(error)) => panic!("`receive` fails: {error}"),
            Err(_) => panic!("no delivery within {ARRIVAL:?}"),
        }
    }

    /// Returns the next delivery, which must have this id.
    pub(crate) async fn next_is(&self, transport: &StartedOf<H>, id: &str) -> Received<ReceiptOf<H>> {
        let received = self.next(transport).await;
        assert_eq!(received.delivery.id(), id, "another message than expected came next");
        received
    }

    /// Receives until `receive` returns that there is no more. Returns the deliveries.
    pub(crate) async fn drain(&self, transport: &StartedOf<H>) -> Vec<Received<ReceiptOf<H>>> {
        let mut all = Vec::new();
        loop {
            match timeout(ARRIVAL, transport.receive()).await {
                Ok(Ok(Some(received))) => {
                    self.note_received(transport, &received.delivery);
                    all.push(received);
                }
                Ok(Ok(None)) => return all,
                Ok(Err(error)) => panic!("`receive` fails: {error}"),
                Err(_) => panic!("`receive` does not answer that there is no more"),
            }
        }
    }

    fn note_received(&self, transport: &StartedOf<H>, delivery: &Delivery) {
        self.transcript.note(format_args!("{}: received {}", self.name(transport), describe(delivery)));
    }

    /// Settles. Fails if the settlement fails.
    pub(crate) async fn settle(
        &self,
        transport: &StartedOf<H>,
        receipt: ReceiptOf<H>,
        settlement: Settlement,
    ) {
        let name = settlement.name();
        if let Err(refused) = self.try_settle(transport, receipt, settlement).await {
            panic!("`{name}` fails: {}", refused.error);
        }
    }

    /// Settles within [`ARRIVAL`].
    pub(crate) async fn try_settle(
        &self,
        transport: &StartedOf<H>,
        receipt: ReceiptOf<H>,
        settlement: Settlement,
    ) -> Result<(), SettleError<ReceiptOf<H>>> {
        let name = settlement.name();
        let settled = timeout(ARRIVAL, transport.settle(receipt, settlement))
            .await
            .unwrap_or_else(|_| panic!("`{name}` does not end within {ARRIVAL:?}"));
        let answer = match &settled {
            Ok(()) => "done".to_owned(),
            Err(refused) => format!(
                "{:?}, receipt {}",
                refused.error.kind(),
                if refused.receipt.is_some() { "kept" } else { "gone" }
            ),
        };
        self.transcript.note(format_args!("{}: {name}: {answer}", self.name(transport)));
        settled
    }

    /// Settles; the settlement must fail with [`TransportErrorKind::Lost`] and without a receipt. Returns true if the error says that
    /// the copy is stored.
    pub(crate) async fn settle_is_lost(
        &self,
        transport: &StartedOf<H>,
        receipt: ReceiptOf<H>,
        settlement: Settlement,
    ) -> bool {
        let name = settlement.name();
        match self.try_settle(transport, receipt, settlement).await {
            Ok(()) => panic!("`{name}` claims to have settled a delivery that was lost"),
            Err(refused) => {
                assert_eq!(refused.error.kind(), TransportErrorKind::Lost, "{}", refused.error);
                assert!(refused.receipt.is_none(), "a lost delivery's receipt is given back");
                refused.copy_stored
            }
        }
    }

    /// Settles; the settlement must be refused and give the receipt back. Returns both.
    pub(crate) async fn settle_is_refused(
        &self,
        transport: &StartedOf<H>,
        receipt: ReceiptOf<H>,
        settlement: Settlement,
    ) -> (TransportError, ReceiptOf<H>) {
        let name = settlement.name();
        match self.try_settle(transport, receipt, settlement).await {
            Ok(()) => panic!("`{name}` claims to have stored a copy where none can be stored"),
            Err(refused) => match refused.receipt {
                Some(receipt) => (refused.error, receipt),
                None => panic!("`{name}` lost the delivery: {}", refused.error),
            },
        }
    }

    /// Receives one delivery and completes it.
    pub(crate) async fn complete_next(&self, transport: &StartedOf<H>) -> Delivery {
        let received = self.next(transport).await;
        self.settle(transport, received.receipt, Settlement::Complete).await;
        received.delivery
    }

    /// Receives one delivery, which must have this id, and completes it.
    pub(crate) async fn complete_is(&self, transport: &StartedOf<H>, id: &str) -> Delivery {
        let received = self.next_is(transport, id).await;
        self.settle(transport, received.receipt, Settlement::Complete).await;
        received.delivery
    }

    /// Receives and completes this many. Returns their ids, sorted as text.
    pub(crate) async fn complete_ids(&self, transport: &StartedOf<H>, count: usize) -> Vec<String> {
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(self.complete_next(transport).await.id().to_owned());
        }
        ids.sort();
        ids
    }
}
