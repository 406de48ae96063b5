//! A transport that was opened, for tests.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redrive_core::{
    Facts, Needs, OpenError, ReceiptOf, Received, Receiver, SettleError, Settlement, Signal, Signals,
    Transport, TransportError,
};

/// A transport that was opened and takes deliveries: the transport, its receiver and what it told, in one hand. For tests
/// that do without a consumer; all that the transport itself can do, this can do too.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use redrive_core::{Message, Needs, Settlement, Transport};
/// use redrive_memory::Memory;
/// use redrive_testkit::Started;
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
    /// All that may be asked for.
    limit: u32,
    told: Arc<Mutex<Told>>,
}

#[derive(Default)]
struct Told {
    facts: Option<Facts>,
    interruptions: usize,
}

impl<T: Transport> Started<T> {
    /// Opens the transport and lets it take as many deliveries as the needs say: any number where they say none.
    ///
    /// # Errors
    ///
    /// As [`Transport::open`] and [`Receiver::set_limit`].
    pub async fn open(transport: T, needs: &Needs) -> Result<Self, OpenError> {
        let opened = Self::open_only(transport, needs).await?;
        opened.resume().await?;
        Ok(opened)
    }

    /// Opens the transport; it takes no deliveries yet.
    ///
    /// # Errors
    ///
    /// As [`Transport::open`].
    pub async fn open_only(transport: T, needs: &Needs) -> Result<Self, OpenError> {
        let told = Arc::new(Mutex::new(Told::default()));
        let listener = Arc::clone(&told);
        let signals = Signals::to(move |signal| {
            let mut told = lock(&listener);
            match signal {
                Signal::FactsChanged(facts) => told.facts = Some(facts),
                Signal::Interrupted { .. } => told.interruptions += 1,
                _ => {}
            }
        });
        let (receiver, facts) = transport.open(needs, signals).await?;
        lock(&told).facts.get_or_insert(facts);
        let limit = if needs.prefetch == 0 { u32::MAX } else { needs.prefetch };
        Ok(Self { transport, receiver, limit, told })
    }

    /// What is known of the broker now.
    #[must_use]
    pub fn facts(&self) -> Facts {
        lock(&self.told).facts.clone().unwrap_or_else(|| Facts::new("unknown"))
    }

    /// How often the transport told that deliveries in flight were lost.
    #[must_use]
    pub fn interruptions(&self) -> usize {
        lock(&self.told).interruptions
    }

    /// The receiver.
    #[must_use]
    pub fn receiver(&self) -> &T::Receiver {
        &self.receiver
    }

    /// The next delivery; `None`: there is none to come.
    ///
    /// # Errors
    ///
    /// As [`Receiver::receive`].
    pub async fn receive(&self) -> Result<Option<Received<ReceiptOf<T>>>, TransportError> {
        let mut batch = VecDeque::new();
        self.receiver.receive(&mut batch, 1).await?;
        Ok(batch.pop_front())
    }

    /// Carries a settlement out.
    ///
    /// # Errors
    ///
    /// As [`Receiver::settle`].
    pub async fn settle(
        &self,
        receipt: ReceiptOf<T>,
        settlement: Settlement,
    ) -> Result<(), SettleError<ReceiptOf<T>>> {
        self.receiver.settle(receipt, settlement).await
    }

    /// Sets how many may be in flight.
    ///
    /// # Errors
    ///
    /// As [`Receiver::set_limit`].
    pub async fn set_limit(&self, limit: u32) -> Result<(), TransportError> {
        self.receiver.set_limit(limit).await
    }

    /// Takes no more: a limit of 0.
    ///
    /// # Errors
    ///
    /// As [`Receiver::set_limit`].
    pub async fn pause(&self) -> Result<(), TransportError> {
        self.set_limit(0).await
    }

    /// Takes as many as at first.
    ///
    /// # Errors
    ///
    /// As [`Receiver::set_limit`].
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

fn lock(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}
