//! Stores an edited message.

use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use redrive::ops::{AuditAction, AuditCounts, AuditRecord, Edit, EditError, ExportedEntry, Operator};
use redrive::shelves::{EntryHandle, Shelved};

use super::{Desk, State};

/// What happens to an edited message.
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

/// Returns why an edit is not made, and what to do. No option allows the edit of a locked part.
pub(crate) fn refused(handle: &EntryHandle, error: EditError) -> anyhow::Error {
    let what_to_do = match &error {
        EditError::Sensitive(_) => "; --sensitive confirms such an edit",
        _ => "",
    };
    anyhow::Error::from(error).context(format!("the edit of {handle} is not made{what_to_do}"))
}

#[cfg(test)]
mod tests {
    use redrive::ops::SensitiveEdits;
    use redrive::{Message, Shelf};

    use super::*;
    use crate::exit::chain;

    #[test]
    fn only_what_it_can_allow_is_refused_with_a_hint_of_the_option() {
        let handle = EntryHandle::new(Shelf::DeadLetter, "1");
        let message = Message::new("");
        let text = |edited, sensitive| {
            chain(&refused(&handle, Edit::between(&message, edited, sensitive).unwrap_err()))
        };
        let locked = message.clone().with_header("redrive-attempt", 1_i64);
        for sensitive in [SensitiveEdits::Refuse, SensitiveEdits::Allow] {
            let text = text(locked.clone(), sensitive);
            assert!(text.contains("header redrive-attempt") && !text.contains("--sensitive"), "{text}");
        }
        let text = text(message.clone().with_id("7"), SensitiveEdits::Refuse);
        assert!(text.contains("property id") && text.contains("--sensitive confirms"), "{text}");
    }
}
