//! What was restored to a shelf, entry by entry, on the disk: noted before and after, so that a process that dies leaves few in doubt.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context as _, Result};
use redrive::ops::{JournalFile, JournalRecord};
use redrive::shelves::EntryHandle;
use serde::{Deserialize, Serialize};

/// What was stored before.
#[derive(Debug, Default, PartialEq)]
pub(super) struct RestoreJournal {
    pub(super) begun: HashSet<EntryHandle>,
    done: HashSet<EntryHandle>,
}

#[derive(Serialize, Deserialize)]
struct Note {
    handle: String,
    state: Noted,
}

/// What is noted of one entry.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Noted {
    Begun,
    Done,
    NotStored,
}

impl JournalRecord for Note {
    const KIND: &'static str = "restored";
    const VERSION: u32 = 1;
    const IF_LOST: &'static str =
        "compare the shelf with the messages that were to be restored, then move this file away";
}

impl RestoreJournal {
    /// Reads a file; one that does not exist is empty.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let mut journal = Self::default();
        JournalFile::read(path, |note| journal.add(note))?;
        Ok(journal)
    }

    fn add(&mut self, Note { handle, state }: Note) -> Result<()> {
        let handle: EntryHandle = handle.parse()?;
        match state {
            Noted::Begun => {
                self.done.remove(&handle);
                self.begun.insert(handle)
            }
            Noted::Done => self.done.insert(handle),
            Noted::NotStored => self.begun.remove(&handle),
        };
        Ok(())
    }

    /// A process died while it stored this one, or had no answer.
    pub(super) fn is_uncertain(&self, handle: &EntryHandle) -> bool {
        self.begun.contains(handle) && !self.done.contains(handle)
    }
}

/// Writes a [`RestoreJournal`]. The shelf must be locked.
pub(super) struct Notes(JournalFile<Note>);

impl Notes {
    /// Opens a file, or creates it.
    pub(super) fn open(path: &Path) -> Result<Self> {
        Ok(Self(JournalFile::open_or_create(path, |_| Ok::<_, String>(()))?))
    }

    /// Notes what happens to an entry, and returns when that is on the disk.
    ///
    /// # Errors
    ///
    /// If it cannot be written: the entry must not be stored then.
    pub(super) fn note(&mut self, entry: &EntryHandle, state: Noted) -> Result<()> {
        let note = Note { handle: entry.to_string(), state };
        self.0.commit(&[note]).context("nothing more is stored")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_had_begun_is_uncertain_and_a_torn_line_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let handle = |entry: &str| -> EntryHandle { format!("dead-letter/{entry}").parse().unwrap() };
        let notes = [
            ("1", Noted::Begun),
            ("1", Noted::Done),
            ("2", Noted::Begun),
            ("3", Noted::Begun),
            ("3", Noted::NotStored),
        ];
        for (entry, state) in notes {
            Notes::open(&path).unwrap().note(&handle(entry), state).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}{{\"handle\":\"dead-le")).unwrap();
        let journal = RestoreJournal::read(&path).unwrap();
        assert!(journal.begun.contains(&handle("1")) && !journal.is_uncertain(&handle("1")));
        assert!(journal.is_uncertain(&handle("2")));
        assert!(!journal.begun.contains(&handle("3")), "it can be tried again");
        Notes::open(&path).unwrap().note(&handle("2"), Noted::Done).unwrap();
        assert!(!RestoreJournal::read(&path).unwrap().is_uncertain(&handle("2")));
        std::fs::write(&path, format!("{text}{{}}\n")).unwrap();
        assert!(RestoreJournal::read(&path).unwrap_err().to_string().contains("line 7"));
    }
}
