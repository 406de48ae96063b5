//! The seam for metrics, and for whatever wants to watch.

use std::time::Duration;

use crate::delivery::Delivery;
use crate::disposition::Disposition;
use crate::transport::TransportError;

/// Is told everything that happens in a consumer, as it happens, from the tasks where it happens: it must be quick, and
/// must not block. Its panic is logged, and nothing else comes of it. Any `Fn(&Event<'_>)` is one.
///
/// ```
/// use redrive_core::{Event, Observer};
///
/// fn watch(event: &Event<'_>) {
///     if let Event::Settled { delivery, disposition, .. } = event {
///         println!("{} {}", delivery.id(), disposition.name());
///     }
/// }
/// # fn is_observer(_: impl Observer) {} is_observer(watch);
/// ```
pub trait Observer: Send + Sync + 'static {
    /// This happened.
    fn observe(&self, event: &Event<'_>);
}

impl<F: Fn(&Event<'_>) + Send + Sync + 'static> Observer for F {
    fn observe(&self, event: &Event<'_>) {
        self(event);
    }
}

/// What happens in a consumer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The consumer takes messages.
    Started {
        /// From this queue.
        queue: &'a str,
    },
    /// A delivery goes into the layers.
    Received {
        /// The delivery.
        delivery: &'a Delivery,
    },
    /// The layers came to a decision; it is about to be carried out.
    Decided {
        /// The delivery.
        delivery: &'a Delivery,
        /// The decision.
        disposition: &'a Disposition,
        /// How long layers and handler took.
        elapsed: Duration,
    },
    /// A decision was carried out.
    Settled {
        /// The delivery.
        delivery: &'a Delivery,
        /// The decision.
        disposition: &'a Disposition,
    },
    /// A delivery was settled without being handled, because it had been settled before.
    Deduplicated {
        /// The delivery.
        delivery: &'a Delivery,
    },
    /// A settlement failed.
    NotSettled {
        /// The delivery.
        delivery: &'a Delivery,
        /// What the transport says.
        error: &'a TransportError,
        /// True when the delivery is still in flight, and the settlement is tried again; false when it comes again.
        held: bool,
    },
    /// A delivery is no longer in flight, and comes again, uncharged: its lock ran out, or its connection was lost. Where that
    /// was told while the handler ran, the handler was dropped; else what it decided was not carried out, or is not known to
    /// be ([`NotSettled`](Self::NotSettled) was told before).
    Lost {
        /// The delivery.
        delivery: &'a Delivery,
    },
    /// A delivery arrived that was handed out before without coming to an end: a process may have died of it. From now on
    /// deliveries are handled one at a time, with nothing else in flight.
    IsolationBegan {
        /// The first of them.
        delivery: &'a Delivery,
    },
    /// Such a delivery is about to be handled, alone. Should the process die before anything else is told of it, this
    /// message is the reason.
    Suspect {
        /// The delivery.
        delivery: &'a Delivery,
    },
    /// A delivery arrived that nobody had in flight before: deliveries are handled side by side again.
    IsolationEnded {
        /// How many suspects came to an end.
        suspects: u64,
    },
    /// The consumer takes no more messages, because copies cannot be stored. Those in flight are tried again.
    IntakePaused,
    /// The consumer takes messages again.
    IntakeResumed,
    /// The consumer has ended.
    Stopped,
}
