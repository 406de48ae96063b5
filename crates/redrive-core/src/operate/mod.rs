//! For operators: what rests on the shelves, and how it gets back.

mod handle;
mod report;

use std::collections::HashSet;
use std::time::SystemTime;

use async_trait::async_trait;

pub use self::handle::{EntryHandle, ParseCursorError, ParseHandleError, ShelfCursor};
pub use self::report::{EntryOutcome, EntryResult, ShelfReport};
use crate::deaths::DeathHistory;
use crate::disposition::Shelf;
use crate::header_names;
use crate::history::FailureHistory;
use crate::message::Message;
use crate::transport::TransportError;

/// The shelves of one queue. Object safe, so that a program can pick the broker at run time.
///
/// An operator looks with [`browse`](Self::browse), and acts on what was seen by its [handle](EntryHandle). Every action
/// answers for [each entry by itself](ShelfReport): one that fails does not keep those behind it, unless the broker is gone.
///
/// Every move is crash safe: a message is stored in its new place, confirmed, before it leaves the old one. A crash leaves it
/// in both, never in none.
///
/// A transport implements it with the attribute `#[async_trait]` of the crate `async-trait`.
#[async_trait]
pub trait Shelves: Send + Sync {
    /// How many messages rest on the shelf.
    ///
    /// # Errors
    ///
    /// When the broker cannot be asked.
    async fn count(&self, shelf: Shelf) -> Result<u64, TransportError>;

    /// When the entry was shelved that rests longest. `None`: the shelf is empty, or nothing tells when.
    ///
    /// # Errors
    ///
    /// When the broker cannot be asked.
    async fn oldest(&self, shelf: Shelf) -> Result<Option<SystemTime>, TransportError> {
        let page = self.browse(shelf, None, 1).await?;
        Ok(page.entries.first().and_then(|entry| entry.shelved_at))
    }

    /// Shows one page of the shelf, at most `limit` entries; they stay there. The first page is `after` nothing, the next one
    /// after the [cursor](ShelfPage::next) of the one before. With a `limit` of 0 the page is [empty](ShelfPage::empty), and the
    /// next one begins where this one does.
    ///
    /// Through all pages an entry comes at most once. One that is on the shelf from the first page to the last comes
    /// exactly once.
    ///
    /// # Errors
    ///
    /// When the broker cannot be asked. [`Unsupported`](crate::TransportErrorKind::Unsupported) when the cursor is of another
    /// shelf, or was not made by this transport.
    async fn browse(
        &self,
        shelf: Shelf,
        after: Option<&ShelfCursor>,
        limit: usize,
    ) -> Result<ShelfPage, TransportError>;

    /// Sends messages back to the consumer that failed, as a first attempt ([`redriven`](crate::redriven)), and to
    /// nobody else.
    ///
    /// # Errors
    ///
    /// When the work cannot begin: everything is still on the shelf. What happens later is in the report.
    async fn redrive(&self, shelf: Shelf, which: &Selection) -> Result<ShelfReport, TransportError>;

    /// Moves messages from the dead-letter shelf to the parking shelf.
    ///
    /// # Errors
    ///
    /// As [`redrive`](Self::redrive).
    async fn park(&self, which: &Selection) -> Result<ShelfReport, TransportError>;

    /// Removes messages for good.
    ///
    /// # Errors
    ///
    /// As [`redrive`](Self::redrive).
    async fn discard(&self, shelf: Shelf, which: &Selection) -> Result<ShelfReport, TransportError>;

    /// Stores an edited message on the shelf, with the history of the entry ([`edited`]), and removes exactly the entry. Answers
    /// the handle of what was stored, where the broker tells it; else [browse](Self::browse) for it. A crash in between leaves
    /// both.
    ///
    /// # Errors
    ///
    /// [`NotFound`](crate::TransportErrorKind::NotFound) when no entry has this handle any more: nothing was stored.
    /// [`Unsupported`](crate::TransportErrorKind::Unsupported) where a broker lets nobody write to the shelf
    /// ([`redrive_as`](Self::redrive_as) works there too). After any other error the entry is still on the shelf, and the edited
    /// message may be there as well.
    async fn replace(
        &self,
        entry: &EntryHandle,
        message: Message,
    ) -> Result<Option<EntryHandle>, TransportError>;

    /// Sends an edited message back in place of the entry: as [`replace`](Self::replace) and then
    /// [`redrive`](Self::redrive), in one step. A crash in between leaves the entry on its shelf and the edited message in
    /// the queue.
    ///
    /// # Errors
    ///
    /// [`NotFound`](crate::TransportErrorKind::NotFound) when no entry has this handle any more: nothing was sent. After any
    /// other error the entry is still on the shelf, and the edited message may be sent.
    async fn redrive_as(&self, entry: &EntryHandle, message: Message) -> Result<(), TransportError>;
}

/// A part of a shelf.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ShelfPage {
    /// The entries, oldest first as far as the broker keeps an order.
    pub entries: Vec<Shelved>,
    /// Where the next page begins; it may be empty. `None`: there was nothing behind this one.
    pub next: Option<ShelfCursor>,
}

impl ShelfPage {
    /// For transports: a page.
    #[must_use]
    pub fn new(entries: Vec<Shelved>, next: Option<ShelfCursor>) -> Self {
        Self { entries, next }
    }

    /// For transports: the page of a `limit` of 0. The next one begins where this one does, so that nothing is skipped.
    ///
    /// # Errors
    ///
    /// As [`ShelfCursor::on`].
    pub fn empty(shelf: Shelf, after: Option<&ShelfCursor>) -> Result<Self, TransportError> {
        let next = after.cloned().unwrap_or_else(|| ShelfCursor::start(shelf));
        next.on(shelf)?;
        Ok(Self::new(Vec::new(), Some(next)))
    }
}

/// An entry of a shelf.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Shelved {
    /// The name of the entry, to act on it.
    pub handle: EntryHandle,
    /// The message, with the headers that tell its history.
    pub message: Message,
    /// The history, read.
    pub history: FailureHistory,
    /// When it was shelved, as far as the broker or the history tells.
    pub shelved_at: Option<SystemTime>,
    /// Why the broker, or a program other than redrive, dead-lettered the message, in its own word; `None` where redrive did.
    pub broker_reason: Option<String>,
    /// The same in words, where the broker has any.
    pub broker_description: Option<String>,
}

impl Shelved {
    /// For transports: this entry, its history read, and what RabbitMQ writes on a message that it dead-letters.
    #[must_use]
    pub fn new(handle: EntryHandle, message: Message) -> Self {
        let history = FailureHistory::read(&message);
        let deaths = DeathHistory::read(message.headers()).deaths;
        let death = deaths.first();
        let shelved_at = match death {
            // Of several deaths of one kind the broker tells the first.
            Some(death) => death.time.filter(|_| death.count == 1),
            None => history.last_failed_at,
        };
        let broker_reason = death.map(|death| death.reason.clone());
        Self { handle, message, history, shelved_at, broker_reason, broker_description: None }
    }

    /// What RabbitMQ wrote on the message when it dead-lettered it.
    #[must_use]
    pub fn deaths(&self) -> DeathHistory {
        DeathHistory::read(self.message.headers())
    }
}

/// Which entries of a shelf.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Selection {
    /// All that are there when the work begins.
    All,
    /// Exactly these.
    Handles(HashSet<EntryHandle>),
    /// Those that failed for this reason, by its word: that of redrive, or [the broker's](Shelved::broker_reason) on what has none of
    /// redrive.
    Reason(String),
}

impl Selection {
    /// Exactly these entries.
    #[must_use]
    pub fn handles(handles: impl IntoIterator<Item = EntryHandle>) -> Self {
        Self::Handles(handles.into_iter().collect())
    }

    /// True when this entry is meant.
    #[must_use]
    pub fn includes(&self, entry: &Shelved) -> bool {
        match self {
            Self::All => true,
            Self::Handles(handles) => handles.contains(&entry.handle),
            Self::Reason(word) => match &entry.history.reason {
                Some(reason) => reason.as_str() == word,
                None => entry.broker_reason.as_ref() == Some(word),
            },
        }
    }
}

impl From<EntryHandle> for Selection {
    fn from(handle: EntryHandle) -> Self {
        Self::handles([handle])
    }
}

/// An edited message with the history of the entry that it stands for: the headers of redrive are those of the entry, whatever
/// was edited.
#[must_use]
pub fn edited(entry: &Message, mut message: Message) -> Message {
    let is_ours = |name: &str| name.starts_with(header_names::PREFIX);
    if message.headers().iter().any(|(name, _)| is_ours(name)) {
        message.headers_mut().retain(|name, _| !is_ours(name));
    }
    for (name, value) in entry.headers().iter().filter(|(name, _)| is_ours(name)) {
        message.headers_mut().insert(name, value.clone());
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Reason;
    use crate::header_names as names;
    use crate::headers::{Headers, Timestamp, Value};

    fn entry(message: Message) -> Shelved {
        Shelved::new(EntryHandle::new(Shelf::DeadLetter, "1"), message)
    }

    fn death(reason: &str, count: i64) -> Value {
        let time = Timestamp::from_unix_seconds(1_700_000_000);
        let death = [("reason", reason.into()), ("count", Value::I64(count)), ("time", time.into())];
        Value::List(vec![Headers::from_iter(death).into()])
    }

    #[test]
    fn the_word_of_the_broker_stands_beside_the_story() {
        let ours = Message::new("").with_header(names::REASON, "Broken");
        let both = entry(ours.clone().with_header("x-death", death("delivery_limit", 1)));
        assert_eq!(both.broker_reason.as_deref(), Some("delivery_limit"));
        assert_eq!(both.history.reason.as_ref().map(Reason::as_str), Some("Broken"));
        assert!(Selection::Reason("Broken".into()).includes(&both));
        assert!(!Selection::Reason("delivery_limit".into()).includes(&both), "redrive's own word counts");
        let theirs = entry(Message::new("").with_header("x-death", death("expired", 1)));
        assert!(Selection::Reason("expired".into()).includes(&theirs));
        assert_eq!(entry(ours).broker_reason, None);
    }

    #[test]
    fn the_time_is_that_of_the_one_death_or_of_the_last_failure() {
        let failed = "2026-01-02T03:04:05Z";
        let ours = Message::new("").with_header(names::LAST_FAILED_AT, failed);
        let time = humantime::parse_rfc3339_weak(failed).unwrap();
        assert_eq!(entry(ours.clone()).shelved_at, Some(time));
        let died = Timestamp::from_unix_seconds(1_700_000_000).to_system_time();
        assert_eq!(entry(ours.clone().with_header("x-death", death("rejected", 1))).shelved_at, died);
        assert_eq!(entry(ours.with_header("x-death", death("rejected", 2))).shelved_at, None);
    }

    #[test]
    fn an_edited_message_keeps_the_story_whatever_was_edited() {
        let original = Message::new("old").with_header(names::ATTEMPT, 3_i64).with_header("tenant", "blue");
        let changed = Message::new("new")
            .with_header(names::ATTEMPT, 0_i64)
            .with_header(names::REDRIVES, 9_i64)
            .with_header("tenant", "green");
        let stored = edited(&original, changed);
        assert_eq!(&stored.body()[..], b"new");
        assert_eq!(stored.headers().get(names::ATTEMPT), Some(&Value::I64(3)));
        assert_eq!(stored.headers().get("tenant").and_then(Value::as_str), Some("green"));
        assert!(!stored.headers().contains(names::REDRIVES));
    }
}
