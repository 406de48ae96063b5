//! Stores the edits that a program made, and goes on where a command before died.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::{Context as _, Result, anyhow, bail};
use redrive::TransportErrorKind;
use redrive::ops::{AuditAction, AuditCounts, AuditRecord, Edit, ExportedEntry, Operator, ShelfLock};
use redrive::shelves::{EntryHandle, Shelved, edited};
use redrive::{Shelf, Shelves};
use tokio::time::Instant;

use super::absence::{again_at, look_alone, may_try_again};
use super::edit_journal::{Became, Begin, Copy, EditJournal, Ended, Past, Reached, Unaudited};
use super::{Desk, State};
use crate::exit::EndSignals;
use crate::interrupt::INTERRUPTED;
use crate::output::note;

/// Who holds the lock of the shelf, for those who are refused.
const HOLDER: &str = "redrive edit";

/// What was edited on a shelf before.
pub(crate) struct Before {
    shelf: Shelf,
    path: PathBuf,
    past: Past,
    /// Length of the journal.
    len: u64,
}

impl Before {
    /// Reads what was edited before. To be called before the shelf is read.
    ///
    /// # Errors
    ///
    /// If another run or edit works on the shelf now, or the journal cannot be read.
    pub(crate) fn read(state: &State, broker: &str, queue: &str, shelf: Shelf) -> Result<Self> {
        // What has no result gets none any more: nobody works on it.
        let folder = state.journals()?;
        drop(folder.lock(broker, queue, shelf, HOLDER)?);
        let path = folder.of_shelf(broker, queue, shelf, "edited");
        let (past, len) = EditJournal::read(&path)?;
        Ok(Self { shelf, path, past, len })
    }

    /// Finds out what became of the entries that processes that died had begun, by two looks at the shelf. A process whose connection the
    /// broker takes for alive still has the lease, and holds entries: nothing is judged then.
    ///
    /// # Errors
    ///
    /// If another client has the lease of the shelf or may hold entries of it, or it cannot be read.
    pub(crate) async fn judge(&self, desk: &Desk) -> Result<Vec<(EntryHandle, Became)>> {
        if !self.past.is_open() {
            return Ok(Vec::new());
        }
        let began = Instant::now();
        let first = self.look(desk).await?;
        tokio::time::sleep_until(again_at(began)).await;
        let second = self.look(desk).await?;
        let agreed = |(entry, first): (EntryHandle, Became)| {
            let is_same = second.contains(&(entry.clone(), first.clone()));
            (entry, if is_same { first } else { Became::Uncertain })
        };
        Ok(first.into_iter().map(agreed).collect())
    }

    async fn look(&self, desk: &Desk) -> Result<Vec<(EntryHandle, Became)>> {
        let mut there = Vec::new();
        let each = |entry: Shelved| {
            if self.past.concerns(&entry) {
                there.push(entry);
            }
        };
        let looked = look_alone(desk, self.shelf, each).await;
        looked
            .context("cannot find out which messages an interrupted edit had stored: nothing was changed")?;
        Ok(self.past.became(&there.iter().collect::<Vec<_>>()))
    }
}

/// Edits that a program made, without what a process that died may have stored.
pub(crate) struct Edits {
    before: Before,
    shelf: Shelf,
    /// The selection and the program: by it, a command knows that it is the same.
    filter: String,
    /// What became of what processes that died had begun.
    became: Vec<(EntryHandle, Became)>,
    pub(crate) edits: Vec<(Shelved, Edit)>,
    /// Entries that are left out: their edited copies may be on the shelf beside them.
    pub(crate) uncertain: Vec<EntryHandle>,
}

impl Edits {
    /// Leaves out what a process that died may have edited.
    pub(crate) fn new(
        before: Before,
        became: Vec<(EntryHandle, Became)>,
        filter: String,
        edits: Vec<(Shelved, Edit)>,
    ) -> Self {
        let shelf = before.shelf;
        let in_doubt: HashSet<_> = became
            .iter()
            .filter(|(_, became)| *became == Became::Uncertain)
            .map(|(entry, _)| entry)
            .collect();
        let (uncertain, edits): (Vec<_>, Vec<_>) =
            edits.into_iter().partition(|(entry, _)| in_doubt.contains(&entry.handle));
        let uncertain = uncertain.into_iter().map(|(entry, _)| entry.handle).collect();
        Self { before, shelf, filter, became, edits, uncertain }
    }

    /// Returns the entries that left the shelf while a process was editing them, without a copy.
    pub(crate) fn gone(&self) -> impl Iterator<Item = &EntryHandle> {
        self.became.iter().filter(|(_, became)| *became == Became::Gone).map(|(entry, _)| entry)
    }

    /// Returns true if a command before was not finished: its edits are in no plan, or not in the audit log.
    pub(crate) fn has_rest(&self) -> bool {
        let past = &self.before.past;
        !past.unaudited().is_empty()
            || !past.unplanned(&self.filter).is_empty()
            || self.became.iter().any(|(_, became)| matches!(became, Became::Edited(_)))
    }

    /// Writes the originals to the disk, stores each edited message on the shelf in place of its entry, and notes that in the journal and
    /// the audit log; also what commands before did not note there. `progress` is told how many are edited.
    ///
    /// # Errors
    ///
    /// If the shelf is locked, or the originals or the journal cannot be written: nothing is changed. If the audit log cannot be written.
    pub(crate) async fn store(
        self,
        state: &State,
        desk: &Desk,
        by: Operator,
        progress: impl Fn(u64),
    ) -> Result<StoredAll> {
        let Self { before: Before { path, len, .. }, shelf, filter, became, edits, .. } = self;
        let mut audit = state.audit()?;
        let lock = state.journals()?.lock(&desk.broker, &desk.queue, shelf, HOLDER)?;
        if EditJournal::read(&path)?.1 != len {
            bail!(
                "another command edited messages of this shelf meanwhile: nothing was changed. Run the command again"
            );
        }
        let mut journal = EditJournal::open(&path)?;
        resolve(&mut journal, &became)?;
        let (past, _) = EditJournal::read(&path)?;
        let unaudited = past.unaudited();
        for Unaudited { begin, done } in unaudited.iter().filter(|rest| rest.done > 0) {
            let record = record(desk, shelf, begin.by.clone(), &begin.filter, *done);
            audit.append(&record).context("nothing was changed: cannot write the audit log")?;
        }
        if !unaudited.is_empty() {
            journal.reached(Reached::Audited)?;
        }
        let earlier = past.unplanned(&filter);
        let mut stored = StoredAll {
            originals: None,
            done: 0,
            earlier: earlier.len(),
            handles: earlier.into_iter().flatten().collect(),
            messages: Vec::new(),
            failed: None,
            journal,
            _lock: lock,
        };
        if edits.is_empty() && stored.earlier == 0 {
            return Ok(stored);
        }
        let leased = match edits.is_empty() {
            true => None,
            false => desk.shelves.lease(shelf).await?,
        };
        if !edits.is_empty() {
            let now = SystemTime::now();
            let export = |(entry, _): &(Shelved, Edit)| ExportedEntry::new(&desk.queue, entry, now);
            let originals: Vec<_> = edits.iter().map(export).collect();
            stored.originals = Some(state.save_edited(originals.iter()).context("nothing was changed")?);
        }
        let originals = stored.originals.clone();
        let end = EndSignals::claim();
        let begin = Begin { filter: filter.clone(), by: by.clone(), originals };
        stored.journal.begin(begin).context("nothing was changed")?;
        let shelves = leased.as_ref().map_or(&*desk.shelves, |leased| &*leased.shelves);
        stored.keep_all(shelves, edits, progress, end).await;
        if let Some(leased) = &leased {
            leased.lease.end().await;
        }
        let noted = match stored.done > 0 || stored.failed.is_some() {
            true => audit.append(&record(desk, shelf, by, &filter, stored.done)),
            false => Ok(()),
        };
        let noted = noted.context("the edited messages could not be noted in the audit log");
        if let Err(error) = noted.and_then(|()| Ok(stored.journal.reached(Reached::Audited)?)) {
            // The same command notes it. What ended the edit counts, and what is left to do.
            note!("{error:#}");
            stored.failed.get_or_insert(error);
        }
        Ok(stored)
    }
}

/// Notes what became of what processes that died had begun.
fn resolve(journal: &mut EditJournal, became: &[(EntryHandle, Became)]) -> Result<()> {
    for (entry, became) in became {
        match became {
            Became::Edited(now) => journal.ended(entry, Ended::Done, Some(now))?,
            Became::NotStored => journal.ended(entry, Ended::NotStored, None)?,
            Became::Gone => journal.ended(entry, Ended::Gone, None)?,
            Became::Uncertain => {}
        }
    }
    Ok(())
}

fn record(desk: &Desk, shelf: Shelf, by: Operator, filter: &str, done: u64) -> AuditRecord {
    let now = SystemTime::now();
    let record = AuditRecord::new(by.who, by.host, now, AuditAction::Edit, &desk.queue, shelf)
        .filter(filter)
        .counts(AuditCounts::done(done));
    match &by.reason {
        Some(reason) => record.reason(reason),
        None => record,
    }
}

/// What was done of many edits. The shelf is locked until it is dropped.
pub(crate) struct StoredAll {
    /// Where the originals are, if something was to be edited.
    pub(crate) originals: Option<PathBuf>,
    pub(crate) done: u64,
    /// How many the same command had edited before it was interrupted.
    pub(crate) earlier: usize,
    /// The handles of all edited messages, also of the earlier ones, as far as the broker tells them.
    pub(crate) handles: Vec<EntryHandle>,
    /// The edited messages with those handles, without the earlier ones.
    pub(crate) messages: Vec<Shelved>,
    /// Why it ended early.
    pub(crate) failed: Option<anyhow::Error>,
    journal: EditJournal,
    _lock: ShelfLock,
}

impl StoredAll {
    /// Notes that the plan is made: the same command begins anew after this.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub(crate) fn planned(&mut self) -> Result<()> {
        Ok(self.journal.reached(Reached::Planned)?)
    }

    async fn keep_all(
        &mut self,
        shelves: &dyn Shelves,
        edits: Vec<(Shelved, Edit)>,
        progress: impl Fn(u64),
        mut end: EndSignals,
    ) {
        for (entry, edit) in edits {
            let (kept, is_stopped) = {
                let mut keeping = std::pin::pin!(self.keep(shelves, entry, edit));
                tokio::select! {
                    biased;
                    kept = &mut keeping => (kept, false),
                    () = end.next() => {
                        note!("ending after this message. Ctrl-C again ends in the middle of it: it may then be on the shelf twice");
                        tokio::select! {
                            kept = keeping => (kept, true),
                            // What was begun is in the journal.
                            () = end.next() => std::process::exit(INTERRUPTED),
                        }
                    }
                }
            };
            self.failed = kept.err().or_else(|| is_stopped.then(|| anyhow!("interrupted")));
            progress(self.done);
            if self.failed.is_some() {
                break;
            }
        }
    }

    async fn keep(&mut self, shelves: &dyn Shelves, mut entry: Shelved, edit: Edit) -> Result<()> {
        let message = edited(&entry.message, edit.message().clone());
        self.journal.begun(&entry.handle, Copy::of(&message))?;
        let (changed, began) = (edit.into_message(), Instant::now());
        let replaced = loop {
            match shelves.replace(&entry.handle, changed.clone()).await {
                Err(error) if may_try_again(&error, began).await => {}
                replaced => break replaced,
            }
        };
        let now = match replaced {
            Ok(now) => now,
            Err(error) => {
                if error.kind() == TransportErrorKind::NotFound || error.is_certainly_not_stored() {
                    self.journal.ended(&entry.handle, Ended::NotStored, None)?;
                }
                let text = format!("cannot keep the edit of {}", entry.handle);
                return Err(anyhow::Error::from(error).context(text));
            }
        };
        self.done += 1;
        self.journal.ended(&entry.handle, Ended::Done, now.as_ref())?;
        if let Some(now) = now {
            self.handles.push(now.clone());
            (entry.handle, entry.message) = (now, message);
            self.messages.push(entry);
        }
        Ok(())
    }
}
