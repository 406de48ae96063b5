//! Common parts of the transports that wrap another one.

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
