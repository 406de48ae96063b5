//! Stores an edited message.

use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use redrive::ops::{AuditAction, AuditCounts, AuditRecord, Edit, ExportedEntry, Operator};
use redrive::{EntryHandle, Shelved};

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
    let original =
        state.save_original(&ExportedEntry::new(&desk.queue, entry, now)).context("nothing was changed")?;
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
