//! The names of entries, and the place where a page ended.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::disposition::Shelf;

/// The name of one entry of a shelf. An id does not name an entry: messages come without one, or share one.
///
/// It is printed as `SHELF/ENTRY` and parsed back, also in another process. It never names another entry later: once its
/// entry is gone, it names nothing. (What that is worth on a broker that does not number its messages, the page of the
/// transport says.)
///
/// ```
/// use redrive_core::{EntryHandle, Shelf};
///
/// let handle = EntryHandle::new(Shelf::DeadLetter, "17");
/// assert_eq!(handle.to_string(), "dead-letter/17");
/// assert_eq!("dead-letter/17".parse(), Ok(handle));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryHandle {
    shelf: Shelf,
    entry: Arc<str>,
}

impl EntryHandle {
    /// For transports: the handle of an entry by the word that the transport knows it by.
    #[must_use]
    pub fn new(shelf: Shelf, entry: impl Into<Arc<str>>) -> Self {
        Self { shelf, entry: entry.into() }
    }

    /// The shelf that the entry is on.
    #[must_use]
    pub fn shelf(&self) -> Shelf {
        self.shelf
    }

    /// For transports: the word that the transport knows the entry by.
    #[must_use]
    pub fn entry(&self) -> &str {
        &self.entry
    }
}

impl fmt::Display for EntryHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.shelf, self.entry)
    }
}

impl FromStr for EntryHandle {
    type Err = ParseHandleError;

    fn from_str(text: &str) -> Result<Self, ParseHandleError> {
        let invalid = || ParseHandleError(text.to_owned());
        let (shelf, entry) = text.split_once('/').ok_or_else(invalid)?;
        let shelves = [Shelf::DeadLetter, Shelf::Parking];
        let shelf = shelves.into_iter().find(|known| known.to_string() == shelf).ok_or_else(invalid)?;
        if entry.is_empty() {
            return Err(invalid());
        }
        Ok(Self::new(shelf, entry))
    }
}

/// A text that is no [`EntryHandle`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no handle of an entry: `dead-letter/…` or `parking/…` is expected")]
pub struct ParseHandleError(String);

/// Where a page of a shelf ended: the next one begins there. Printed and parsed back, also in another process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShelfCursor(Arc<str>);

impl ShelfCursor {
    /// For transports: the cursor with this text.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// For transports: its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ShelfCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ShelfCursor {
    type Err = Infallible;

    /// Takes any text; browsing refuses one that is no cursor of its shelf.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::new(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_parsed_as_it_was_printed() {
        for shelf in [Shelf::DeadLetter, Shelf::Parking] {
            let handle = EntryHandle::new(shelf, "a/b-1");
            assert_eq!(handle.to_string().parse(), Ok(handle));
        }
        for text in ["", "17", "dead-letter", "dead-letter/", "elsewhere/17"] {
            text.parse::<EntryHandle>().expect_err(text);
        }
    }
}
