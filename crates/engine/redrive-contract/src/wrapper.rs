//! Common parts of the transports that wrap another one.

use std::collections::VecDeque;

use redrive_core::TransportError;
use redrive_core::transport::{Received, Receiver};

/// Implements [`Transport`](redrive_core::Transport) for a struct with a transport `inner`: forwards every call to it, and wraps
/// the receiver.
macro_rules! forward_transport {
    ($wrapper:ident, $receiver:ident, |$this:ident, $inner:ident| $wrapped:expr) => {
        impl<T: redrive_core::Transport> redrive_core::Transport for $wrapper<T> {
            type Receiver = $receiver<T::Receiver>;

            fn queue(&self) -> &str {
                self.inner.queue()
            }

            fn publisher(&self) -> redrive_core::Publisher {
                self.inner.publisher()
            }

            async fn open(
                &self,
                needs: &redrive_core::transport::Needs,
                signals: redrive_core::transport::Signals,
            ) -> Result<(Self::Receiver, redrive_core::transport::Facts), redrive_core::transport::OpenError>
            {
                let ($inner, facts) = self.inner.open(needs, signals).await?;
                let $this = self;
                Ok(($wrapped, facts))
            }

            async fn close(&self) {
                self.inner.close().await;
            }

            fn outline(&self, needs: &redrive_core::transport::Needs) -> redrive_core::transport::Outline {
                self.inner.outline(needs)
            }

            async fn preflight(
                &self,
                needs: &redrive_core::transport::Needs,
            ) -> Result<redrive_core::transport::Outline, redrive_core::TransportError> {
                self.inner.preflight(needs).await
            }

            fn now(&self) -> std::time::SystemTime {
                self.inner.now()
            }
        }
    };
}
pub(crate) use forward_transport;

/// Receives from the wrapped receiver, and wraps every delivery. Cancel safe.
pub(crate) async fn receive_wrapped<R: Receiver, W>(
    inner: &R,
    batch: &mut VecDeque<Received<W>>,
    most: usize,
    wrap: impl FnMut(Received<R::Receipt>) -> Received<W>,
) -> Result<usize, TransportError> {
    let mut received = VecDeque::new();
    let count = inner.receive(&mut received, most).await?;
    batch.extend(received.into_iter().map(wrap));
    Ok(count)
}
