//! Stores edited messages.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result, anyhow};
use redrive::ops::{AuditAction, AuditCounts, AuditRecord, Edit, ExportedEntry, Operator};
use redrive::transport::TransportErrorKind;
use redrive::{EntryHandle, Shelf, Shelved, Shelves};

use super::ledger::{Ledger, Noted, note};
use super::{Desk, State};

/// What becomes of an edited message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    SendBack,
    Keep,
}

/// What was done.
pub(crate) struct Stored {
    /// Where the original is.
    pub(crate) original: PathBuf,
    /// The handle of a message that was kept, if the broker tells it.
    pub(crate) handle: Option<EntryHandle>,
}

/// Writes the original to the disk, stores the edited message in its place, and notes that in the audit log.
///
/// # Errors
///
/// If the original cannot be written: nothing is changed. If the broker does not store it, or the audit log cannot be written.
pub(crate) async fn store(
    state: &State,
    desk: &Desk,
    entry: &Shelved,
    edit: Edit,
    then: Then,
    by: Operator,
) -> Result<Stored> {
    let mut audit = state.audit()?;
    let now = SystemTime::now();
    let original = state
        .save_edited([ExportedEntry::new(&desk.queue, entry, now)].iter())
        .context("nothing was changed")?;
    let parts: Vec<_> = edit.changed().iter().map(ToString::to_string).collect();
    let handle = match then {
        Then::Keep => desk.shelves.replace(&entry.handle, edit.into_message()).await?,
        Then::SendBack => {
            desk.shelves.redrive_as(&entry.handle, edit.into_message()).await?;
            None
        }
    };
    let shelf = entry.handle.shelf();
    let mut record = AuditRecord::new(by.who, by.host, now, AuditAction::Edit, &desk.queue, shelf)
        .filter(&format!("{}: {}", entry.handle, parts.join(", ")))
        .counts(AuditCounts::done(1));
    if let Some(reason) = &by.reason {
        record = record.reason(reason);
    }
    audit.append(&record).context("the edit is done, and could not be noted in the audit log")?;
    Ok(Stored { original, handle })
}

/// What was done of many edits.
pub(crate) struct StoredAll {
    /// Where the originals are.
    pub(crate) originals: PathBuf,
    pub(crate) done: u64,
    /// The handles of the edited messages, as far as the broker tells them.
    pub(crate) handles: Vec<EntryHandle>,
    /// Why it ended early.
    pub(crate) failed: Option<anyhow::Error>,
}

/// Edits that a program made.
pub(crate) struct Edits {
    ledger: PathBuf,
    pub(crate) edits: Vec<(Shelved, Edit)>,
    /// Entries that a process was editing when it died: their edited copies may be on the shelf beside them.
    pub(crate) uncertain: Vec<EntryHandle>,
}

impl Edits {
    /// Leaves out what a process that died may have edited.
    ///
    /// # Errors
    ///
    /// If what was edited before cannot be read.
    pub(crate) fn new(state: &State, desk: &Desk, edits: Vec<(Shelved, Edit)>) -> Result<Self> {
        let ledger = state.edited(&desk.broker, &desk.queue);
        let before = Ledger::read(&ledger)?;
        let (uncertain, edits): (Vec<_>, Vec<_>) =
            edits.into_iter().partition(|(entry, _)| before.is_uncertain(&entry.handle));
        let uncertain = uncertain.into_iter().map(|(entry, _)| entry.handle).collect();
        Ok(Self { ledger, edits, uncertain })
    }

    /// Writes the originals to the disk, stores each edited message on the shelf in place of its entry, and notes that in the audit log.
    ///
    /// # Errors
    ///
    /// If the originals cannot be written: nothing is changed. If the audit log cannot be written.
    pub(crate) async fn store(
        self,
        state: &State,
        desk: &Desk,
        by: Operator,
        filter: &str,
    ) -> Result<StoredAll> {
        let mut audit = state.audit()?;
        let now = SystemTime::now();
        let shelf = self.edits.first().map_or(Shelf::DeadLetter, |(entry, _)| entry.handle.shelf());
        let _lock = state.journals()?.lock(&desk.broker, &desk.queue, shelf, "redrive edit")?;
        let leased = desk.shelves.lease(shelf).await?;
        let shelves = leased.as_ref().map_or(&*desk.shelves, |leased| &*leased.shelves);
        let export = |(entry, _): &(Shelved, Edit)| ExportedEntry::new(&desk.queue, entry, now);
        let originals: Vec<_> = self.edits.iter().map(export).collect();
        let originals = state.save_edited(originals.iter()).context("nothing was changed")?;
        let mut stored = StoredAll { originals, done: 0, handles: Vec::new(), failed: None };
        let mut stop = std::pin::pin!(tokio::signal::ctrl_c());
        for (entry, edit) in self.edits {
            let mut keeping =
                std::pin::pin!(keep(shelves, &self.ledger, &entry.handle, edit, &mut stored.handles));
            let (kept, is_stopped) = tokio::select! {
                biased;
                kept = &mut keeping => (kept, false),
                _ = &mut stop => tokio::select! {
                    kept = keeping => (kept, true),
                    // What was begun is in the ledger.
                    _ = tokio::signal::ctrl_c() => std::process::exit(130),
                },
            };
            stored.done += u64::from(kept.is_ok());
            stored.failed = kept.err().or_else(|| is_stopped.then(|| anyhow!("interrupted")));
            if stored.failed.is_some() {
                break;
            }
        }
        if let Some(leased) = &leased {
            leased.lease.end().await;
        }
        let mut record = AuditRecord::new(by.who, by.host, now, AuditAction::Edit, &desk.queue, shelf)
            .filter(filter)
            .counts(AuditCounts::done(stored.done));
        if let Some(reason) = &by.reason {
            record = record.reason(reason);
        }
        audit.append(&record).context("the edits are done, and could not be noted in the audit log")?;
        Ok(stored)
    }
}

async fn keep(
    shelves: &dyn Shelves,
    ledger: &Path,
    entry: &EntryHandle,
    edit: Edit,
    handles: &mut Vec<EntryHandle>,
) -> Result<()> {
    note(ledger, entry, Noted::Begun)?;
    match shelves.replace(entry, edit.into_message()).await {
        Ok(handle) => handles.extend(handle),
        Err(error) => {
            use TransportErrorKind::{Full, NotFound, TooLarge, Unsupported};
            if matches!(error.kind(), Full | NotFound | TooLarge | Unsupported) {
                note(ledger, entry, Noted::NotStored)?;
            }
            return Err(anyhow::Error::from(error).context(format!("cannot keep the edit of {entry}")));
        }
    }
    note(ledger, entry, Noted::Done)
}
