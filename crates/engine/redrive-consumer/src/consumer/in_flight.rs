//! Bookkeeping of a delivery until it is settled.

use std::sync::Arc;

use redrive_core::Delivery;

use crate::redelivery::Ticket;

/// Guard of a delivery that is handled alone; dropped when the delivery has come to an end. `None` for all other deliveries.
pub(crate) type Alone = Option<Arc<()>>;

/// Bookkeeping of a delivery until it is settled.
#[derive(Default)]
pub(crate) struct InFlight {
    /// Present until the outcome of the delivery is known.
    pub(crate) ticket: Option<Ticket>,
    /// True if the delivery is done, and only its acknowledgement was lost.
    pub(super) known: bool,
    /// True once the delivery has entered the layers, until its end is reported.
    pub(super) handled: bool,
    /// Present while the delivery is handled alone.
    pub(crate) alone: Alone,
    /// The delivery as the broker knows it, if the consumer handles a copy that could not be stored.
    pub(super) original: Option<Delivery>,
    /// True if the decision needs a copy that cannot be made: the broker moves the message to the dead-letter shelf unchanged.
    pub(crate) uncopied: bool,
}
