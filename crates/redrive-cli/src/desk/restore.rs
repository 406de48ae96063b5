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

/// Restores one entry after the other, each noted before and after. Returns how many, and why it ended early.
///
/// # Errors
///
/// If the journal cannot be written: the entry is not restored.
pub(super) async fn restore<'a>(
    shelves: &dyn Shelves,
    entries: impl Iterator<Item = (&'a EntryHandle, &'a ExportedEntry)>,
    journal: &Path,
) -> Result<(u64, Option<anyhow::Error>)> {
    let mut done = 0;
    for (name, entry) in entries {
        note(journal, name, Noted::Begun)?;
        if let Err(error) = shelves.restore(name.shelf(), entry.for_shelf()).await {
            if error.kind().is_certainly_not_stored() {
                note(journal, name, Noted::NotStored)?;
            }
            return Ok((done, Some(error.into())));
        }
        note(journal, name, Noted::Done)?;
        done += 1;
    }
    Ok((done, None))
}
