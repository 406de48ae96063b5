//! A transport in two hands, the consumer's and the test's.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use redrive::transport::{
    Facts, Needs, OpenError, Received, Receiver, SettleError, Settlement, Signal, Signals,
};
use redrive::{Publisher, Transport, TransportError};

/// A transport that the test holds too, of which the consumer may believe something else, and which remembers what was
/// asked of it.
#[derive(Debug)]
pub struct Shared<T> {
    inner: Arc<T>,
    said: fn(&mut Facts),
    needs: Arc<Mutex<Needs>>,
    limits: Arc<Mutex<Vec<Option<u32>>>>,
    cannot_narrow: bool,
    never_opens: bool,
    voice: Voice,
}

/// Tells the consumer what the test wants told, as the transport would.
#[derive(Clone, Debug, Default)]
pub struct Voice(Arc<Mutex<Option<Signals>>>);

/// The receiver of a [`Shared`] transport.
#[derive(Debug)]
pub struct SharedReceiver<R> {
    inner: R,
    prefetch: u32,
    limits: Arc<Mutex<Vec<Option<u32>>>>,
    cannot_narrow: bool,
}

impl<T> Shared<T> {
    /// The transport as it is.
    pub fn new(transport: Arc<T>) -> Self {
        Self::saying(transport, |_| {})
    }

    /// The transport with other facts than it has.
    pub fn saying(transport: Arc<T>, said: fn(&mut Facts)) -> Self {
        let (needs, limits) = (Arc::default(), Arc::default());
        Self {
            inner: transport,
            said,
            needs,
            limits,
            cannot_narrow: false,
            never_opens: false,
            voice: Voice::default(),
        }
    }

    /// Hands out as many as before whatever limit it is given, unless that is 0.
    #[must_use]
    pub fn that_cannot_narrow(self) -> Self {
        Self { cannot_narrow: true, ..self }
    }

    /// Is still opening when the test ends.
    #[must_use]
    pub fn that_never_opens(self) -> Self {
        Self { never_opens: true, ..self }
    }

    /// Notes there each new limit; `None`: all that the needs say.
    #[must_use]
    pub fn noting(self, limits: Arc<Mutex<Vec<Option<u32>>>>) -> Self {
        Self { limits, ..self }
    }

    /// What tells its consumer of changes, once it was opened.
    #[must_use]
    pub fn voice(&self) -> Voice {
        self.voice.clone()
    }

    /// What the consumer asks of it, once it was opened.
    #[must_use]
    pub fn needs(&self) -> Arc<Mutex<Needs>> {
        Arc::clone(&self.needs)
    }
}

impl Voice {
    /// Tells it.
    ///
    /// # Panics
    ///
    /// Before the transport was opened.
    pub fn tell(&self, signal: Signal) {
        self.hold().as_ref().expect("it is open").send(signal);
    }

    /// Speaks to this consumer from now on. For other transports of tests.
    pub fn speak_to(&self, signals: Signals) {
        *self.hold() = Some(signals);
    }

    fn hold(&self) -> MutexGuard<'_, Option<Signals>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Transport> Transport for Shared<T> {
    type Receiver = SharedReceiver<T::Receiver>;

    fn queue(&self) -> &str {
        self.inner.queue()
    }

    fn publisher(&self) -> Publisher {
        self.inner.publisher()
    }

    async fn open(&self, needs: &Needs, signals: Signals) -> Result<(Self::Receiver, Facts), OpenError> {
        needs.clone_into(&mut self.needs.lock().unwrap_or_else(PoisonError::into_inner));
        if self.never_opens {
            std::future::pending::<()>().await;
        }
        let (inner, mut facts) = self.inner.open(needs, signals.clone()).await?;
        self.voice.speak_to(signals);
        (self.said)(&mut facts);
        needs.check(self.queue(), &facts)?;
        let (limits, cannot_narrow) = (Arc::clone(&self.limits), self.cannot_narrow);
        Ok((SharedReceiver { inner, prefetch: needs.prefetch, limits, cannot_narrow }, facts))
    }

    async fn close(&self) {
        self.inner.close().await;
    }

    fn now(&self) -> SystemTime {
        self.inner.now()
    }
}

impl<R: Receiver> Receiver for SharedReceiver<R> {
    type Receipt = R::Receipt;

    async fn receive(&self) -> Result<Option<Received<R::Receipt>>, TransportError> {
        self.inner.receive().await
    }

    async fn settle(
        &self,
        receipt: R::Receipt,
        settlement: Settlement,
    ) -> Result<(), SettleError<R::Receipt>> {
        self.inner.settle(receipt, settlement).await
    }

    async fn set_limit(&self, limit: u32) -> Result<(), TransportError> {
        let noted = Some(limit).filter(|&limit| limit < self.prefetch);
        {
            let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
            if limits.last() != Some(&noted) {
                limits.push(noted);
            }
        }
        self.inner.set_limit(if self.cannot_narrow && limit > 0 { self.prefetch } else { limit }).await
    }

    fn lost(&self, receipt: &R::Receipt) -> impl Future<Output = ()> + Send + 'static {
        self.inner.lost(receipt)
    }
}
