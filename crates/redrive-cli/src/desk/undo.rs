//! Brings back what a run discarded, or what was exported.

use std::collections::HashSet;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use redrive::ops::{
    AuditAction, AuditCounts, AuditRecord, EntryState, ExportLines, ExportedEntry, Operator, PlanAction,
    Replay,
};
use redrive::{EntryHandle, Shelf, Shelves};

use super::ledger::{Ledger, Noted, note};
use super::{Desk, State};
use crate::exit::usage;

/// What can be brought back of a run.
pub(crate) struct Undoing {
    run: String,
    replay: Replay,
    ledger: PathBuf,
    /// How many messages were discarded.
    pub(crate) removed: usize,
    /// How many were being restored when a process died.
    pub(crate) uncertain: usize,
    entries: Vec<ExportedEntry>,
}

impl Undoing {
    /// Reads what can be brought back.
    ///
    /// # Errors
    ///
    /// If the run discarded nothing, or its journal or its originals cannot be read.
    pub(crate) fn of(state: &State, run: &str) -> Result<Self> {
        let replay = state.journals()?.read(run)?;
        let originals = state.originals(run);
        if replay.header.plan.action() != PlanAction::Discard {
            return Err(usage(format!(
                "only a discard can be undone: its consumer may have handled what was redriven. The originals are in {}",
                originals.display()
            )));
        }
        let ledger = state.undone(run);
        let before = Ledger::read(&ledger)?;
        let removed = removed(&replay);
        let file = File::open(&originals)
            .with_context(|| format!("cannot open the originals {}", originals.display()))?;
        let mut entries: Vec<_> = ExportLines::new(BufReader::new(file)).collect::<Result<_, _>>()?;
        entries.retain(|entry| removed.contains(&entry.handle));
        let uncertain = entries.iter().filter(|entry| before.is_uncertain(&entry.handle)).count();
        entries.retain(|entry| !before.begun.contains(&entry.handle));
        Ok(Self { run: run.to_owned(), replay, ledger, removed: removed.len(), uncertain, entries })
    }

    /// Returns the queue of the run.
    pub(crate) fn queue(&self) -> &str {
        self.replay.header.plan.queue()
    }

    /// Returns how many messages can be restored.
    pub(crate) fn left(&self) -> usize {
        self.entries.len()
    }

    /// Restores them. Returns how many, and why it ended early.
    ///
    /// # Errors
    ///
    /// If the run is one of another broker, or its files or the audit log cannot be written.
    pub(crate) async fn run(
        &self,
        state: &State,
        desk: &Desk,
        by: Operator,
    ) -> Result<(u64, Option<anyhow::Error>)> {
        let header = &self.replay.header;
        if header.broker != desk.broker {
            return Err(usage(format!("this run is one of {}, and not of {}", header.broker, desk.broker)));
        }
        let mut audit = state.audit()?;
        let (done, failed) =
            restore(&*desk.shelves, self.entries.iter().map(|entry| (&entry.handle, entry)), &self.ledger)
                .await?;
        let (now, shelf) = (SystemTime::now(), header.plan.shelf());
        let mut record =
            AuditRecord::new(by.who, by.host, now, AuditAction::Import, header.plan.queue(), shelf)
                .run_id(&self.run)
                .counts(AuditCounts::done(done));
        if let Some(reason) = &by.reason {
            record = record.reason(reason);
        }
        audit
            .append(&record)
            .context("the messages are restored, and that could not be noted in the audit log")?;
        Ok((done, failed))
    }
}

/// What can be imported of a file.
pub(crate) struct Importing {
    /// How many messages the file has.
    pub(crate) all: usize,
    /// How many were being imported when a process died.
    pub(crate) uncertain: usize,
    ledger: PathBuf,
    entries: Vec<(EntryHandle, ExportedEntry)>,
}

/// Reads what was imported before: the same messages are put onto the same shelf once.
///
/// # Errors
///
/// If what was imported before cannot be read.
pub(crate) fn import(
    state: &State,
    desk: &Desk,
    shelf: Option<Shelf>,
    entries: Vec<ExportedEntry>,
) -> Result<Importing> {
    let ledger = state.imported(&desk.broker, &desk.queue);
    let before = Ledger::read(&ledger)?;
    let all = entries.len();
    let named = entries.into_iter().enumerate().map(|(number, entry)| {
        let name = imported_name(&entry, shelf.unwrap_or(entry.handle.shelf()), number);
        (name, entry)
    });
    let mut entries: Vec<_> = named.collect();
    let uncertain = entries.iter().filter(|(name, _)| before.is_uncertain(name)).count();
    entries.retain(|(name, _)| !before.begun.contains(name));
    Ok(Importing { all, uncertain, ledger, entries })
}

/// Names an import: the shelf, the entry that was exported, and when. Two lines that are the same are two messages.
fn imported_name(entry: &ExportedEntry, shelf: Shelf, number: usize) -> EntryHandle {
    let at = entry.exported_at.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_millis();
    EntryHandle::new(shelf, format!("{at}-{number}-{}", entry.handle.entry()))
}

impl Importing {
    pub(crate) fn left(&self) -> usize {
        self.entries.len()
    }

    /// Puts them onto the shelf. Returns how many, and why it ended early.
    ///
    /// # Errors
    ///
    /// If it cannot be noted.
    pub(crate) async fn run(&self, desk: &Desk) -> Result<(u64, Option<anyhow::Error>)> {
        let entries = self.entries.iter().map(|(name, entry)| (name, entry));
        restore(&*desk.shelves, entries, &self.ledger).await
    }
}

/// Restores one entry after the other, each noted before and after. Returns how many, and why it ended early.
///
/// # Errors
///
/// If the ledger cannot be written: the entry is not restored.
async fn restore<'a>(
    shelves: &dyn Shelves,
    entries: impl Iterator<Item = (&'a EntryHandle, &'a ExportedEntry)>,
    ledger: &Path,
) -> Result<(u64, Option<anyhow::Error>)> {
    let mut done = 0;
    for (name, entry) in entries {
        note(ledger, name, Noted::Begun)?;
        if let Err(error) = shelves.restore(name.shelf(), entry.for_shelf()).await {
            let nothing_stored = error.kind() == redrive::transport::TransportErrorKind::Unsupported;
            if nothing_stored {
                note(ledger, name, Noted::NotStored)?;
            }
            return Ok((done, Some(error.into())));
        }
        note(ledger, name, Noted::Done)?;
        done += 1;
    }
    Ok((done, None))
}

/// Returns the entries that the run removed, as its journal says.
fn removed(replay: &Replay) -> HashSet<EntryHandle> {
    let is_removed = |state: &EntryState| matches!(state, EntryState::Done | EntryState::Gone);
    replay.states.iter().filter(|(_, state)| is_removed(state)).map(|(handle, _)| handle.clone()).collect()
}
