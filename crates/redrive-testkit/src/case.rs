//! One clause being examined: its bench, and the steps that clauses are made of.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redrive_core::{
    DEFAULT_HEADER_BUDGET, Delivery, Disposition, Failure, Message, Needs, Planning, Reason, Received,
    Settlement, Shelf, Transport, TransportError, TransportErrorKind,
};
use tokio::time::{sleep, timeout};

use crate::harness::{Bench, Harness, ReceiptOf, TransportOf};

/// How long anything may take to arrive: generous, since a broker may be busy or restarting.
pub(crate) const ARRIVAL: Duration = Duration::from_secs(30);
/// How long nothing must arrive where nothing may. Too short can only hide a fault, never invent one.
pub(crate) const QUIET: Duration = Duration::from_millis(200);
/// A wait that a test can wait for.
pub(crate) const SHORT: Duration = Duration::from_millis(100);
/// A wait that differs from [`SHORT`] by more than a broker's hesitation.
pub(crate) const LONG: Duration = Duration::from_millis(400);
/// A wait that no test waits for.
pub(crate) const FAR: Duration = Duration::from_secs(60);

/// One clause being examined. The clauses take it by reference; [`run`](crate::run) makes it.
pub struct Case<H: Harness> {
    pub(crate) harness: H,
    pub(crate) bench: H::Bench,
    transports: Mutex<Vec<Arc<TransportOf<H>>>>,
    does_not_apply: Mutex<Option<String>>,
}

impl<H: Harness> fmt::Debug for Case<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").finish_non_exhaustive()
    }
}

impl<H: Harness> Case<H> {
    pub(crate) fn new(harness: H, bench: H::Bench) -> Self {
        Self { harness, bench, transports: Mutex::default(), does_not_apply: Mutex::default() }
    }

    /// Why the clause turned out not to apply.
    pub(crate) fn reason_not_to_apply(&self) -> Option<String> {
        self.does_not_apply.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn does_not_apply(&self, reason: impl Into<String>) {
        *self.does_not_apply.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.into());
    }

    pub(crate) async fn close_all(&self) {
        let transports = std::mem::take(&mut *self.transports.lock().unwrap_or_else(PoisonError::into_inner));
        for transport in transports {
            // One that hangs here must not keep the others, nor the tidying.
            let _ = timeout(ARRIVAL, transport.close()).await;
        }
    }

    /// A transport on the bench's queue, started with [`needs`].
    pub(crate) async fn started(&self) -> Arc<TransportOf<H>> {
        self.started_with(needs()).await
    }

    pub(crate) async fn started_with(&self, needs: Needs) -> Arc<TransportOf<H>> {
        let transport = self.unstarted().await;
        transport.start(&needs).await.unwrap_or_else(|error| panic!("the transport does not start: {error}"));
        transport
    }

    pub(crate) async fn unstarted(&self) -> Arc<TransportOf<H>> {
        let transport = self.bench.transport().await;
        let transport =
            Arc::new(transport.unwrap_or_else(|error| panic!("the harness makes no transport: {error}")));
        self.transports.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&transport));
        transport
    }

    pub(crate) async fn publish(&self, message: Message) {
        self.bench
            .publish(message)
            .await
            .unwrap_or_else(|error| panic!("the harness does not publish: {error}"));
    }

    /// Publishes messages with these ids, in this order.
    pub(crate) async fn publish_ids(&self, ids: &[&str]) {
        for &id in ids {
            self.publish(Message::new(format!("body of {id}")).with_id(id)).await;
        }
    }

    /// Publishes messages with the ids `m0`, `m1`, … in this order; answers the ids, sorted as text.
    pub(crate) async fn publish_many(&self, count: usize) -> Vec<String> {
        let mut ids: Vec<String> = (0..count).map(|n| format!("m{n}")).collect();
        for id in &ids {
            self.publish(Message::new(format!("body of {id}")).with_id(id.clone())).await;
        }
        ids.sort();
        ids
    }

    pub(crate) async fn kill(&self, transport: &TransportOf<H>) {
        self.bench
            .kill(transport)
            .await
            .unwrap_or_else(|error| panic!("the harness does not kill the transport: {error}"));
    }

    /// The next delivery; fails when none comes in time.
    pub(crate) async fn next(&self, transport: &TransportOf<H>) -> Received<ReceiptOf<H>> {
        match timeout(ARRIVAL, transport.receive()).await {
            Ok(Ok(Some(received))) => received,
            Ok(Ok(None)) => panic!("`receive` answers that there is no more, and there should be a delivery"),
            Ok(Err(error)) => panic!("`receive` fails: {error}"),
            Err(_) => panic!("no delivery within {ARRIVAL:?}"),
        }
    }

    /// The next delivery, which must have this id.
    pub(crate) async fn next_is(&self, transport: &TransportOf<H>, id: &str) -> Received<ReceiptOf<H>> {
        let received = self.next(transport).await;
        assert_eq!(received.delivery.id(), id, "another message than expected came next");
        received
    }

    /// Receives until `receive` answers that there is no more, and answers what came.
    pub(crate) async fn drain(&self, transport: &TransportOf<H>) -> Vec<Received<ReceiptOf<H>>> {
        let mut all = Vec::new();
        loop {
            match timeout(ARRIVAL, transport.receive()).await {
                Ok(Ok(Some(received))) => all.push(received),
                Ok(Ok(None)) => return all,
                Ok(Err(error)) => panic!("`receive` fails: {error}"),
                Err(_) => panic!("`receive` does not answer that there is no more"),
            }
        }
    }

    /// Settles; fails when that fails.
    pub(crate) async fn settle(
        &self,
        transport: &TransportOf<H>,
        receipt: ReceiptOf<H>,
        settlement: Settlement,
    ) {
        let name = settlement.name();
        if let Err(refused) = self.try_settle(transport, receipt, settlement).await {
            panic!("`{name}` fails: {}", refused.error);
        }
    }

    /// Settles within the time that anything may take.
    pub(crate) async fn try_settle(
        &self,
        transport: &TransportOf<H>,
        receipt: ReceiptOf<H>,
        settlement: Settlement,
    ) -> Result<(), redrive_core::SettleError<ReceiptOf<H>>> {
        let name = settlement.name();
        timeout(ARRIVAL, transport.settle(receipt, settlement))
            .await
            .unwrap_or_else(|_| panic!("`{name}` does not end within {ARRIVAL:?}"))
    }

    /// Settles, which must be answered with [`TransportErrorKind::Lost`] and without a receipt.
    pub(crate) async fn settle_is_lost(
        &self,
        transport: &TransportOf<H>,
        receipt: ReceiptOf<H>,
        settlement: Settlement,
    ) {
        let name = settlement.name();
        match self.try_settle(transport, receipt, settlement).await {
            Ok(()) => panic!("`{name}` claims to have settled a delivery that was lost"),
            Err(refused) => {
                assert_eq!(refused.error.kind(), TransportErrorKind::Lost, "{}", refused.error);
                assert!(refused.receipt.is_none(), "a lost delivery's receipt is given back");
            }
        }
    }

    /// Settles, which must be refused with the receipt given back; answers both.
    pub(crate) async fn settle_is_refused(
        &self,
        transport: &TransportOf<H>,
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

    /// Receives one and completes it.
    pub(crate) async fn complete_next(&self, transport: &TransportOf<H>) -> Delivery {
        let received = self.next(transport).await;
        self.settle(transport, received.receipt, Settlement::Complete).await;
        received.delivery
    }

    /// Receives one, which must have this id, and completes it.
    pub(crate) async fn complete_is(&self, transport: &TransportOf<H>, id: &str) -> Delivery {
        let received = self.next_is(transport, id).await;
        self.settle(transport, received.receipt, Settlement::Complete).await;
        received.delivery
    }

    /// Receives and completes this many; answers their ids, sorted as text.
    pub(crate) async fn complete_ids(&self, transport: &TransportOf<H>, count: usize) -> Vec<String> {
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(self.complete_next(transport).await.id().to_owned());
        }
        ids.sort();
        ids
    }

    /// Nothing is left: what is published now comes next and last.
    pub(crate) async fn nothing_is_left(&self, transport: &TransportOf<H>) {
        const SENTINEL: &str = "published-last";
        self.publish_ids(&[SENTINEL]).await;
        let received = self.next(transport).await;
        assert_eq!(received.delivery.id(), SENTINEL, "a message came that should be gone");
        self.settle(transport, received.receipt, Settlement::Complete).await;
        self.nothing_comes(transport).await;
        // A broker may count a little late.
        let emptied = self.eventually("the queue's depth is 0", async || {
            let depth = self.bench.depth().await;
            depth.unwrap_or_else(|error| panic!("the harness does not tell the depth: {error}")).unwrap_or(0)
                == 0
        });
        emptied.await;
    }

    /// Nothing comes for a moment.
    pub(crate) async fn nothing_comes(&self, transport: &TransportOf<H>) {
        match timeout(QUIET, transport.receive()).await {
            Err(_) => {}
            Ok(Ok(Some(received))) => {
                panic!("message `{}` came, and none should", received.delivery.id());
            }
            Ok(Ok(None)) => panic!("`receive` answers that there is no more, in the middle of its life"),
            Ok(Err(error)) => panic!("`receive` fails: {error}"),
        }
    }

    /// What rests on the shelf, once this many rest there; fails when there are never so many, or more.
    pub(crate) async fn on_shelf(&self, shelf: Shelf, count: usize) -> Vec<Message> {
        let what = format!("{count} messages rest on the {shelf} shelf");
        let found = Mutex::new(Vec::new());
        let filled = self.eventually(&what, async || {
            let messages = self.read_shelf(shelf).await;
            assert!(messages.len() <= count, "{} messages rest on the {shelf} shelf", messages.len());
            let enough = messages.len() == count;
            *found.lock().unwrap_or_else(PoisonError::into_inner) = messages;
            enough
        });
        filled.await;
        found.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn read_shelf(&self, shelf: Shelf) -> Vec<Message> {
        let messages = self.bench.shelf(shelf).await;
        messages.unwrap_or_else(|error| panic!("the harness does not read the {shelf} shelf: {error}"))
    }

    /// Asks again and again until it is so; fails when it never is.
    pub(crate) async fn eventually(&self, what: &str, so: impl AsyncFn() -> bool) {
        let asked = timeout(ARRIVAL, async {
            while !so().await {
                sleep(Duration::from_millis(20)).await;
            }
        });
        asked.await.unwrap_or_else(|_| panic!("not within {ARRIVAL:?}: {what}"));
    }
}

/// What nearly all clauses start with: their waits, and more deliveries at once than any of them holds.
pub(crate) fn needs() -> Needs {
    let mut needs = Needs::none();
    needs.waits.extend([SHORT, LONG, FAR]);
    needs.prefetch = 300;
    needs
}

/// What the core would have the transport do.
pub(crate) fn plan<T: Transport>(transport: &T, delivery: &Delivery, disposition: Disposition) -> Settlement {
    let capabilities = transport.capabilities();
    let planning =
        Planning { now: transport.now(), capabilities: &capabilities, header_budget: DEFAULT_HEADER_BUDGET };
    Settlement::plan(delivery, disposition, &planning)
}

/// A retry, as the core plans it.
pub(crate) fn retry<T: Transport>(transport: &T, delivery: &Delivery, wait: Duration) -> Settlement {
    plan(transport, delivery, Disposition::Retry(wait, failure()))
}

/// A move onto a shelf, as the core plans it.
pub(crate) fn shelve<T: Transport>(transport: &T, delivery: &Delivery, shelf: Shelf) -> Settlement {
    plan(
        transport,
        delivery,
        match shelf {
            Shelf::Parking => Disposition::Park(failure()),
            _ => Disposition::DeadLetter(failure()),
        },
    )
}

pub(crate) fn failure() -> Failure {
    Failure::new(Reason::RetryableError, "the warehouse does not answer")
}
