//! Errors of the broker: each text says what failed and what to do.

use redrive_core::text::plural;
use redrive_core::{Shelf, TransportError, TransportErrorKind};

/// The reason why a queue refused an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The queue has reached its capacity.
    QueueFull(usize),
    /// A test made the queue unwritable.
    QueueUnwritable,
    /// The shelf has reached its capacity.
    ShelfFull(Shelf),
    /// A test made the shelf unwritable.
    ShelfUnwritable(Shelf),
    /// The broker cannot delay a message without a copy, and its facts say so.
    RetryInPlaceUnsupported,
    /// The delivery is no longer in flight.
    Lost,
}

impl Refusal {
    /// Converts the refusal to the error of the queue with this name.
    pub(crate) fn on(self, queue: &str) -> TransportError {
        let (kind, message) = match self {
            Self::QueueFull(capacity) => (
                TransportErrorKind::Full,
                format!(
                    "queue `{queue}` is full at {}: nothing was stored; publish more slowly, or \
                     raise `MemoryOptions::queue_capacity`",
                    plural(capacity, "message")
                ),
            ),
            Self::QueueUnwritable => (
                TransportErrorKind::Unroutable,
                format!(
                    "queue `{queue}` was made unwritable: nothing was stored; see `MemoryBroker::set_queue_writable`"
                ),
            ),
            Self::ShelfFull(shelf) => (
                TransportErrorKind::Full,
                format!(
                    "the {shelf} shelf of queue `{queue}` is full: the message stays where it is; redrive or \
                     discard messages of the shelf, or raise `MemoryOptions::shelf_capacity`"
                ),
            ),
            Self::ShelfUnwritable(shelf) => (
                TransportErrorKind::Unroutable,
                format!(
                    "the {shelf} shelf of queue `{queue}` was made unwritable: the message stays where it is; see \
                     `MemoryBroker::set_shelf_writable`"
                ),
            ),
            Self::RetryInPlaceUnsupported => (
                TransportErrorKind::Unsupported,
                format!("queue `{queue}` cannot delay a message without a copy: settle with `Reschedule`"),
            ),
            Self::Lost => (
                TransportErrorKind::Lost,
                format!(
                    "the delivery from queue `{queue}` is no longer in flight: its transport was closed or \
                     interrupted; the message is redelivered"
                ),
            ),
        };
        TransportError::new(kind, message)
    }
}

/// Error for reports to a collection that does not exist or has ended.
pub(crate) fn no_collection(queue: &str) -> TransportError {
    let text = format!("nobody collects reports at `{queue}` any more: nothing was stored");
    TransportError::new(TransportErrorKind::Unroutable, text)
}

/// Error for a shelf that is leased to another run.
pub(crate) fn leased(queue: &str, shelf: Shelf) -> TransportError {
    let message =
        format!("another run works on the {shelf} shelf of queue `{queue}`: wait until it has ended");
    TransportError::new(TransportErrorKind::Locked, message)
}
