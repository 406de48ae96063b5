//! What is kept of a delivery until it is settled.

use std::sync::Arc;

use super::settled_cache::Ticket;
use crate::delivery::Delivery;

/// Goes with a delivery that is handled alone, and is dropped when that has come to an end. None with all others.
pub(crate) type Alone = Option<Arc<()>>;

/// What is kept of a delivery until it is settled.
#[derive(Default)]
pub(crate) struct InHand {
    /// Until it is known what became of it.
    pub(crate) ticket: Option<Ticket>,
    /// It is done, and only its acknowledgement was lost.
    pub(super) known: bool,
    /// While it is handled alone.
    pub(crate) alone: Alone,
    /// What the broker knows it as, where it is handled from the hand.
    pub(super) original: Option<Delivery>,
    /// What was decided needs a copy, and there can be none: the broker moves it to the dead-letter shelf as it is.
    pub(crate) uncopied: bool,
}
