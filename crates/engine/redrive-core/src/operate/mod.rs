//! For operators: inspects the shelves and sends messages back.

mod handle;
mod holder;
mod leased;
mod owner;
mod report;
mod reported;
mod work_queue;

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::SystemTime;

use async_trait::async_trait;

pub use self::handle::{EntryHandle, ParseCursorError, ParseHandleError, ShelfCursor};
pub use self::holder::Holder;
pub use self::leased::{Lease, Leased};
pub use self::owner::Owner;
pub use self::report::{EntryOutcome, EntryResult, ShelfReport};
pub use self::reported::{REPORT_QUEUE_PREFIX, ReportRequest, Reported, Reports};
pub use self::work_queue::WorkQueue;
use crate::disposition::Shelf;
use crate::failure::Reason;
use crate::header_names;
use crate::history::FailureHistory;
use crate::message::Message;
use crate::transport_error::{TransportError, TransportErrorKind};

/// The shelves of one queue. Object safe, so that a program can choose the broker at run time.
///
/// An operator inspects entries with [`browse`](Self::browse) and acts on them by their [handles](EntryHandle). Every action
/// reports the result of [each entry](ShelfReport): a failed entry does not stop those after it, unless the broker is gone.
///
/// Every move is crash safe: the broker confirms that the message is stored in its new place before the message leaves the old
/// one. A crash leaves it in both places, never in neither.
///
/// A transport implements it with the attribute `#[async_trait]` of the crate `async-trait`.
#[async_trait]
pub trait Shelves: Send + Sync {
    /// Returns the number of messages on the shelf.
    ///
    /// # Errors
    ///
    /// If the broker cannot be reached.
    async fn count(&self, shelf: Shelf) -> Result<u64, TransportError>;

    /// Returns who may hold entries of the shelf now, so that they are neither counted nor seen. `None`: others see and count what somebody
    /// holds, or the broker tells that nobody holds anything.
    ///
    /// # Errors
    ///
    /// If the broker cannot be reached.
    async fn holder(&self, shelf: Shelf) -> Result<Option<Holder>, TransportError>;

    /// Returns the number of messages on the shelf, and who may hold more of them. A transport that can asks for both at once:
    /// what is given back in between is in neither.
    ///
    /// # Errors
    ///
    /// If the broker cannot be reached.
    async fn count_with_holder(&self, shelf: Shelf) -> Result<(u64, Option<Holder>), TransportError> {
        let holder = self.holder(shelf).await?;
        Ok((self.count(shelf).await?, holder))
    }

    /// Returns when the entry that has been on the shelf longest was shelved. `None`: the shelf is empty, or the time is not
    /// known, or it would take too long to find out, or somebody may hold that entry.
    ///
    /// # Errors
    ///
    /// If the broker cannot be reached.
    async fn oldest(&self, shelf: Shelf) -> Result<Option<SystemTime>, TransportError> {
        if self.holder(shelf).await?.is_some() {
            return Ok(None);
        }
        let page = self.browse(shelf, None, 1).await?;
        Ok(page.entries.first().and_then(|entry| entry.shelved_at))
    }

    /// Returns one page of the shelf, with at most `limit` entries, which stay there. Pass `None` as `after` for the first page,
    /// and then the [cursor](ShelfPage::next) of the previous page. With a `limit` of 0 the page is [empty](ShelfPage::empty),
    /// and the next one begins at the same position.
    ///
    /// Over all pages, an entry appears at most once. An entry that stays on the shelf from the first page to the last appears
    /// exactly once.
    ///
    /// # Errors
    ///
    /// If the broker cannot be reached. [`Unsupported`](crate::TransportErrorKind::Unsupported) if the cursor belongs to another
    /// shelf, or was not created by this transport.
    async fn browse(
        &self,
        shelf: Shelf,
        after: Option<&ShelfCursor>,
        limit: usize,
    ) -> Result<ShelfPage, TransportError>;

    /// Passes each entry of the shelf to `each`, in the order of [`browse`](Self::browse), until it answers
    /// [`ControlFlow::Break`]. The entries stay on the shelf. Memory for a page is needed, however large the shelf is.
    ///
    /// Returns who may have held entries meanwhile, so that they were not passed on. `None`: nobody that the broker tells of.
    ///
    /// By default it browses the shelf page by page, and asks [who holds entries](Self::holder) before and after. A transport
    /// whose pages read everything before them again implements it in one pass.
    ///
    /// # Errors
    ///
    /// [`Busy`](crate::TransportErrorKind::Busy) if others have the shelf: no entry was passed on. If the broker cannot be reached; some
    /// entries may have been passed on before.
    async fn scan(
        &self,
        shelf: Shelf,
        each: &mut (dyn FnMut(Shelved) -> ControlFlow<()> + Send),
    ) -> Result<Option<Holder>, TransportError> {
        const PAGE: usize = 250;
        let holder = self.holder(shelf).await?;
        let mut after = None;
        loop {
            let page = match self.browse(shelf, after.as_ref(), PAGE).await {
                // Trying again would pass entries on twice.
                Err(error) if error.kind() == TransportErrorKind::Busy && after.is_some() => {
                    return Err(TransportError::new(TransportErrorKind::Locked, error.to_string()));
                }
                page => page?,
            };
            after = page.next;
            if page.entries.into_iter().try_for_each(&mut *each).is_break() || after.is_none() {
                break;
            }
        }
        match holder {
            None => self.holder(shelf).await,
            holder => Ok(holder),
        }
    }

    /// Sends messages back to the consumer that failed, and to no other, as a first attempt ([`redriven`](crate::transport::redriven)).
    ///
    /// # Errors
    ///
    /// If the work cannot begin; everything is then still on the shelf. The report contains later errors.
    async fn redrive(&self, shelf: Shelf, which: &Selection) -> Result<ShelfReport, TransportError>;

    /// Moves messages from the dead-letter shelf to the parking shelf.
    ///
    /// # Errors
    ///
    /// The same as [`redrive`](Self::redrive).
    async fn park(&self, which: &Selection) -> Result<ShelfReport, TransportError>;

    /// Removes messages for good.
    ///
    /// # Errors
    ///
    /// The same as [`redrive`](Self::redrive).
    async fn discard(&self, shelf: Shelf, which: &Selection) -> Result<ShelfReport, TransportError>;

    /// Stores an edited message on the shelf, with the history of the entry ([`edited`]), and removes exactly that entry. Returns
    /// the handle of the stored message if the broker tells it; otherwise [browse](Self::browse) for it. A crash in between
    /// leaves both.
    ///
    /// # Errors
    ///
    /// [`NotFound`](crate::TransportErrorKind::NotFound) if no entry has this handle any more: nothing was stored.
    /// [`Unsupported`](crate::TransportErrorKind::Unsupported) if the broker lets nobody write to the shelf
    /// ([`redrive_as`](Self::redrive_as) works there too). After any other error the entry is still on the shelf, and the edited
    /// message may be there as well.
    async fn replace(
        &self,
        entry: &EntryHandle,
        message: Message,
    ) -> Result<Option<EntryHandle>, TransportError>;

    /// Sends an edited message back in place of the entry: does [`replace`](Self::replace) and then [`redrive`](Self::redrive),
    /// in one step. A crash in between leaves the entry on its shelf and the edited message in the queue.
    ///
    /// # Errors
    ///
    /// [`NotFound`](crate::TransportErrorKind::NotFound) if no entry has this handle any more: nothing was sent. After any other
    /// error the entry is still on the shelf, and the edited message may have been sent.
    async fn redrive_as(&self, entry: &EntryHandle, message: Message) -> Result<(), TransportError>;

    /// Puts a message back onto a shelf with the history that it has, to undo a discard: `message` is the message of an entry, as it was
    /// read before. Calling it twice stores it twice.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::TransportErrorKind::Unsupported) if the broker lets nobody write to the shelf, which is the default: nothing
    /// was stored. After another error it may be stored or not.
    async fn restore(&self, shelf: Shelf, message: Message) -> Result<(), TransportError> {
        let _ = message;
        let text = format!(
            "nobody can write to the {shelf} shelf here: publish the message to its work queue, as a redrive"
        );
        Err(TransportError::new(TransportErrorKind::Unsupported, text))
    }

    /// Returns a message as [`restore`](Self::restore) would store it, so that an operator knows before what will differ. By default it is
    /// stored as it is.
    fn as_restored(&self, message: &Message) -> Message {
        message.clone()
    }

    /// Waits until the broker has back whatever looks and actions held, also those that were dropped in the middle. Call it before the
    /// process ends: what a process holds when it ends may count as delivered. By default nothing is held.
    async fn given_back(&self) {}

    /// Looks at the work queue: whoever sends many messages back waits while nobody consumes it, or while it grows. By default
    /// nothing is known.
    ///
    /// # Errors
    ///
    /// If the broker cannot be reached, or the queue does not exist.
    async fn work_queue(&self) -> Result<WorkQueue, TransportError> {
        Ok(WorkQueue::default())
    }

    /// Begins to collect reports: consumers of redrive then report each message that they handled, of those that are redriven by the
    /// shelves which this returns. By default there are none (`None`), and only the shelves tell what failed.
    ///
    /// # Errors
    ///
    /// If the broker cannot be reached, or refuses it: redriving works without reports.
    async fn reported(&self) -> Result<Option<Reported>, TransportError> {
        Ok(None)
    }

    /// Begins work in many steps on one shelf, and keeps other clients that ask for the same from it. Others can still browse, and act
    /// without a lease.
    ///
    /// Where each action reads the shelf from its head, the leased shelves go on where the last one ended. They hold the entries
    /// that they passed, for at most some minutes: others do not see those meanwhile, and neither does
    /// [`browse`](Self::browse).
    ///
    /// By default there is no lease (`None`): act on these shelves.
    ///
    /// # Errors
    ///
    /// [`Locked`](crate::TransportErrorKind::Locked) if another client has the lease; or if the broker cannot be reached.
    async fn lease(&self, shelf: Shelf) -> Result<Option<Leased>, TransportError> {
        let _ = shelf;
        Ok(None)
    }
}

/// One page of a shelf.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ShelfPage {
    /// Entries, oldest first if the broker keeps an order.
    pub entries: Vec<Shelved>,
    /// Position where the next page begins; that page may be empty. `None`: no entries followed this page.
    pub next: Option<ShelfCursor>,
}

impl ShelfPage {
    /// Creates a page. For transports.
    #[must_use]
    pub fn new(entries: Vec<Shelved>, next: Option<ShelfCursor>) -> Self {
        Self { entries, next }
    }

    /// Creates the page for a `limit` of 0. For transports. The next page begins at the same position, so that nothing is
    /// skipped.
    ///
    /// # Errors
    ///
    /// The same as [`ShelfCursor::on`].
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
    /// Name of the entry, for acting on it.
    pub handle: EntryHandle,
    /// The message, with the headers that contain its history.
    pub message: Message,
    /// History, read from the headers.
    pub history: FailureHistory,
    /// The queue that the message failed in, as far as the broker or the history tells. Any publisher can write the history.
    pub failed_in: Option<String>,
    /// Whose entry this is. [`Owner::This`] on a shelf that only one work queue has.
    pub owner: Owner,
    /// When it was shelved, if the broker or the history tells.
    pub shelved_at: Option<SystemTime>,
    /// Why the broker, or a program other than redrive, dead-lettered the message, in that program's word; `None` if redrive did.
    pub broker_reason: Option<String>,
    /// Description of that reason, if the broker has one.
    pub broker_description: Option<String>,
}

impl Shelved {
    /// Creates an entry and reads its history. For transports. A transport that knows more sets [`shelved_at`](Self::shelved_at),
    /// [`broker_reason`](Self::broker_reason) and [`broker_description`](Self::broker_description); one whose shelves several work
    /// queues may share sets [`failed_in`](Self::failed_in) and [`owner`](Self::owner).
    #[must_use]
    pub fn new(handle: EntryHandle, message: Message) -> Self {
        let history = FailureHistory::read(&message);
        let (shelved_at, failed_in) = (history.last_failed_at, history.source_queue.clone());
        let (owner, broker_reason, broker_description) = (Owner::This, None, None);
        Self { handle, message, history, failed_in, owner, shelved_at, broker_reason, broker_description }
    }

    /// Refuses an entry of a queue that nobody listed as sharing the shelf: its handle alone does not ask for it by name. For transports,
    /// before each action on an entry.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](TransportErrorKind::Unsupported) if it is such an entry.
    pub fn check_owner(&self, queue: &str) -> Result<(), TransportError> {
        if self.owner != Owner::Other {
            return Ok(());
        }
        let failed_in = self.failed_in.as_deref().unwrap_or_default();
        let message = format!(
            "it failed in the queue `{failed_in}`, and that is not listed as sharing the shelf of `{queue}`: it stays where it is. Act on it \
             as an entry of `{failed_in}`, or list that queue"
        );
        Err(TransportError::new(TransportErrorKind::Unsupported, message))
    }

    /// Returns the word for why the message is here: redrive's reason, or [the broker's](Self::broker_reason) for an entry without
    /// one of redrive. [`Selection::Reason`] selects by it.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.history.reason.as_ref().map(Reason::as_str).or(self.broker_reason.as_deref())
    }
}

/// Selects entries of a shelf.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Selection {
    /// All entries that are there when the work begins, except [those of others](Owner::Other).
    All,
    /// Exactly these entries.
    Handles(HashSet<EntryHandle>),
    /// Entries that failed for this [reason](Shelved::reason), except [those of others](Owner::Other).
    Reason(String),
}

impl Selection {
    /// Selects exactly these entries.
    #[must_use]
    pub fn handles(handles: impl IntoIterator<Item = EntryHandle>) -> Self {
        Self::Handles(handles.into_iter().collect())
    }

    /// Returns true if this entry is selected.
    #[must_use]
    pub fn includes(&self, entry: &Shelved) -> bool {
        self.matches(entry) && !self.leaves_out(entry)
    }

    /// Returns true if this entry would be selected, and is left out because it is [of another queue](Owner::Other). For transports, which
    /// count it in the [report](ShelfReport::left_out).
    #[must_use]
    pub fn leaves_out(&self, entry: &Shelved) -> bool {
        let names_it = matches!(self, Self::Handles(_));
        entry.owner == Owner::Other && !names_it && self.matches(entry)
    }

    fn matches(&self, entry: &Shelved) -> bool {
        match self {
            Self::All => true,
            Self::Handles(handles) => handles.contains(&entry.handle),
            Self::Reason(word) => entry.reason() == Some(word),
        }
    }
}

impl From<EntryHandle> for Selection {
    fn from(handle: EntryHandle) -> Self {
        Self::handles([handle])
    }
}

/// Returns an edited message with the history of the entry that it replaces: redrive's headers are those of the entry, whatever
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
    use crate::header_names as names;
    use crate::headers::Value;

    fn entry(message: Message) -> Shelved {
        Shelved::new(EntryHandle::new(Shelf::DeadLetter, "1"), message)
    }

    #[test]
    fn the_reason_of_redrive_counts_before_that_of_the_broker() {
        let of_broker = |reason: &str, message| {
            let mut entry = entry(message);
            entry.broker_reason = Some(reason.to_owned());
            entry
        };
        let both = of_broker("delivery_limit", Message::new("").with_header(names::REASON, "Broken"));
        assert_eq!(both.history.reason.as_ref().map(Reason::as_str), Some("Broken"));
        assert!(Selection::Reason("Broken".into()).includes(&both));
        assert!(!Selection::Reason("delivery_limit".into()).includes(&both), "redrive's own word counts");
        assert!(Selection::Reason("expired".into()).includes(&of_broker("expired", Message::new(""))));
    }

    #[test]
    fn an_entry_of_another_queue_is_selected_by_no_word_and_acted_on_by_no_handle() {
        let mut other = entry(Message::new("").with_header(names::REASON, "Broken"));
        let word = Selection::Reason("Broken".into());
        let handle = Selection::from(other.handle.clone());
        for (owner, selected) in [(Owner::This, true), (Owner::Listed, true), (Owner::Other, false)] {
            (other.owner, other.failed_in) = (owner, Some("bills".into()));
            for selection in [&Selection::All, &word] {
                assert_eq!(selection.includes(&other), selected, "{selection:?} of {owner:?}");
                assert_eq!(selection.leaves_out(&other), !selected, "{selection:?} of {owner:?}");
            }
            assert!(handle.includes(&other) && !handle.leaves_out(&other));
            assert!(!Selection::Reason("Expired".into()).leaves_out(&other));
            assert_eq!(other.check_owner("orders").is_ok(), selected);
        }
        let refused = other.check_owner("orders").unwrap_err().to_string();
        assert!(refused.contains("failed in the queue `bills`") && refused.contains("`orders`"), "{refused}");
    }

    #[test]
    fn without_a_time_of_the_broker_that_of_the_last_failure_counts() {
        let failed = "2026-01-02T03:04:05Z";
        let ours = Message::new("").with_header(names::LAST_FAILED_AT, failed);
        assert_eq!(entry(ours).shelved_at, Some(humantime::parse_rfc3339_weak(failed).unwrap()));
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
