//! The queues in which messages of a shelf may rest.

use redrive_core::Shelf;

use crate::convert::{Incoming, PARKED};

/// A queue in which messages of a shelf may rest.
pub(super) struct Place {
    pub(super) path: String,
    pub(super) marks: Marks,
}

/// How it is told on which shelf a message of a queue rests.
#[derive(Clone, Copy)]
pub(super) enum Marks {
    /// Everything there rests on one shelf.
    Needless,
    /// redrive put everything there, and marked it or took the mark off.
    Ours,
    /// Anybody may have written a mark.
    ToBeProven,
}

impl Place {
    pub(super) fn has_on(&self, shelf: Shelf, incoming: &Incoming) -> bool {
        let is_parked = match self.marks {
            Marks::Needless => return true,
            Marks::Ours => incoming.shelf.as_deref() == Some(PARKED),
            Marks::ToBeProven => incoming.is_parked(),
        };
        is_parked == (shelf == Shelf::Parking)
    }
}
