//! The queues that may hold messages of a shelf.

use std::time::SystemTime;

use redrive_core::Shelf;
use redrive_core::shelves::{EntryHandle, ShelfCursor};

use crate::convert::copy_id::hex;
use crate::convert::{Incoming, PARKED};

/// A queue that may hold messages of a shelf.
pub(super) struct Place {
    pub(super) path: String,
    pub(super) marks: Marks,
    /// The shelf that is looked at: the queue may hold messages of both.
    pub(super) shelf: Shelf,
    /// True if the broker keeps the reason of a dead letter here, and would not where the message is put back after a discard: a
    /// header shows it.
    pub(super) shows_reason: bool,
}

/// The meaning of the shelf marks on the messages of a queue.
#[derive(Clone, Copy)]
pub(super) enum Marks {
    /// All messages of the queue are on one shelf, so marks are not read.
    Unused,
    /// redrive stored all messages of the queue, and set or removed each mark.
    Trusted,
    /// Any program may have written a mark.
    Unverified,
}

impl Place {
    /// Returns the handle of a message in this queue: its sequence number, and the time when it came, because an entity that is
    /// deleted and created again restarts its numbers. The time is in seconds, the resolution of HTTP.
    pub(super) fn handle(&self, incoming: &Incoming) -> EntryHandle {
        let time = incoming.enqueued_at.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        let seconds = time.map_or(0, |time| time.as_secs());
        EntryHandle::new(self.shelf, format!("{}-{seconds:x}-{}", incoming.sequence_number, self.key()))
    }

    /// Returns the sequence number of the message that a handle names, if it is in this queue.
    pub(super) fn number(&self, handle: &EntryHandle) -> Option<i64> {
        let mut parts = handle.entry().split('-');
        let (number, key) = (parts.next()?.parse().ok()?, parts.nth(1)?);
        (key == self.key()).then_some(number)
    }

    /// Returns the cursor that continues after this message.
    pub(super) fn cursor(&self, sequence_number: i64) -> ShelfCursor {
        ShelfCursor::new(self.shelf, format!("{sequence_number}-{}", self.key()))
    }

    /// Returns the sequence number after which a cursor with this text continues, if it is in this queue.
    pub(super) fn after(&self, cursor: &str) -> Option<i64> {
        let (number, key) = cursor.split_once('-')?;
        (key == self.key()).then(|| number.parse().ok())?
    }

    /// Returns a hash that distinguishes the places of a shelf. The path is hashed in lower case, because the broker ignores
    /// case.
    fn key(&self) -> String {
        hex(self.path.to_lowercase().as_bytes(), 4)
    }

    /// Returns true if this message of the queue is on the shelf.
    pub(super) fn has(&self, incoming: &Incoming) -> bool {
        let is_parked = match self.marks {
            Marks::Unused => return true,
            Marks::Trusted => incoming.shelf.as_deref() == Some(PARKED),
            Marks::Unverified => incoming.is_parked(),
        };
        is_parked == (self.shelf == Shelf::Parking)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_and_a_cursor_say_where_their_message_lies() {
        let [place, other] =
            ["orders/$DeadLetterQueue", "orders--retry/$DeadLetterQueue"].map(|path| Place {
                path: path.to_owned(),
                marks: Marks::Unverified,
                shelf: Shelf::Parking,
                shows_reason: false,
            });
        let incoming = Incoming { sequence_number: 17, ..Incoming::default() };
        let handle = place.handle(&incoming);
        assert_eq!((place.number(&handle), other.number(&handle)), (Some(17), None));
        let cursor = place.cursor(17);
        let text = cursor.on(Shelf::Parking).unwrap().unwrap();
        assert_eq!((place.after(text), other.after(text)), (Some(17), None));
        for entry in ["", "17", "17-0", "a-0-b"] {
            assert_eq!(place.number(&EntryHandle::new(Shelf::Parking, entry)), None);
            assert_eq!(place.after(entry), None);
        }
    }
}
