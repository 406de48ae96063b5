//! What goes wrong, and in which words.

use redrive_core::{Shelf, TransportError, TransportErrorKind};

/// Why a queue did not do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The queue holds as many messages as it may.
    QueueFull(usize),
    /// The shelf holds as many messages as it may.
    ShelfFull(Shelf),
    /// The shelf was switched off by a test.
    ShelfUnwritable(Shelf),
    /// It has no means of its own to hold a message back, and does not say that it has.
    CannotHoldBack,
    /// The delivery is in nobody's hand any more.
    Lost,
}

impl Refusal {
    /// The error of a queue of this name.
    pub(crate) fn on(self, queue: &str) -> TransportError {
        let (kind, message) = match self {
            Self::QueueFull(capacity) => (
                TransportErrorKind::Full,
                format!(
                    "queue `{queue}` is full at {capacity} messages: nothing was stored; publish more slowly, or \
                     raise `MemoryOptions::queue_capacity`"
                ),
            ),
            Self::ShelfFull(shelf) => (
                TransportErrorKind::Full,
                format!(
                    "the {shelf} shelf of queue `{queue}` is full: the message stays where it is; redrive or \
                     discard what rests there, or raise `MemoryOptions::shelf_capacity`"
                ),
            ),
            Self::ShelfUnwritable(shelf) => (
                TransportErrorKind::NotStored,
                format!(
                    "the {shelf} shelf of queue `{queue}` was made unwritable: the message stays where it is; see \
                     `MemoryBroker::set_shelf_writable`"
                ),
            ),
            Self::CannotHoldBack => (
                TransportErrorKind::Unsupported,
                format!("queue `{queue}` holds no message back without a copy: settle with `Reschedule`"),
            ),
            Self::Lost => (
                TransportErrorKind::Lost,
                format!(
                    "the delivery from queue `{queue}` is no longer in flight: its transport was closed or broke \
                     down; it comes again"
                ),
            ),
        };
        TransportError::new(kind, message)
    }
}

/// Nobody waits for reports of this name.
pub(crate) fn nobody_collects(queue: &str) -> TransportError {
    let text = format!("nobody collects reports at `{queue}` any more: nothing was stored");
    TransportError::new(TransportErrorKind::NotStored, text)
}

/// Error for a shelf on which somebody else works.
pub(crate) fn leased(queue: &str, shelf: Shelf) -> TransportError {
    let message =
        format!("another run works on the {shelf} shelf of queue `{queue}`: wait until it has ended");
    TransportError::new(TransportErrorKind::Locked, message)
}
