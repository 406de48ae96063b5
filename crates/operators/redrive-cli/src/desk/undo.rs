//! Restores the messages that a run discarded.

use std::collections::HashSet;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail};
use redrive::Shelf;
use redrive::ops::{
    AuditAction, AuditRecord, EntryState, ExportLines, ExportedEntry, Operator, PlanAction, Replay,
};
use redrive::shelves::{EntryHandle, Shelved};
use tokio::time::Instant;

use super::absence::{again_at, look_alone};
use super::restore::{Resolved, Restored, lock, notes, resolve, restore, takes_back};
use super::restore_journal::RestoreJournal;
use super::{Desk, State};
use crate::exit::usage;

/// What can be brought back of a run.
pub(crate) struct Undoing {
    run: String,
    replay: Replay,
    journal: PathBuf,
    /// What was restored before.
    before: RestoreJournal,
    /// How many messages were discarded.
    pub(crate) removed: usize,
    /// What was found out about those that a try before may have restored.
    pub(crate) resolved: Resolved,
    /// How many may be restored: a process died over them, or the broker did not answer, and they were not [looked](Self::look) for.
    uncertain: usize,
    entries: Vec<ExportedEntry>,
    /// All that was removed, with what was restored before.
    all: Vec<(EntryHandle, ExportedEntry)>,
    /// The messages whose removal was begun when the process of the run or its connection died, and that were not
    /// [looked](Self::look) for.
    in_doubt: Vec<ExportedEntry>,
    looked: Option<Looked>,
}

/// What a look at the shelf found out about the messages in doubt.
struct Looked {
    /// When it may be looked again.
    again_at: Instant,
    gone: HashSet<EntryHandle>,
    on_shelf: usize,
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
                "only a discard can be undone: the consumer may have handled redriven messages. The originals are in {}",
                originals.display()
            )));
        }
        let journal = state.undone(run);
        let before = RestoreJournal::read(&journal)?;
        let uncertain = replay.states.iter().filter(|(_, state)| matches!(state, EntryState::Uncertain(_)));
        let open = replay.open.iter().chain(uncertain.map(|(handle, _)| handle)).cloned();
        // Only what was removed was restored.
        let (restored, open): (HashSet<_>, HashSet<_>) = open.partition(|entry| before.begun.contains(entry));
        let removed = &removed(&replay) | &restored;
        let file = File::open(&originals)
            .with_context(|| format!("cannot open the originals {}", originals.display()))?;
        let mut entries: Vec<_> = ExportLines::new(BufReader::new(file)).collect::<Result<_, _>>()?;
        let in_doubt = entries.iter().filter(|entry| open.contains(&entry.handle)).cloned().collect();
        entries.retain(|entry| removed.contains(&entry.handle));
        let uncertain = entries.iter().filter(|entry| before.is_uncertain(&entry.handle)).count();
        let all = entries.iter().map(|entry| (entry.handle.clone(), entry.clone())).collect();
        let resolved = Resolved::default();
        entries.retain(|entry| !before.begun.contains(&entry.handle));
        let (run, removed) = (run.to_owned(), removed.len());
        Ok(Self {
            run,
            replay,
            journal,
            before,
            removed,
            resolved,
            uncertain,
            entries,
            all,
            in_doubt,
            looked: None,
        })
    }

    pub(crate) fn run_id(&self) -> &str {
        &self.run
    }

    /// Returns the queue of the run.
    pub(crate) fn queue(&self) -> &str {
        self.replay.header.plan.queue()
    }

    /// Returns the shelf of the run.
    pub(crate) fn shelf(&self) -> Shelf {
        self.replay.header.plan.shelf()
    }

    /// Returns how many messages can be restored.
    pub(crate) fn left(&self) -> usize {
        self.entries.len()
    }

    /// Returns the messages that can be restored.
    pub(crate) fn originals(&self) -> impl Iterator<Item = &ExportedEntry> {
        self.entries.iter()
    }

    /// Returns how many messages a [look](Self::look) at the shelf is needed for.
    pub(crate) fn in_doubt(&self) -> usize {
        self.in_doubt.len() + self.uncertain
    }

    /// Looks for the messages in doubt: those that are not on the shelf were removed, and can be restored.
    ///
    /// # Errors
    ///
    /// If the run is one of another broker, the shelf is locked, or it cannot be read.
    pub(crate) async fn look(&mut self, state: &State, desk: &Desk) -> Result<()> {
        self.check_broker(desk)?;
        if self.uncertain > 0 {
            let resolved = resolve(state, desk, |_| self.journal.clone(), &self.all, &self.holder()).await?;
            *self = Self { resolved, ..Self::of(state, &self.run)? };
        }
        if self.in_doubt.is_empty() {
            return Ok(());
        }
        let _lock = lock(state, desk, self.shelf(), &self.holder())?;
        // The run may have gone on until the lock was free.
        *self = Self { resolved: self.resolved, ..Self::of(state, &self.run)? };
        let wanted = self.in_doubt.iter().map(|entry| entry.handle.clone()).collect();
        let began = Instant::now();
        let there = found(desk, self.shelf(), &wanted).await?;
        let again_at = again_at(began);
        let gone: HashSet<_> = wanted.difference(&there).cloned().collect();
        self.removed += gone.len();
        self.entries.extend(self.in_doubt.drain(..).filter(|entry| gone.contains(&entry.handle)));
        if !wanted.is_empty() {
            self.looked = Some(Looked { again_at, gone, on_shelf: there.len() });
        }
        Ok(())
    }

    /// Returns what the look at the shelf found, in a line.
    pub(crate) fn found(&self) -> Option<String> {
        let Looked { gone, on_shelf, .. } = self.looked.as_ref()?;
        let all = gone.len() + on_shelf;
        Some(format!(
            "{all} were being discarded when the run was killed or lost its broker: {} are not on the shelf, {on_shelf} are on it and stay",
            gone.len()
        ))
    }

    /// Looks a second time for what seems gone, since another client that reads the shelf hides what it reads.
    async fn look_again(&self, desk: &Desk) -> Result<()> {
        let Some(Looked { again_at, gone, .. }) =
            self.looked.as_ref().filter(|looked| !looked.gone.is_empty())
        else {
            return Ok(());
        };
        tokio::time::sleep_until(*again_at).await;
        let there = found(desk, self.shelf(), gone).await?.len();
        if there > 0 {
            bail!(
                "{there} of the messages that were not on the shelf are on it now, as if another client had read it: nothing was \
                 restored. Run the command again"
            );
        }
        Ok(())
    }

    fn check_broker(&self, desk: &Desk) -> Result<()> {
        let broker = &self.replay.header.broker;
        if *broker != desk.broker {
            return Err(usage(format!("this run is one of {broker}, and not of {}", desk.broker)));
        }
        Ok(())
    }

    /// Returns who holds the lock of the shelf, for those who are refused.
    fn holder(&self) -> String {
        format!("redrive undo {}", self.run)
    }

    /// Restores them. Returns what became of them.
    ///
    /// # Errors
    ///
    /// If the run is one of another broker, the shelf is locked, or it changed meanwhile: nothing is restored. If its files or the
    /// audit log cannot be written.
    pub(crate) async fn run(&self, state: &State, desk: &Desk, by: Operator) -> Result<Restored> {
        self.check_broker(desk)?;
        takes_back(desk, self.shelf())?;
        let mut audit = state.audit()?;
        let _lock = lock(state, desk, self.shelf(), &self.holder())?;
        self.look_again(desk).await?;
        // Once this file exists, the run cannot be resumed.
        let notes = notes(&self.journal, &self.before)?;
        let entries = self.entries.iter().map(|entry| (&entry.handle, entry));
        let restored = restore(&*desk.shelves, entries, notes).await;
        let (now, shelf) = (SystemTime::now(), self.shelf());
        let mut record = AuditRecord::new(by.who, by.host, now, AuditAction::Undo, self.queue(), shelf)
            .run_id(&self.run)
            .counts(restored.counts());
        if let Some(reason) = &by.reason {
            record = record.reason(reason);
        }
        audit
            .append(&record)
            .context("the messages are restored, and that could not be noted in the audit log")?;
        Ok(restored)
    }
}

/// Returns those of these entries that are on the shelf.
async fn found(desk: &Desk, shelf: Shelf, wanted: &HashSet<EntryHandle>) -> Result<HashSet<EntryHandle>> {
    let mut there = HashSet::new();
    let each = |entry: Shelved| {
        if wanted.contains(&entry.handle) {
            there.insert(entry.handle);
        }
    };
    let looked = look_alone(desk, shelf, each).await;
    looked.with_context(|| format!("cannot read the {shelf} shelf: nothing was restored"))?;
    Ok(there)
}

/// Returns the entries that the run removed, as its journal says.
fn removed(replay: &Replay) -> HashSet<EntryHandle> {
    let is_removed = |state: &EntryState| matches!(state, EntryState::Done | EntryState::Gone);
    replay.states.iter().filter(|(_, state)| is_removed(state)).map(|(handle, _)| handle.clone()).collect()
}
