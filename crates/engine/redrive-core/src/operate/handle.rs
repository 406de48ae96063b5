//! Names of shelf entries, and cursors of pages.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::disposition::Shelf;
use crate::transport_error::{TransportError, TransportErrorKind};

/// Name of one entry of a shelf. A message id does not name an entry: messages may have no id, or share one.
///
/// A handle is printed as `SHELF/ENTRY` and can be parsed in another process. It never names another entry later: once its
/// entry is gone, it names nothing. (The transport's page says how far this holds on a broker that does not number its messages.)
///
/// ```
/// use redrive_core::Shelf;
/// use redrive_core::shelves::EntryHandle;
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
    /// Creates a handle from the transport's own key of the entry. For transports.
    #[must_use]
    pub fn new(shelf: Shelf, entry: impl Into<Arc<str>>) -> Self {
        Self { shelf, entry: entry.into() }
    }

    /// Returns the shelf that the entry is on.
    #[must_use]
    pub fn shelf(&self) -> Shelf {
        self.shelf
    }

    /// Returns the transport's own key of the entry. For transports.
    #[must_use]
    pub fn entry(&self) -> &str {
        &self.entry
    }

    /// Creates the error for an entry that is no longer on its shelf. For transports.
    #[must_use]
    pub fn not_found(&self) -> TransportError {
        TransportError::new(
            TransportErrorKind::NotFound,
            format!("no entry has the handle `{self}` any more"),
        )
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
        match parse(text) {
            Some((shelf, entry)) if !entry.is_empty() => Ok(Self::new(shelf, entry)),
            _ => Err(ParseHandleError(text.to_owned())),
        }
    }
}

/// The text is not an [`EntryHandle`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the handle of an entry: `dead-letter/…` or `parking/…` is expected")]
pub struct ParseHandleError(String);

/// Position where a page of a shelf ended and the next one begins. It is only valid for its own shelf.
///
/// A cursor is printed as `SHELF/TEXT` and can be parsed in another process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShelfCursor {
    shelf: Shelf,
    /// Empty at the beginning of the shelf.
    text: Arc<str>,
}

impl ShelfCursor {
    /// Creates a cursor with this text, which must not be empty. For transports.
    #[must_use]
    pub fn new(shelf: Shelf, text: impl Into<Arc<str>>) -> Self {
        Self { shelf, text: text.into() }
    }

    /// Creates a cursor at the beginning of a shelf: the page after it is the first one.
    #[must_use]
    pub fn start(shelf: Shelf) -> Self {
        Self::new(shelf, "")
    }

    /// Returns the shelf that the cursor belongs to.
    #[must_use]
    pub fn shelf(&self) -> Shelf {
        self.shelf
    }

    /// Returns the text with which the cursor of this shelf was created; `None` at the beginning of the shelf. For transports.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](TransportErrorKind::Unsupported) if the cursor belongs to another shelf.
    pub fn on(&self, shelf: Shelf) -> Result<Option<&str>, TransportError> {
        if self.shelf != shelf {
            let message = format!(
                "a cursor of the {} shelf was given to browse the {shelf} shelf: continue with a cursor from a page of the same shelf",
                self.shelf
            );
            return Err(TransportError::new(TransportErrorKind::Unsupported, message));
        }
        Ok(Some(&*self.text).filter(|text| !text.is_empty()))
    }
}

impl fmt::Display for ShelfCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.shelf, self.text)
    }
}

impl FromStr for ShelfCursor {
    type Err = ParseCursorError;

    /// Accepts any text after the shelf; browsing refuses a text that the transport did not create.
    fn from_str(text: &str) -> Result<Self, ParseCursorError> {
        let (shelf, text) = parse(text).ok_or_else(|| ParseCursorError(text.to_owned()))?;
        Ok(Self::new(shelf, text))
    }
}

/// The text is not a [`ShelfCursor`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the cursor of a shelf: `dead-letter/…` or `parking/…` is expected")]
pub struct ParseCursorError(String);

/// Splits the text into the shelf and the rest.
fn parse(text: &str) -> Option<(Shelf, &str)> {
    let (name, rest) = text.split_once('/')?;
    let shelf = [Shelf::DeadLetter, Shelf::Parking].into_iter().find(|shelf| shelf.to_string() == name)?;
    Some((shelf, rest))
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
    #[test]
    fn a_cursor_is_parsed_as_it_was_printed() {
        for shelf in [Shelf::DeadLetter, Shelf::Parking] {
            for cursor in [ShelfCursor::start(shelf), ShelfCursor::new(shelf, "a/b-1")] {
                assert_eq!(cursor.to_string().parse(), Ok(cursor));
            }
        }
        for text in ["", "17", "dead-letter", "elsewhere/17"] {
            text.parse::<ShelfCursor>().expect_err(text);
        }
    }

    #[test]
    fn only_its_own_shelf_reads_a_cursor() {
        let cursor = ShelfCursor::new(Shelf::Parking, "17");
        assert_eq!(cursor.on(Shelf::Parking).unwrap(), Some("17"));
        assert_eq!(ShelfCursor::start(Shelf::Parking).on(Shelf::Parking).unwrap(), None);
        for cursor in [cursor, ShelfCursor::start(Shelf::Parking)] {
            let error = cursor.on(Shelf::DeadLetter).unwrap_err();
            assert_eq!(error.kind(), TransportErrorKind::Unsupported);
        }
    }
}
