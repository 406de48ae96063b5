//! The queues in which messages of a shelf may rest.

use std::time::SystemTime;

use redrive_core::{EntryHandle, Shelf, ShelfCursor};

use crate::convert::copy_id::hex;
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
    Unused,
    /// redrive put everything there, and marked it or took the mark off.
    Trusted,
    /// Anybody may have written a mark.
    Unverified,
}

impl Place {
    /// The handle of a message that lies here. Its number, with the time when it came: an entity that is made again under its name
    /// counts from the beginning again. Seconds, since HTTP tells no more.
    pub(super) fn handle(&self, shelf: Shelf, incoming: &Incoming) -> EntryHandle {
        let time = incoming.enqueued_at.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        let seconds = time.map_or(0, |time| time.as_secs());
        EntryHandle::new(shelf, format!("{}-{seconds:x}-{}", incoming.sequence_number, self.key()))
    }

    /// The number of the message that a handle names, where it lies here.
    pub(super) fn number(&self, handle: &EntryHandle) -> Option<i64> {
        let mut parts = handle.entry().split('-');
        let (number, key) = (parts.next()?.parse().ok()?, parts.nth(1)?);
        (key == self.key()).then_some(number)
    }

    /// After this message.
    pub(super) fn cursor(&self, shelf: Shelf, sequence_number: i64) -> ShelfCursor {
        ShelfCursor::new(shelf, format!("{sequence_number}-{}", self.key()))
    }

    /// The number of the message after which a cursor with this text stands, where that is here.
    pub(super) fn after(&self, cursor: &str) -> Option<i64> {
        let (number, key) = cursor.split_once('-')?;
        (key == self.key()).then(|| number.parse().ok())?
    }

    /// Tells the places of one shelf apart. The broker compares names of entities without case.
    fn key(&self) -> String {
        hex(self.path.to_lowercase().as_bytes(), 4)
    }

    pub(super) fn has_on(&self, shelf: Shelf, incoming: &Incoming) -> bool {
        let is_parked = match self.marks {
            Marks::Unused => return true,
            Marks::Trusted => incoming.shelf.as_deref() == Some(PARKED),
            Marks::Unverified => incoming.is_parked(),
        };
        is_parked == (shelf == Shelf::Parking)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_and_a_cursor_say_where_their_message_lies() {
        let [place, other] = ["orders/$DeadLetterQueue", "orders--retry/$DeadLetterQueue"]
            .map(|path| Place { path: path.to_owned(), marks: Marks::Unverified });
        let incoming = Incoming { sequence_number: 17, ..Incoming::default() };
        let handle = place.handle(Shelf::Parking, &incoming);
        assert_eq!((place.number(&handle), other.number(&handle)), (Some(17), None));
        let cursor = place.cursor(Shelf::Parking, 17);
        let text = cursor.on(Shelf::Parking).unwrap().unwrap();
        assert_eq!((place.after(text), other.after(text)), (Some(17), None));
        for entry in ["", "17", "17-0", "a-0-b"] {
            assert_eq!(place.number(&EntryHandle::new(Shelf::Parking, entry)), None);
            assert_eq!(place.after(entry), None);
        }
    }
}
