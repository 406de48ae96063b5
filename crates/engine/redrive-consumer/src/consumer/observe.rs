//! The hook for metrics and for anything else that observes a consumer.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redrive_core::{Delivery, Disposition, TransportError, panic};

use super::ConsumerError;

/// Receives every event of a consumer, when and where it happens: `observe` runs on the consumer's tasks, so it must be quick and
/// must not block. A panic in it is logged and has no other effect. Any `Fn(&Event<'_>)` is an observer.
///
/// ```
/// use redrive_consumer::{Event, Observer};
///
/// fn watch(event: &Event<'_>) {
///     if let Event::Settled { delivery, disposition, .. } = event {
///         println!("{} {}", delivery.id(), disposition.name());
///     }
/// }
/// # fn is_observer(_: impl Observer) {} is_observer(watch);
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Handles one event.
    fn observe(&self, event: &Event<'_>);
}

impl<F: Fn(&Event<'_>) + Send + Sync + 'static> Observer for F {
    fn observe(&self, event: &Event<'_>) {
        self(event);
    }
}

/// An event of a consumer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The consumer takes messages.
    Started {
        /// The queue.
        queue: &'a str,
        /// The name of the broker's system, as OpenTelemetry writes it: for example `rabbitmq`.
        system: &'static str,
    },
    /// A delivery enters the layers. One [`Settled`](Self::Settled) or [`Lost`](Self::Lost) follows, unless the process ends or the
    /// handler blocks its thread for good.
    Received {
        /// The delivery.
        delivery: &'a Delivery,
    },
    /// The layers have decided; the decision is about to be carried out.
    Decided {
        /// The delivery.
        delivery: &'a Delivery,
        /// The decision.
        disposition: &'a Disposition,
        /// Time that the layers and the handler took.
        elapsed: Duration,
    },
    /// A decision was carried out.
    Settled {
        /// The delivery.
        delivery: &'a Delivery,
        /// The decision.
        disposition: &'a Disposition,
        /// When, by the transport's clock.
        at: SystemTime,
        /// True if [`Received`](Self::Received) was reported before; false if the delivery was given back before that.
        handled: bool,
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
        /// The transport's error.
        error: &'a TransportError,
        /// True if the delivery is still in flight and the settlement is tried again; false if the broker delivers it again.
        held: bool,
    },
    /// A delivery is no longer in flight, and is redelivered without being charged: its lock expired, or its connection was lost. If
    /// the transport reported that while the handler ran, the handler was dropped. Otherwise the decision was not carried out, or
    /// it is not known whether it was ([`NotSettled`](Self::NotSettled) was reported before).
    Lost {
        /// The delivery.
        delivery: &'a Delivery,
        /// True if [`Received`](Self::Received) was reported before.
        handled: bool,
    },
    /// A delivery arrived that was handed out before without coming to an end: a process may have died of it. From now on
    /// deliveries are handled one at a time, with nothing else in flight.
    IsolationBegan {
        /// The first of them.
        delivery: &'a Delivery,
    },
    /// Such a delivery is about to be handled, alone. If the process dies before the next event, this message is the reason.
    Suspect {
        /// The delivery.
        delivery: &'a Delivery,
    },
    /// A delivery arrived that was not in flight before: deliveries are handled side by side again.
    IsolationEnded {
        /// How many suspects came to an end.
        suspects: u64,
    },
    /// The consumer takes no more messages, because copies cannot be stored. Those in flight are tried again.
    IntakePaused {
        /// The queue.
        queue: &'a str,
    },
    /// Copies can be stored, and the consumer takes messages again.
    IntakeResumed {
        /// The queue.
        queue: &'a str,
    },
    /// The consumer takes no more messages, because [`ConsumerHandle::pause`](crate::ConsumerHandle::pause) asked for it.
    Paused {
        /// The queue.
        queue: &'a str,
    },
    /// The consumer takes messages again, because [`ConsumerHandle::resume`](crate::ConsumerHandle::resume) asked for it.
    Resumed {
        /// The queue.
        queue: &'a str,
    },
    /// The consumer takes no messages, because a layer is not ready: for a minute, in which nothing was handled whose end could make
    /// it ready.
    NotReady {
        /// The queue.
        queue: &'a str,
        /// The layer, and the call of [`Consumer::layer`](crate::Consumer::layer) that added it.
        layer: &'a str,
    },
    /// The layer is ready, and the consumer takes messages again.
    Ready {
        /// The queue.
        queue: &'a str,
        /// How long it was not ready.
        after: Duration,
    },
    /// The consumer cannot receive: its connection was lost, its subscription ended, or the broker refuses. It is tried again until it
    /// can. Reported again when `partly` changes.
    Interrupted {
        /// The queue.
        queue: &'a str,
        /// Why.
        error: &'a TransportError,
        /// True if it cannot receive from one of several queues, which the error names, and receives from the others.
        partly: bool,
    },
    /// The consumer can receive again, from all of its queues.
    Recovered {
        /// The queue.
        queue: &'a str,
        /// How long it could not, or not from all of them.
        after: Duration,
    },
    /// The consumer has ended, or its future was dropped.
    Stopped {
        /// The queue that it took messages from.
        queue: &'a str,
        /// Why it ended, if nobody asked for it.
        error: Option<&'a ConsumerError>,
    },
}

/// All observers of one consumer.
#[derive(Clone, Default)]
pub(crate) struct Observers(Vec<Arc<dyn Observer>>);

impl Observers {
    pub(crate) fn add(&mut self, observer: impl Observer) {
        self.0.push(Arc::new(observer));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn tell(&self, event: &Event<'_>) {
        for observer in &self.0 {
            panic::contained("an observer", || observer.observe(event));
        }
    }
}
