//! Events of a transport other than deliveries.

use std::fmt;
use std::sync::Arc;

use crate::delivery::Delivery;
use crate::facts::Facts;
use crate::transport_error::TransportError;

/// An event other than a delivery.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Signal {
    /// Deliveries in flight were lost with their connection (or their locks) although this process lives on. From now on they come
    /// again, with a higher count that is nobody's fault. Sent before the first of them can be received.
    Interrupted {
        /// Deliveries that were handed out and never received: the transport dropped them, and they are redelivered. Left empty by a
        /// transport whose deliveries have [numbers of the broker](crate::transport::DeliveryBuilder::broker_number); all others count the
        /// interruptions with [`DeliveryBuilder::interruptions`](crate::transport::DeliveryBuilder::interruptions).
        unreceived: Vec<Delivery>,
    },
    /// A copy that could not be stored is worth another try now, for example because a broker that was out of memory accepts
    /// messages again. The consumer also tries again without this signal.
    Recovered,
    /// The facts of the broker changed, for example because it restarted with another version.
    FactsChanged(Facts),
    /// The transport cannot receive at the moment, for example because the connection was lost or the broker refuses, and tries again
    /// by itself. It may send this again after every failed try. Before the first [`Connected`](Self::Connected), a refusal that
    /// waiting does not cure (`Topology`, `Unauthorized`, `Unsupported`) ends the consumer; later it never does.
    Disconnected(TransportError),
    /// The transport receives from several queues, and cannot receive from one of them, which the error names; it tries again by
    /// itself. It may be sent after every failed try. Ends a [`Disconnected`](Self::Disconnected), and never ends the consumer.
    PartlyConnected(TransportError),
    /// The transport can receive, from all of its queues, for the first time or again. It must follow every
    /// [`Disconnected`](Self::Disconnected) and every [`PartlyConnected`](Self::PartlyConnected) that is over, also if nothing is
    /// delivered then: until it is sent, the consumer is interrupted, however much it receives, and
    /// `Consumer::give_up_after` ends it. It may be sent more than once.
    Connected,
}

/// Sends the events of a transport that are not deliveries. Clones send to the same listener.
///
/// Calls are in the order of events: a signal that is sent before a delivery can be received is processed before that delivery.
/// Sending never blocks for long, and never fails.
#[derive(Clone)]
pub struct Signals(Arc<dyn Fn(Signal) + Send + Sync>);

impl Signals {
    /// Creates signals that call this function. It must not block, and must not call the transport.
    #[must_use]
    pub fn to(listener: impl Fn(Signal) + Send + Sync + 'static) -> Self {
        Self(Arc::new(listener))
    }

    /// Creates signals that are ignored.
    #[must_use]
    pub fn ignored() -> Self {
        Self::to(drop)
    }

    /// Sends whether the transport can receive.
    pub fn send_connection(&self, connection: Result<(), TransportError>) {
        self.send(match connection {
            Ok(()) => Signal::Connected,
            Err(error) => Signal::Disconnected(error),
        });
    }

    /// Sends a signal to the listener.
    pub fn send(&self, signal: Signal) {
        (self.0)(signal);
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signals").finish_non_exhaustive()
    }
}
