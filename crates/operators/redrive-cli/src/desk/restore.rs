//! Restores messages to a shelf: once, whatever dies, and whoever else restores them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail};
use redrive::ops::{AuditCounts, ContentDigest, ExportedEntry, ShelfLock};
use redrive::shelves::{EntryHandle, Shelved};
use redrive::{Shelf, Shelves, TransportError, TransportErrorKind};
use tokio::time::Instant;

use super::absence::{again_at, look_alone};
use super::restore_journal::{Noted, Notes, RestoreJournal};
use super::{Desk, State};
use crate::exit::chain;
use crate::output::plural;

/// Locks the shelf as runs and edits do: two commands at once would restore every message twice.
pub(super) fn lock(state: &State, desk: &Desk, shelf: Shelf, holder: &str) -> Result<ShelfLock> {
    let locked = state.journals()?.lock(&desk.broker, &desk.queue, shelf, holder);
    locked.context("nothing was restored")
}

/// Refuses a shelf that takes nothing back, before anything is noted.
///
/// # Errors
///
/// If it is the dead-letter queue of Service Bus.
pub(super) fn takes_back(desk: &Desk, shelf: Shelf) -> Result<()> {
    if desk.can_restore(shelf) {
        return Ok(());
    }
    bail!(
        "Service Bus lets nobody send to the dead-letter queue of `{}`: nothing was restored. Messages can be put onto the parking \
         shelf, or published to the work queue again",
        desk.queue
    )
}

/// Opens the journal to write, under the lock.
///
/// # Errors
///
/// If another command has restored messages since it was read.
pub(super) fn notes(journal: &Path, before: &RestoreJournal) -> Result<Notes> {
    if RestoreJournal::read(journal)? != *before {
        bail!("another command restored messages meanwhile: nothing was restored. Run the command again");
    }
    Notes::open(journal)
}

/// What a try before had stored, of the entries over which it died or got no answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) on_shelf: usize,
    /// They can be tried again.
    pub(crate) not_there: usize,
}

impl Resolved {
    /// Says it, if there was something to find out.
    pub(crate) fn line(self) -> Option<String> {
        let all = self.on_shelf + self.not_there;
        (all > 0).then(|| {
            format!(
                "a try before died over {}, or got no answer: {} on the shelf by their content, {} not",
                plural(all, "message"),
                self.on_shelf,
                self.not_there
            )
        })
    }
}

/// Finds out what a try before had stored, by two looks at the shelves, and notes it.
///
/// # Errors
///
/// If a shelf is locked or cannot be read, or another client may hold entries of it: nothing is noted.
pub(super) async fn resolve(
    state: &State,
    desk: &Desk,
    journal: impl Fn(Shelf) -> PathBuf,
    entries: &[(EntryHandle, ExportedEntry)],
    holder: &str,
) -> Result<Resolved> {
    let mut resolved = Resolved::default();
    for shelf in [Shelf::DeadLetter, Shelf::Parking] {
        let journal = &journal(shelf);
        let on_this = || entries.iter().filter(|(name, _)| name.shelf() == shelf);
        let is_in_doubt = |journal: &RestoreJournal| on_this().any(|(name, _)| journal.is_uncertain(name));
        if !is_in_doubt(&RestoreJournal::read(journal)?) {
            continue;
        }
        let _lock = lock(state, desk, shelf, holder)?;
        // Another command may have gone on until the lock was free.
        let before = RestoreJournal::read(journal)?;
        if !is_in_doubt(&before) {
            continue;
        }
        let began = Instant::now();
        let mut there = copies(desk, shelf).await?;
        tokio::time::sleep_until(again_at(began)).await;
        for (content, count) in copies(desk, shelf).await? {
            let most = there.entry(content).or_default();
            *most = count.max(*most);
        }
        // A copy stands for one entry; first for those that are certainly stored.
        let is_done = |name: &EntryHandle| before.begun.contains(name) && !before.is_uncertain(name);
        for (_, entry) in on_this().filter(|(name, _)| is_done(name)) {
            take(&mut there, content(desk, entry));
        }
        let mut notes = Notes::open(journal)?;
        for (name, entry) in on_this().filter(|(name, _)| before.is_uncertain(name)) {
            let is_there = take(&mut there, content(desk, entry));
            notes.note(name, if is_there { Noted::Done } else { Noted::NotStored })?;
            *(if is_there { &mut resolved.on_shelf } else { &mut resolved.not_there }) += 1;
        }
    }
    Ok(resolved)
}

/// Counts the messages on a shelf by their content. A parking shelf that the broker does not have is empty.
///
/// # Errors
///
/// If it cannot be read, or another client may hold entries of it.
pub(super) async fn copies(desk: &Desk, shelf: Shelf) -> Result<HashMap<ContentDigest, usize>> {
    let mut there = HashMap::new();
    let now = SystemTime::now();
    let each = |entry: Shelved| {
        *there.entry(content(desk, &ExportedEntry::new(&desk.queue, &entry, now))).or_default() += 1;
    };
    match look_alone(desk, shelf, each).await {
        Err(error)
            if shelf == Shelf::Parking
                && error.downcast_ref().is_some_and(TransportError::is_missing_shelf) => {}
        looked => {
            looked.with_context(|| format!("cannot compare with the {shelf} shelf: nothing was put back"))?;
        }
    }
    Ok(there)
}

/// Returns the content with which an entry comes back onto a shelf.
pub(super) fn content(desk: &Desk, entry: &ExportedEntry) -> ContentDigest {
    ContentDigest::of(&desk.shelves.as_restored(&entry.for_shelf()))
}

/// Takes a copy with this content away. Returns false if there is none.
pub(super) fn take(there: &mut HashMap<ContentDigest, usize>, content: ContentDigest) -> bool {
    match there.get_mut(&content) {
        Some(copies) if *copies > 0 => {
            *copies -= 1;
            true
        }
        _ => false,
    }
}

/// What became of entries that were to be restored.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    pub(crate) done: u64,
    /// Those that the broker did not store, and why. A repeat tries them again.
    pub(crate) refused: Vec<(EntryHandle, String)>,
    /// Why the work ended before the last entry.
    pub(crate) ended: Option<anyhow::Error>,
}

/// Number of refusals in a row, for a reason that is not clear, after which all messages are taken to be refused.
const REFUSALS_IN_A_ROW: u32 = 3;

/// Restores one entry after the other, each noted before and after: if the journal cannot be written, the entry is not restored.
/// A message that the broker cannot carry stops no other.
pub(super) async fn restore<'a>(
    shelves: &dyn Shelves,
    entries: impl Iterator<Item = (&'a EntryHandle, &'a ExportedEntry)>,
    mut notes: Notes,
) -> Restored {
    let mut restored = Restored::default();
    let mut in_a_row = 0;
    for (name, entry) in entries {
        let error = match restore_one(shelves, name, entry, &mut notes).await {
            Ok(None) => {
                restored.done += 1;
                in_a_row = 0;
                continue;
            }
            Ok(Some(error)) => error,
            Err(failed) => {
                restored.done += u64::from(failed.is_stored);
                restored.ended = Some(failed.error);
                break;
            }
        };
        in_a_row = if is_of_one_message(&error) { 0 } else { in_a_row + 1 };
        let may_be_stored = !error.is_certainly_not_stored();
        if may_be_stored || is_of_all(&error) || in_a_row == REFUSALS_IN_A_ROW {
            restored.ended = Some(error.into());
            break;
        }
        restored.refused.push((name.clone(), with_causes(&error)));
    }
    restored
}

/// The broker can never store this message.
fn is_of_one_message(error: &TransportError) -> bool {
    matches!(error.kind(), TransportErrorKind::Unsupported | TransportErrorKind::TooLarge)
}

/// The broker stores no message now.
fn is_of_all(error: &TransportError) -> bool {
    use TransportErrorKind::{Closed, Full, NotSent, Unauthorized, Unreachable, Unroutable};
    match error.kind() {
        Closed | Full | NotSent | Unauthorized | Unreachable => true,
        // The shelf is missing, unless the reason may lie in this message.
        Unroutable => !error.is_unclear(),
        _ => false,
    }
}

/// The journal could not be written.
struct NotNoted {
    error: anyhow::Error,
    is_stored: bool,
}

/// Restores one entry. Returns why the broker did not store it.
async fn restore_one(
    shelves: &dyn Shelves,
    name: &EntryHandle,
    entry: &ExportedEntry,
    notes: &mut Notes,
) -> Result<Option<TransportError>, NotNoted> {
    let not_noted = |is_stored| move |error| NotNoted { error, is_stored };
    notes.note(name, Noted::Begun).map_err(not_noted(false))?;
    if let Err(error) = shelves.restore(name.shelf(), entry.for_shelf()).await {
        if error.is_certainly_not_stored() {
            let noted = notes.note(name, Noted::NotStored).with_context(|| error.to_string());
            noted.map_err(not_noted(false))?;
        }
        return Ok(Some(error));
    }
    notes.note(name, Noted::Done).map_err(not_noted(true))?;
    Ok(None)
}

fn with_causes(error: &TransportError) -> String {
    chain(&anyhow::Error::from(error.clone()))
}

impl Restored {
    /// Adds what became of further entries.
    pub(super) fn extend(&mut self, other: Self) {
        self.done += other.done;
        self.refused.extend(other.refused);
        self.ended = other.ended;
    }

    pub(crate) fn counts(&self) -> AuditCounts {
        let mut counts = AuditCounts::done(self.done);
        counts.failed = self.refused.len() as u64;
        counts
    }

    /// Returns what was not put back, each with its reason; of many the first ones.
    pub(crate) fn refusals(&self, place: impl Fn(&EntryHandle) -> String) -> Vec<String> {
        let shown = self.refused.iter().take(SHOWN);
        let mut lines: Vec<_> = shown.map(|(name, why)| format!("{}: {why}", place(name))).collect();
        if let Some(more @ 1..) = self.refused.len().checked_sub(SHOWN) {
            lines.push(format!("and {more} more"));
        }
        lines
    }
}

/// How many refused messages are named.
const SHOWN: usize = 20;
