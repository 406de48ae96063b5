//! What a transport tells beside the deliveries.

use std::fmt;
use std::sync::Arc;

use super::{Facts, TransportError};
use crate::delivery::Delivery;

/// What happens beside the deliveries.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Signal {
    /// Deliveries in flight were lost with their connection (or their locks) though this process lives on, and come again from
    /// now on, with a higher count for which nobody is to blame. Signalled before the first of them can be received.
    Interrupted {
        /// What was handed out and never received: it was thrown away, and comes again. Left empty by a transport whose
        /// deliveries have [numbers of the broker](Delivery::with_broker_number); all others count the interruptions with
        /// [`Delivery::after_interruptions`].
        unreceived: Vec<Delivery>,
    },
    /// What could not be stored is worth trying again at once, for example because a broker that was out of memory takes
    /// messages again. The consumer tries again by and by in any case.
    Recovered,
    /// The broker is not what it was, for example another version after a restart.
    FactsChanged(Facts),
    /// The transport cannot receive at the moment, for example because the connection was lost, and tries again by itself. It may
    /// be sent again with every attempt that fails.
    Disconnected(TransportError),
    /// The transport can receive, for the first time or again. It may be sent more than once.
    Connected,
}

/// Where a transport tells what happens beside the deliveries. Clones lead to the same place.
///
/// The order of calls is the order of events: what is told before a delivery can be received is known before it is
/// received. Sending never blocks for long, and never fails.
#[derive(Clone)]
pub struct Signals(Arc<dyn Fn(Signal) + Send + Sync>);

impl Signals {
    /// Calls this function for each signal. It must not block, and must not call the transport.
    #[must_use]
    pub fn to(listener: impl Fn(Signal) + Send + Sync + 'static) -> Self {
        Self(Arc::new(listener))
    }

    /// Nobody listens.
    #[must_use]
    pub fn ignored() -> Self {
        Self::to(drop)
    }

    /// Tells the listener.
    pub fn send(&self, signal: Signal) {
        (self.0)(signal);
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signals").finish_non_exhaustive()
    }
}
