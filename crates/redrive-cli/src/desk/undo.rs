//! Brings back what a run discarded, or what was exported.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::BufReader;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use redrive::ops::{
    AuditAction, AuditCounts, AuditRecord, ContentDigest, EntryState, ExportLines, ExportedEntry, Operator,
    PlanAction, Replay, ShelfLock,
};
use redrive::{EntryHandle, Shelf, Shelved, Shelves};
use tokio::time::Instant;

use super::restore_journal::{Noted, RestoreJournal, note};
use super::{Desk, State};
use crate::exit::usage;
use crate::look::shelves::is_missing;

/// Minimum time between two looks at a shelf: what another client reads during the first one is back then.
const BETWEEN_LOOKS: Duration = Duration::from_secs(2);

/// What can be brought back of a run.
pub(crate) struct Undoing {
    run: String,
    replay: Replay,
    journal: PathBuf,
    /// What was restored before.
    before: RestoreJournal,
    /// How many messages were discarded.
    pub(crate) removed: usize,
    /// How many were being restored when a process died.
    pub(crate) uncertain: usize,
    entries: Vec<ExportedEntry>,
    /// The messages whose removal was begun when the process of the run died, and that were not [looked](Self::look) for.
    in_doubt: Vec<ExportedEntry>,
    looked: Option<Looked>,
}

/// What a look at the shelf found out about the messages in doubt.
struct Looked {
    at: Instant,
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
                "only a discard can be undone: its consumer may have handled what was redriven. The originals are in {}",
                originals.display()
            )));
        }
        let journal = state.undone(run);
        let before = RestoreJournal::read(&journal)?;
        // Only what was removed was restored.
        let (restored, open): (HashSet<_>, HashSet<_>) =
            replay.open.iter().cloned().partition(|entry| before.begun.contains(entry));
        let removed = &removed(&replay) | &restored;
        let file = File::open(&originals)
            .with_context(|| format!("cannot open the originals {}", originals.display()))?;
        let mut entries: Vec<_> = ExportLines::new(BufReader::new(file)).collect::<Result<_, _>>()?;
        let in_doubt = entries.iter().filter(|entry| open.contains(&entry.handle)).cloned().collect();
        entries.retain(|entry| removed.contains(&entry.handle));
        let uncertain = entries.iter().filter(|entry| before.is_uncertain(&entry.handle)).count();
        entries.retain(|entry| !before.begun.contains(&entry.handle));
        let (run, removed) = (run.to_owned(), removed.len());
        Ok(Self { run, replay, journal, before, removed, uncertain, entries, in_doubt, looked: None })
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

    /// Returns how many messages a [look](Self::look) at the shelf is needed for.
    pub(crate) fn in_doubt(&self) -> usize {
        self.in_doubt.len()
    }

    /// Looks for the messages in doubt: those that are not on the shelf were removed, and can be restored.
    ///
    /// # Errors
    ///
    /// If the run is one of another broker, the shelf is locked, or it cannot be read.
    pub(crate) async fn look(&mut self, state: &State, desk: &Desk) -> Result<()> {
        self.check_broker(desk)?;
        if self.in_doubt.is_empty() {
            return Ok(());
        }
        let _lock = lock(state, desk, self.shelf(), &self.holder())?;
        // The run may have gone on until the lock was free.
        *self = Self::of(state, &self.run)?;
        let wanted = self.in_doubt.iter().map(|entry| entry.handle.clone()).collect();
        let there = found(desk, self.shelf(), &wanted).await?;
        let gone: HashSet<_> = wanted.difference(&there).cloned().collect();
        self.removed += gone.len();
        self.entries.extend(self.in_doubt.drain(..).filter(|entry| gone.contains(&entry.handle)));
        if !wanted.is_empty() {
            self.looked = Some(Looked { at: Instant::now(), gone, on_shelf: there.len() });
        }
        Ok(())
    }

    /// Returns what the look at the shelf found, in a line.
    pub(crate) fn found(&self) -> Option<String> {
        let Looked { gone, on_shelf, .. } = self.looked.as_ref()?;
        let all = gone.len() + on_shelf;
        Some(format!(
            "{all} were being discarded when the run was killed: {} are not on the shelf, {on_shelf} are on it and stay",
            gone.len()
        ))
    }

    /// Looks a second time for what seems gone, since another client that reads the shelf hides what it reads.
    async fn look_again(&self, desk: &Desk) -> Result<()> {
        let Some(Looked { at, gone, .. }) = self.looked.as_ref().filter(|looked| !looked.gone.is_empty())
        else {
            return Ok(());
        };
        tokio::time::sleep_until(*at + BETWEEN_LOOKS).await;
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

    /// Restores them. Returns how many, and why it ended early.
    ///
    /// # Errors
    ///
    /// If the run is one of another broker, the shelf is locked, or it changed meanwhile: nothing is restored. If its files or the
    /// audit log cannot be written.
    pub(crate) async fn run(
        &self,
        state: &State,
        desk: &Desk,
        by: Operator,
    ) -> Result<(u64, Option<anyhow::Error>)> {
        self.check_broker(desk)?;
        let mut audit = state.audit()?;
        let _lock = lock(state, desk, self.shelf(), &self.holder())?;
        is_unchanged(&self.journal, &self.before)?;
        self.look_again(desk).await?;
        let (done, failed) =
            restore(&*desk.shelves, self.entries.iter().map(|entry| (&entry.handle, entry)), &self.journal)
                .await?;
        let (now, shelf) = (SystemTime::now(), self.shelf());
        let mut record = AuditRecord::new(by.who, by.host, now, AuditAction::Undo, self.queue(), shelf)
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

/// Returns those of these entries that are on the shelf. Keeps runs of other machines from it, which hold what they read for minutes.
async fn found(desk: &Desk, shelf: Shelf, wanted: &HashSet<EntryHandle>) -> Result<HashSet<EntryHandle>> {
    let cannot = || format!("cannot read what is on the {shelf} shelf: nothing was restored");
    let leased = desk.shelves.lease(shelf).await.with_context(cannot)?;
    let mut there = HashSet::new();
    let mut each = |entry: Shelved| {
        if wanted.contains(&entry.handle) {
            there.insert(entry.handle);
        }
        if there.len() == wanted.len() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let scanned = desk.shelves.scan(shelf, &mut each).await;
    if let Some(leased) = &leased {
        leased.lease.end().await;
    }
    scanned.with_context(cannot)?;
    Ok(there)
}

/// What can be imported of a file.
pub(crate) struct Importing {
    /// How many messages the file has.
    pub(crate) all: usize,
    /// How many were being imported when a process died.
    pub(crate) uncertain: usize,
    /// How many were not imported before.
    pub(crate) new: usize,
    /// How many of these are on the shelf all the same.
    pub(crate) on_shelf: usize,
    journal: PathBuf,
    /// What was imported before.
    before: RestoreJournal,
    entries: Vec<(EntryHandle, ExportedEntry)>,
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
    entries: Vec<ExportedEntry>,
) -> Result<Importing> {
    let journal = state.imported(&desk.broker, &desk.queue);
    let before = RestoreJournal::read(&journal)?;
    let all = entries.len();
    let named = entries.into_iter().enumerate().map(|(number, entry)| {
        let name = imported_name(&entry, shelf.unwrap_or(entry.handle.shelf()), number);
        (name, entry)
    });
    let mut entries: Vec<_> = named.collect();
    let uncertain = entries.iter().filter(|(name, _)| before.is_uncertain(name)).count();
    let is_new = |name: &EntryHandle| !before.begun.contains(name);
    let new = entries.iter().filter(|(name, _)| is_new(name)).count();
    for shelf in [Shelf::DeadLetter, Shelf::Parking] {
        let is_wanted = |name: &EntryHandle| name.shelf() == shelf && is_new(name);
        if entries.iter().any(|(name, _)| is_wanted(name)) {
            let mut there = copies(&*desk.shelves, shelf, desk).await?;
            let (on_this, others) = entries.into_iter().partition(|(name, _)| name.shelf() == shelf);
            entries = others;
            entries.extend(not_there(on_this, &mut there, is_new));
        }
    }
    entries.retain(|(name, _)| is_new(name));
    let on_shelf = new - entries.len();
    Ok(Importing { all, uncertain, new, on_shelf, journal, before, entries })
}

/// Counts the messages on a shelf by their content. A shelf that the broker does not have is empty.
async fn copies(shelves: &dyn Shelves, shelf: Shelf, desk: &Desk) -> Result<HashMap<ContentDigest, usize>> {
    let mut there = HashMap::new();
    let now = SystemTime::now();
    let mut each = |entry: Shelved| {
        *there.entry(content(&ExportedEntry::new(&desk.queue, &entry, now))).or_default() += 1;
        ControlFlow::Continue(())
    };
    match shelves.scan(shelf, &mut each).await {
        Err(error) if shelf == Shelf::Parking && is_missing(&error) => {}
        scanned => scanned
            .with_context(|| format!("cannot read what is on the {shelf} shelf: nothing was put back"))?,
    }
    Ok(there)
}

/// Returns the content with which an entry comes back onto a shelf.
fn content(entry: &ExportedEntry) -> ContentDigest {
    ContentDigest::of(&entry.for_shelf())
}

/// Returns the entries of which no copy is on the shelf. A copy stands for one entry; first for those that were imported before.
fn not_there(
    entries: Vec<(EntryHandle, ExportedEntry)>,
    there: &mut HashMap<ContentDigest, usize>,
    is_new: impl Fn(&EntryHandle) -> bool,
) -> Vec<(EntryHandle, ExportedEntry)> {
    let (new, before): (Vec<_>, Vec<_>) = entries.into_iter().partition(|(name, _)| is_new(name));
    let mut is_there = |entry: &ExportedEntry| match there.get_mut(&content(entry)) {
        Some(copies) if *copies > 0 => {
            *copies -= 1;
            true
        }
        _ => false,
    };
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
    pub(crate) fn left(&self) -> usize {
        self.entries.len()
    }

    /// Puts them onto the shelf. Returns how many, and why it ended early.
    ///
    /// # Errors
    ///
    /// If a shelf is locked, or another command imported messages meanwhile: nothing is put back. If it cannot be noted.
    pub(crate) async fn run(&self, state: &State, desk: &Desk) -> Result<(u64, Option<anyhow::Error>)> {
        let is_needed = |shelf: &Shelf| self.entries.iter().any(|(name, _)| name.shelf() == *shelf);
        let shelves = [Shelf::DeadLetter, Shelf::Parking].into_iter().filter(is_needed);
        let _locks: Vec<_> =
            shelves.map(|shelf| lock(state, desk, shelf, "redrive import")).collect::<Result<_>>()?;
        is_unchanged(&self.journal, &self.before)?;
        let entries = self.entries.iter().map(|(name, entry)| (name, entry));
        restore(&*desk.shelves, entries, &self.journal).await
    }
}

/// Locks the shelf as runs and edits do: two commands at once would restore every message twice.
fn lock(state: &State, desk: &Desk, shelf: Shelf, holder: &str) -> Result<ShelfLock> {
    let locked = state.journals()?.lock(&desk.broker, &desk.queue, shelf, holder);
    locked.context("nothing was restored")
}

/// Reads the journal again, under the lock.
///
/// # Errors
///
/// If another command has restored messages since it was read.
fn is_unchanged(journal: &Path, before: &RestoreJournal) -> Result<()> {
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
async fn restore<'a>(
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

/// Returns the entries that the run removed, as its journal says.
fn removed(replay: &Replay) -> HashSet<EntryHandle> {
    let is_removed = |state: &EntryState| matches!(state, EntryState::Done | EntryState::Gone);
    replay.states.iter().filter(|(_, state)| is_removed(state)).map(|(handle, _)| handle.clone()).collect()
}

#[cfg(test)]
mod tests {
    use redrive::Message;

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
            let there = there.iter().map(|(body, copies)| (content(&entry(body, 9).1), *copies));
            let is_new = |name: &EntryHandle| name.entry() != before.to_string();
            let left = not_there(entries, &mut there.collect(), is_new);
            left.into_iter().map(|(name, _)| name.entry().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(left(&[], 0), ["1", "2", "3"]);
        assert_eq!(left(&[("a", 2), ("b", 1)], 0), [""; 0]);
        assert_eq!(left(&[("a", 1)], 0), ["2", "3"], "two identical messages, and one of them is there");
        assert_eq!(left(&[("a", 1)], 2), ["1", "3"], "the copy is the one that was imported before");
    }
}
