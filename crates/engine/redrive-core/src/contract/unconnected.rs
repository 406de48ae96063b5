//! A transport without a broker, to explain a consumer that is not run.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;

use super::{Outline, Received, Receiver, Signals, Transport};
use crate::facts::Facts;
use crate::needs::Needs;
use crate::publisher::{Outgoing, Publish, Publisher};
use crate::settlement::Settlement;
use crate::transport_error::{OpenError, SettleError, TransportError, TransportErrorKind};

/// A transport that exists only as its options and is connected to nothing. A consumer of it can be
/// explained, and does not start. Made by the options of a transport (`unconnected`).
pub struct Unconnected {
    queue: Arc<str>,
    outline: Box<dyn Fn(&Needs) -> Outline + Send + Sync>,
}

impl Unconnected {
    /// Creates the transport of `queue` with this outline.
    #[must_use]
    pub fn new(
        queue: impl Into<Arc<str>>,
        outline: impl Fn(&Needs) -> Outline + Send + Sync + 'static,
    ) -> Self {
        Self { queue: queue.into(), outline: Box::new(outline) }
    }
}

// Left out of the compiler's suggestions: it does not help a user who forgot to connect.
#[diagnostic::do_not_recommend]
impl Transport for Unconnected {
    type Receiver = NoReceiver;

    fn queue(&self) -> &str {
        &self.queue
    }

    async fn open(&self, _needs: &Needs, _signals: Signals) -> Result<(NoReceiver, Facts), OpenError> {
        Err(unconnected(&self.queue).into())
    }

    fn publisher(&self) -> Publisher {
        Publisher::new(NoPublisher { queue: Arc::clone(&self.queue) })
    }

    async fn close(&self) {}

    fn outline(&self, needs: &Needs) -> Outline {
        (self.outline)(needs)
    }

    async fn preflight(&self, _needs: &Needs) -> Result<Outline, TransportError> {
        Err(unconnected(&self.queue))
    }

    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }
}

fn unconnected(queue: &str) -> TransportError {
    let message = format!(
        "the transport of `{queue}` is only there to be explained: use `connect` in place of `unconnected`"
    );
    TransportError::new(TransportErrorKind::Unsupported, message)
}

impl fmt::Debug for Unconnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unconnected").field("queue", &self.queue).finish_non_exhaustive()
    }
}

/// The receiver of [`Unconnected`], which never opens: there is none.
#[derive(Debug)]
pub enum NoReceiver {}

impl Receiver for NoReceiver {
    type Receipt = ();

    async fn receive(&self) -> Result<Option<Received<()>>, TransportError> {
        match *self {}
    }

    async fn settle(&self, _: (), _: Settlement) -> Result<(), SettleError<()>> {
        match *self {}
    }

    async fn set_limit(&self, _: u32) -> Result<(), TransportError> {
        match *self {}
    }
}

struct NoPublisher {
    queue: Arc<str>,
}

#[async_trait]
impl Publish for NoPublisher {
    fn destination(&self) -> &str {
        &self.queue
    }

    fn to(&self, queue: &str) -> Arc<dyn Publish> {
        Arc::new(Self { queue: queue.into() })
    }

    async fn publish(&self, messages: Vec<Outgoing>) -> Vec<Result<(), TransportError>> {
        messages.iter().map(|_| Err(unconnected(&self.queue))).collect()
    }

    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }
}
