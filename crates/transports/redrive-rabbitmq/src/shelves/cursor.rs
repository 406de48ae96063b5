//! The end of a page: the names of all entries that were shown. A position would not do: RabbitMQ does not number its messages.
//! Pure.

use std::collections::HashSet;

use redrive_core::shelves::ShelfCursor;
use redrive_core::{Shelf, TransportError};

use super::numbers::Name;

const BETWEEN: char = '.';

/// The entries that were shown so far.
#[derive(Debug, Default)]
pub(super) struct Shown {
    names: HashSet<Name>,
    /// Their names: 33 characters each, and more for identical entries.
    text: String,
}

impl Shown {
    /// Returns the entries that a cursor of this shelf names; none without a cursor, or with the first one.
    pub(super) fn before(shelf: Shelf, cursor: Option<&ShelfCursor>) -> Result<Self, TransportError> {
        let Some(text) = cursor.map(|cursor| cursor.on(shelf)).transpose()?.flatten() else {
            return Ok(Self::default());
        };
        let names: Option<_> = text.split(BETWEEN).map(Name::parse).collect();
        Ok(Self { names: names.ok_or_else(TransportError::foreign_cursor)?, text: text.to_owned() })
    }

    /// Records that an entry is shown. Returns false if it was shown before.
    pub(super) fn note(&mut self, name: Name) -> bool {
        let is_new = self.names.insert(name);
        if is_new {
            if !self.text.is_empty() {
                self.text.push(BETWEEN);
            }
            self.text.push_str(&name.to_string());
        }
        is_new
    }

    /// Returns the cursor after them.
    pub(super) fn cursor(self, shelf: Shelf) -> ShelfCursor {
        ShelfCursor::new(shelf, self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shelves::fingerprint::Fingerprint;

    const SHELF: Shelf = Shelf::DeadLetter;

    fn name(fingerprint: u128, number: u32) -> Name {
        Name { fingerprint: Fingerprint(fingerprint), number }
    }

    fn after(names: &[Name]) -> Shown {
        let mut shown = Shown::default();
        assert!(names.iter().all(|name| shown.note(*name)));
        Shown::before(SHELF, Some(&shown.cursor(SHELF))).unwrap()
    }

    #[test]
    fn an_entry_is_shown_once_and_no_other_is_taken_for_it() {
        let names = [name(7 << 64 | 1, 1), name(7 << 64 | 2, 1), name(6 << 64 | 1, 1), name(7 << 64 | 1, 2)];
        for shown in 0..names.len() {
            let mut then = after(&names[..=shown]);
            for (index, name) in names.iter().enumerate() {
                assert_eq!(then.note(*name), index > shown, "{name} after {shown}");
            }
        }
    }

    #[test]
    fn nothing_was_shown_before_the_first_entry() {
        let cursor = after(&[]).cursor(SHELF);
        assert_eq!(cursor, ShelfCursor::start(SHELF));
        assert!(Shown::before(SHELF, Some(&cursor)).unwrap().note(name(7, 1)));
    }

    #[test]
    fn it_grows_by_33_characters_for_each_entry() {
        let names: Vec<_> = (0..1000).map(|entry| name(entry << 64, 1)).collect();
        assert_eq!(after(&names).text.len(), 33 * 1000 - 1);
    }

    #[test]
    fn a_cursor_of_somebody_else_is_refused() {
        let one = name(7, 1).to_string();
        for text in [
            "7",
            ".",
            "ünicode",
            "17-0",
            &one[1..],
            &format!("{one}."),
            &format!("{one}-1"),
            &format!("+{}", &one[1..]),
        ] {
            Shown::before(SHELF, Some(&ShelfCursor::new(SHELF, text))).expect_err(text);
        }
    }
}
