//! A transport in two hands, the consumer's and the test's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use redrive::{
    Capabilities, Delivery, Needs, Publisher, Received, SettleError, Settlement, Transport, TransportError,
};

/// A transport that the test holds too, of which the consumer may believe something else, and which remembers what was
/// asked of it.
#[derive(Debug)]
pub struct Shared<T> {
    inner: Arc<T>,
    said: fn(&mut Capabilities),
    said_once_started: fn(&mut Capabilities),
    started: AtomicBool,
    needs: Arc<Mutex<Needs>>,
    narrowed: Arc<Mutex<Vec<Option<u32>>>>,
    cannot_narrow: bool,
}

impl<T> Shared<T> {
    /// The transport as it is.
    pub fn new(transport: Arc<T>) -> Self {
        Self::saying(transport, |_| {})
    }

    /// The transport with other capabilities than it has.
    pub fn saying(transport: Arc<T>, said: fn(&mut Capabilities)) -> Self {
        Self {
            inner: transport,
            said,
            said_once_started: |_| {},
            started: AtomicBool::new(false),
            needs: Arc::default(),
            narrowed: Arc::default(),
            cannot_narrow: false,
        }
    }

    /// With other capabilities from its start on.
    #[must_use]
    pub fn saying_once_started(self, said_once_started: fn(&mut Capabilities)) -> Self {
        Self { said_once_started, ..self }
    }

    /// Hands out as many as before whatever it is asked.
    #[must_use]
    pub fn that_cannot_narrow(self) -> Self {
        Self { cannot_narrow: true, ..self }
    }

    /// Notes there how many it was asked to hold at most.
    #[must_use]
    pub fn noting(self, narrowed: Arc<Mutex<Vec<Option<u32>>>>) -> Self {
        Self { narrowed, ..self }
    }

    /// What the consumer asks of it, once it has started.
    #[must_use]
    pub fn needs(&self) -> Arc<Mutex<Needs>> {
        Arc::clone(&self.needs)
    }
}

impl<T: Transport> Transport for Shared<T> {
    type Receipt = T::Receipt;

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.inner.capabilities();
        (self.said)(&mut capabilities);
        if self.started.load(Ordering::SeqCst) {
            (self.said_once_started)(&mut capabilities);
        }
        capabilities
    }

    fn publisher(&self) -> Publisher {
        self.inner.publisher()
    }

    async fn start(&self, needs: &Needs) -> Result<(), TransportError> {
        needs.clone_into(&mut self.needs.lock().unwrap_or_else(PoisonError::into_inner));
        self.inner.start(needs).await?;
        self.started.store(true, Ordering::SeqCst);
        Ok(())
    }

    async fn receive(&self) -> Result<Option<Received<T::Receipt>>, TransportError> {
        self.inner.receive().await
    }

    async fn settle(
        &self,
        receipt: T::Receipt,
        settlement: Settlement,
    ) -> Result<(), SettleError<T::Receipt>> {
        self.inner.settle(receipt, settlement).await
    }

    async fn pause(&self) -> Result<(), TransportError> {
        self.inner.pause().await
    }

    async fn resume(&self) -> Result<(), TransportError> {
        self.inner.resume().await
    }

    fn narrow(&self, most: Option<u32>) {
        self.narrowed.lock().unwrap_or_else(PoisonError::into_inner).push(most);
        if !self.cannot_narrow {
            self.inner.narrow(most);
        }
    }

    fn recovered(&self) -> impl Future<Output = ()> + Send {
        self.inner.recovered()
    }

    fn lost(&self, receipt: &T::Receipt) -> impl Future<Output = ()> + Send + 'static {
        self.inner.lost(receipt)
    }

    fn since_interruption(&self) -> Option<Duration> {
        self.inner.since_interruption()
    }

    fn unreceived(&self) -> Option<Vec<Delivery>> {
        self.inner.unreceived()
    }

    async fn close(&self) {
        self.inner.close().await;
    }

    fn now(&self) -> SystemTime {
        self.inner.now()
    }
}
