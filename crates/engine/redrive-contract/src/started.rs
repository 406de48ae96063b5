//! A transport that was opened, for tests.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use redrive_core::transport::{
    Facts, Needs, OpenError, Planning, ReceiptOf, Received, Receiver, SettleError, Settlement, Signal,
    Signals,
};
use redrive_core::{Delivery, Disposition, Transport, TransportError, TransportErrorKind};
use tokio::sync::watch;

/// A transport that was opened and takes deliveries, together with its receiver and its signals. For tests without a consumer; it
/// dereferences to the transport.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use redrive_core::{Message, Transport};
/// use redrive_core::transport::{Needs, Settlement};
/// use redrive_memory::Memory;
/// use redrive_contract::Started;
///
/// let orders = Started::open(Memory::new("orders"), &Needs::none()).await?;
/// orders.publish(Message::new("one").with_id("order-1")).await?;
/// let received = orders.receive().await?.unwrap();
/// orders.settle(received.receipt, Settlement::Complete).await.map_err(|refused| refused.error)?;
/// orders.close().await;
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
/// ```
pub struct Started<T: Transport> {
    transport: T,
    receiver: T::Receiver,
    /// Maximum limit that may be set.
    limit: u32,
    signalled: watch::Sender<Signalled>,
}

#[derive(Default)]
struct Signalled {
    facts: Option<Facts>,
    interruptions: usize,
    disconnected: Option<TransportError>,
}

impl<T: Transport> Started<T> {
    /// Opens the transport and sets the limit of deliveries to the prefetch of the needs. Default: any number.
    ///
    /// # Errors
    ///
    /// The same as [`Transport::open`] and [`Receiver::set_limit`].
    pub async fn open(transport: T, needs: &Needs) -> Result<Self, OpenError> {
        let opened = Self::open_only(transport, needs).await?;
        opened.resume().await?;
        Ok(opened)
    }

    /// Opens the transport; it takes no deliveries yet.
    ///
    /// # Errors
    ///
    /// The same as [`Transport::open`].
    pub async fn open_only(transport: T, needs: &Needs) -> Result<Self, OpenError> {
        let signalled = watch::Sender::new(Signalled::default());
        let listener = signalled.clone();
        let signals = Signals::to(move |signal| {
            listener.send_modify(|signalled| match signal {
                Signal::FactsChanged(facts) => signalled.facts = Some(facts),
                Signal::Interrupted { .. } => signalled.interruptions += 1,
                Signal::Disconnected(error) => signalled.disconnected = Some(error),
                Signal::Connected | Signal::PartlyConnected(_) => signalled.disconnected = None,
                _ => {}
            });
        });
        let (receiver, facts) = transport.open(needs, signals).await?;
        signalled.send_modify(|signalled| {
            signalled.facts.get_or_insert(facts);
        });
        let limit = if needs.prefetch == 0 { u32::MAX } else { needs.prefetch };
        Ok(Self { transport, receiver, limit, signalled })
    }

    /// Returns the current facts of the broker.
    #[must_use]
    pub fn facts(&self) -> Facts {
        self.signalled.borrow().facts.clone().unwrap_or_else(|| Facts::new("unknown"))
    }

    /// Returns the settlement that the core plans.
    #[must_use]
    pub fn plan(&self, delivery: &Delivery, disposition: Disposition) -> Settlement {
        let facts = self.facts();
        Settlement::plan(delivery, disposition, &Planning::new(self.now(), &facts))
    }

    /// Returns the next delivery.
    ///
    /// # Panics
    ///
    /// When none comes in this time.
    pub async fn next_within(&self, time: Duration) -> Received<ReceiptOf<T>> {
        let received = tokio::time::timeout(time, self.receive()).await.expect("a delivery in time");
        received.expect("receiving goes on").expect("there is one")
    }

    /// Returns how often the transport signalled that deliveries in flight were lost.
    #[must_use]
    pub fn interruptions(&self) -> usize {
        self.signalled.borrow().interruptions
    }

    /// Resolves unless the transport signalled last that it is [disconnected](Signal::Disconnected). Cancel safe.
    pub async fn connected(&self) {
        // The sender is our own.
        let _ = self.signalled.subscribe().wait_for(|signalled| signalled.disconnected.is_none()).await;
    }

    /// Resolves with the error once the transport signalled last that it is [disconnected](Signal::Disconnected) by an error of
    /// this kind. Cancel safe.
    pub async fn disconnected_by(&self, kind: TransportErrorKind) -> TransportError {
        let is_it =
            |signalled: &Signalled| signalled.disconnected.as_ref().is_some_and(|error| error.kind() == kind);
        let mut signalled = self.signalled.subscribe();
        match signalled.wait_for(is_it).await.map(|signalled| signalled.disconnected.clone()) {
            Ok(Some(error)) => error,
            // The sender is our own.
            _ => std::future::pending().await,
        }
    }

    /// Returns the receiver.
    #[must_use]
    pub fn receiver(&self) -> &T::Receiver {
        &self.receiver
    }

    /// Receives the next delivery; `None`: there is none to come.
    ///
    /// # Errors
    ///
    /// The same as [`Receiver::receive`].
    pub async fn receive(&self) -> Result<Option<Received<ReceiptOf<T>>>, TransportError> {
        self.receiver.receive().await
    }

    /// Carries a settlement out.
    ///
    /// # Errors
    ///
    /// The same as [`Receiver::settle`].
    pub async fn settle(
        &self,
        receipt: ReceiptOf<T>,
        settlement: Settlement,
    ) -> Result<(), SettleError<ReceiptOf<T>>> {
        self.receiver.settle(receipt, settlement).await
    }

    /// Sets how many deliveries may be in flight.
    ///
    /// # Errors
    ///
    /// The same as [`Receiver::set_limit`].
    pub async fn set_limit(&self, limit: u32) -> Result<(), TransportError> {
        self.receiver.set_limit(limit).await
    }

    /// Takes no more deliveries: sets a limit of 0.
    ///
    /// # Errors
    ///
    /// The same as [`Receiver::set_limit`].
    pub async fn pause(&self) -> Result<(), TransportError> {
        self.set_limit(0).await
    }

    /// Restores the limit from the start.
    ///
    /// # Errors
    ///
    /// The same as [`Receiver::set_limit`].
    pub async fn resume(&self) -> Result<(), TransportError> {
        self.set_limit(self.limit).await
    }

    /// Resolves when this delivery is lost.
    pub fn lost(&self, receipt: &ReceiptOf<T>) -> impl Future<Output = ()> + Send + 'static {
        self.receiver.lost(receipt)
    }
}

impl<T: Transport> Deref for Started<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.transport
    }
}

impl<T: Transport + fmt::Debug> fmt::Debug for Started<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Started").field("transport", &self.transport).finish_non_exhaustive()
    }
}
