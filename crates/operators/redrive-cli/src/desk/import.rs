//! Puts back what was exported.

use std::collections::HashMap;
use std::path::PathBuf;

use anyhow::Result;
use redrive::Shelf;
use redrive::ops::{ContentDigest, ExportedEntry, JournalFolder};
use redrive::shelves::EntryHandle;

use super::restore::{Resolved, Restored, content, copies, lock, notes, resolve, restore, take, takes_back};
use super::restore_journal::RestoreJournal;
use super::{Desk, State};

/// Who holds the lock of the shelf, for those who are refused.
const HOLDER: &str = "redrive import";

/// Returns the file that notes what was imported to a shelf.
fn journal(folder: &JournalFolder, desk: &Desk, shelf: Shelf) -> PathBuf {
    folder.of_shelf(&desk.broker, &desk.queue, shelf, "imported")
}

/// What can be imported of a file.
pub(crate) struct Importing {
    /// How many messages the file has.
    pub(crate) all: usize,
    /// What was found out about those over which a process died, or that the broker did not answer.
    pub(crate) resolved: Resolved,
    /// How many were not imported before.
    pub(crate) new: usize,
    /// How many of these are on the shelf all the same.
    pub(crate) on_shelf: usize,
    /// What was imported before, to each shelf.
    before: Vec<(Shelf, RestoreJournal)>,
    entries: Vec<(EntryHandle, ExportedEntry)>,
    /// The line of the file of each entry, and how it was called when it was exported.
    lines: HashMap<EntryHandle, (u64, EntryHandle)>,
}

/// Reads what was imported before, and what is on the shelves: the same messages are put onto the same shelf once.
///
/// # Errors
///
/// If what was imported before, or a shelf, cannot be read.
pub(crate) async fn import(
    state: &State,
    desk: &Desk,
    shelf: Option<Shelf>,
    entries: Vec<(u64, ExportedEntry)>,
) -> Result<Importing> {
    let folder = state.journals()?;
    let journal = |shelf| journal(&folder, desk, shelf);
    let all = entries.len();
    let mut lines = HashMap::new();
    let named = entries.into_iter().enumerate().map(|(number, (line, entry))| {
        let name = imported_name(&entry, shelf.unwrap_or(entry.handle.shelf()), number);
        lines.insert(name.clone(), (line, entry.handle.clone()));
        (name, entry)
    });
    let mut entries: Vec<_> = named.collect();
    let resolved = resolve(state, desk, journal, &entries, HOLDER).await?;
    let mut before = Vec::new();
    for shelf in [Shelf::DeadLetter, Shelf::Parking] {
        before.push((shelf, RestoreJournal::read(&journal(shelf))?));
    }
    let is_new = |name: &EntryHandle| !before.iter().any(|(_, journal)| journal.begun.contains(name));
    let new = entries.iter().filter(|(name, _)| is_new(name)).count();
    for shelf in [Shelf::DeadLetter, Shelf::Parking] {
        let is_wanted = |name: &EntryHandle| name.shelf() == shelf && is_new(name);
        if entries.iter().any(|(name, _)| is_wanted(name)) {
            let mut there = copies(desk, shelf).await?;
            let (on_this, others) = entries.into_iter().partition(|(name, _)| name.shelf() == shelf);
            entries = others;
            entries.extend(not_there(on_this, &mut there, is_new, |entry| content(desk, entry)));
        }
    }
    entries.retain(|(name, _)| is_new(name));
    let on_shelf = new - entries.len();
    Ok(Importing { all, resolved, new, on_shelf, before, entries, lines })
}

/// Returns the entries of which no copy is on the shelf. A copy stands for one entry; first for those that were imported before.
fn not_there(
    entries: Vec<(EntryHandle, ExportedEntry)>,
    there: &mut HashMap<ContentDigest, usize>,
    is_new: impl Fn(&EntryHandle) -> bool,
    content: impl Fn(&ExportedEntry) -> ContentDigest,
) -> Vec<(EntryHandle, ExportedEntry)> {
    let (new, before): (Vec<_>, Vec<_>) = entries.into_iter().partition(|(name, _)| is_new(name));
    let mut is_there = |entry: &ExportedEntry| take(there, content(entry));
    for (_, entry) in &before {
        is_there(entry);
    }
    new.into_iter().filter(|(_, entry)| !is_there(entry)).collect()
}

/// Names an import: the shelf, the entry that was exported, and when. Two lines that are the same are two messages.
fn imported_name(entry: &ExportedEntry, shelf: Shelf, number: usize) -> EntryHandle {
    let at = entry.exported_at.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_millis();
    EntryHandle::new(shelf, format!("{at}-{number}-{}", entry.handle.entry()))
}

impl Importing {
    /// Returns the messages that can be imported.
    pub(crate) fn originals(&self) -> impl Iterator<Item = &ExportedEntry> {
        self.entries.iter().map(|(_, entry)| entry)
    }

    pub(crate) fn left(&self) -> usize {
        self.entries.len()
    }

    /// Returns where an entry is in the file.
    pub(crate) fn place(&self, name: &EntryHandle) -> String {
        self.lines
            .get(name)
            .map_or_else(|| name.to_string(), |(line, handle)| format!("line {line} ({handle})"))
    }

    /// Puts them onto the shelf. Returns what became of them.
    ///
    /// # Errors
    ///
    /// If a shelf is locked, or another command imported messages meanwhile: nothing is put back. If it cannot be noted.
    pub(crate) async fn run(&self, state: &State, desk: &Desk) -> Result<Restored> {
        let on_shelf = |shelf| self.entries.iter().filter(move |(name, _)| name.shelf() == shelf);
        let folder = state.journals()?;
        let mut locked = Vec::new();
        for (shelf, before) in &self.before {
            if on_shelf(*shelf).next().is_some() {
                takes_back(desk, *shelf)?;
                let lock = lock(state, desk, *shelf, HOLDER)?;
                locked.push((*shelf, notes(&journal(&folder, desk, *shelf), before)?, lock));
            }
        }
        let mut restored = Restored::default();
        for (shelf, notes, _lock) in locked {
            let entries = on_shelf(shelf).map(|(name, entry)| (name, entry));
            restored.extend(restore(&*desk.shelves, entries, notes).await);
            if restored.ended.is_some() {
                break;
            }
        }
        Ok(restored)
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use redrive::Message;
    use redrive::shelves::Shelved;

    use super::*;

    #[test]
    fn a_copy_on_the_shelf_stands_for_one_line_of_the_file() {
        let entry = |body: &str, number: u32| {
            let handle = EntryHandle::new(Shelf::DeadLetter, number.to_string());
            let shelved = Shelved::new(handle.clone(), Message::new(body.to_owned()));
            (handle, ExportedEntry::new("orders", &shelved, SystemTime::UNIX_EPOCH))
        };
        let left = |there: &[(&str, usize)], before: u32| {
            let entries = vec![entry("a", 1), entry("a", 2), entry("b", 3)];
            let content = |entry: &ExportedEntry| ContentDigest::of(&entry.for_shelf());
            let there = there.iter().map(|(body, copies)| (content(&entry(body, 9).1), *copies));
            let is_new = |name: &EntryHandle| name.entry() != before.to_string();
            let left = not_there(entries, &mut there.collect(), is_new, content);
            left.into_iter().map(|(name, _)| name.entry().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(left(&[], 0), ["1", "2", "3"]);
        assert_eq!(left(&[("a", 2), ("b", 1)], 0), [""; 0]);
        assert_eq!(left(&[("a", 1)], 0), ["2", "3"], "two identical messages, and one of them is there");
        assert_eq!(left(&[("a", 1)], 2), ["1", "3"], "the copy is the one that was imported before");
    }
}
