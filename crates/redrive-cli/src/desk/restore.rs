//! Restores messages to a shelf: once, whatever dies, and whoever else restores them.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use redrive::ops::{ExportedEntry, ShelfLock};
use redrive::{EntryHandle, Shelf, Shelves};

use super::restore_journal::{Noted, RestoreJournal, note};
use super::{Desk, State};

/// Locks the shelf as runs and edits do: two commands at once would restore every message twice.
pub(super) fn lock(state: &State, desk: &Desk, shelf: Shelf, holder: &str) -> Result<ShelfLock> {
    let locked = state.journals()?.lock(&desk.broker, &desk.queue, shelf, holder);
    locked.context("nothing was restored")
}

/// Reads the journal again, under the lock.
///
/// # Errors
///
/// If another command has restored messages since it was read.
pub(super) fn is_unchanged(journal: &Path, before: &RestoreJournal) -> Result<()> {
    if RestoreJournal::read(journal)? != *before {
        bail!("another command restored messages meanwhile: nothing was restored. Run the command again");
    }
    Ok(())
}

/// Restores one entry after the other, each noted before and after: if the journal cannot be written, the entry is not restored.
/// Returns how many, and why it ended early.
pub(super) async fn restore<'a>(
    shelves: &dyn Shelves,
    entries: impl Iterator<Item = (&'a EntryHandle, &'a ExportedEntry)>,
    journal: &Path,
) -> (u64, Option<anyhow::Error>) {
    let mut done = 0;
    for (name, entry) in entries {
        if let Err(failed) = restore_one(shelves, name, entry, journal, &mut done).await {
            return (done, Some(failed));
        }
    }
    (done, None)
}

async fn restore_one(
    shelves: &dyn Shelves,
    name: &EntryHandle,
    entry: &ExportedEntry,
    journal: &Path,
    done: &mut u64,
) -> Result<()> {
    note(journal, name, Noted::Begun)?;
    if let Err(error) = shelves.restore(name.shelf(), entry.for_shelf()).await {
        if error.is_certainly_not_stored() {
            note(journal, name, Noted::NotStored).with_context(|| error.to_string())?;
        }
        return Err(error.into());
    }
    *done += 1;
    note(journal, name, Noted::Done)
}
