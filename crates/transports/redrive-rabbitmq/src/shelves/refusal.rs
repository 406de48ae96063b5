//! Errors of a shelf that is not read, or not worked on: each text says why, and what to do.

use std::time::Duration;

use redrive_core::text::plural;
use redrive_core::{Shelf, TransportError, TransportErrorKind};

/// Error for a shelf on which another client works.
pub(super) fn leased(queue: &str, shelf: Shelf, lease: &str) -> TransportError {
    TransportError::new(
        TransportErrorKind::Locked,
        format!(
            "another run works on the {shelf} shelf of `{queue}`, perhaps from another machine: its connection owns the queue `{lease}`. Wait \
             until it has ended"
        ),
    )
}

/// Error for a look or an action that others kept from its turn.
pub(super) fn no_turn(queue: &str, shelf: Shelf, turn: &str, waited: Duration) -> TransportError {
    TransportError::new(
        TransportErrorKind::Busy,
        format!(
            "another look or action of redrive has the {shelf} shelf of `{queue}`: it holds messages that nobody else sees, so nothing was \
             read. This one waited {waited:?} for its turn. Try again; if it does not end, close the connection that owns the queue `{turn}`",
        ),
    )
}

/// Error for a shelf whose messages the broker removes if they are looked at too often.
pub(super) fn looks_are_counted(queue: &str, limit: i64) -> TransportError {
    let message = format!(
        "`{queue}` is not read: each look counts as a delivery, and RabbitMQ removes a message after {limit} of them. Move the messages \
         to a queue with a large `x-delivery-limit`. Only if nobody set a limit on this queue, and a policy sets a large one, accept it \
         with `Options::accept_low_delivery_limit`, `--accept-low-delivery-limit` on the command line"
    );
    TransportError::new(TransportErrorKind::Unsupported, message)
}

/// Error for a shelf from which nothing can be taken.
pub(super) fn is_a_stream(queue: &str) -> TransportError {
    let message = format!(
        "`{queue}` is a stream: what is read and acknowledged stays in it, so that nothing on it can be sent back or discarded once. Let dead \
         letters go to a queue; of those in the stream, copy what is still needed to one"
    );
    TransportError::new(TransportErrorKind::Unsupported, message)
}

/// Error for a shelf with a message that the broker removes if more processes die while they read it.
pub(super) fn dies_with_the_process(queue: &str, limit: i64, highest: i64) -> TransportError {
    let message = format!(
        "`{queue}` is not read: a message in it was given back {}, by whoever read it, and RabbitMQ removes it after {limit}. \
         A process that is killed while it looks adds one. Move the messages to a queue with a large `x-delivery-limit`. Only if nobody \
         set a limit on this queue, and a policy sets a large one, accept it with `Options::accept_low_delivery_limit`, \
         `--accept-low-delivery-limit` on the command line",
        plural(highest, "time")
    );
    TransportError::new(TransportErrorKind::Unsupported, message)
}
