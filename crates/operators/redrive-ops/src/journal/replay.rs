//! What a journal says of a run that ended anywhere. Pure.

use std::collections::{BTreeSet, HashMap, HashSet};

use redrive_core::shelves::EntryHandle;

use super::JournalError;
use super::record::{JournalHeader, Record};
use crate::run::{EntryState, Fate, Run, SeenFate, StopReason};

/// What a journal says of its run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Replay {
    /// What the run is.
    pub header: JournalHeader,
    /// Entries whose result is certain.
    pub states: HashMap<EntryHandle, EntryState>,
    /// Entries of the last step whose result was not written: the process died.
    pub open: BTreeSet<EntryHandle>,
    /// What became of messages.
    pub fates: HashMap<EntryHandle, Fate>,
    /// How the run ended: `Some(None)` if all of it was done.
    pub ended: Option<Option<StopReason>>,
}

/// What to do with entries that may have been sent, and are still on the shelf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UncertainEntries {
    /// They stay on the shelf, marked as uncertain: a person looks at them.
    #[default]
    Leave,
    /// They are sent; messages that were sent before are then handled twice.
    SendAgain,
}

/// The records of a journal that were read so far.
#[derive(Default)]
pub(super) struct Replaying {
    /// With the entries of the plan.
    begun: Option<(Replay, HashSet<EntryHandle>)>,
}

impl Replaying {
    /// Takes in the next record.
    ///
    /// # Errors
    ///
    /// If it does not fit what is before it.
    pub(super) fn add(&mut self, record: Record) -> Result<(), String> {
        match (&mut self.begun, record) {
            (Some((replay, planned)), record) => replay.add(record, planned)?,
            (begun, Record::Begin { header }) => {
                let planned = header.plan.entries().iter().map(|entry| entry.handle.clone()).collect();
                let replay = Replay {
                    header: *header,
                    states: HashMap::new(),
                    open: BTreeSet::new(),
                    fates: HashMap::new(),
                    ended: None,
                };
                *begun = Some((replay, planned));
            }
            (None, _) => return Err("it is not the header of a run".to_owned()),
        }
        Ok(())
    }

    /// Returns what they say.
    ///
    /// # Errors
    ///
    /// [`JournalError::Empty`] if there are none.
    pub(super) fn replay(self) -> Result<Replay, JournalError> {
        self.begun.map(|(replay, _)| replay).ok_or(JournalError::Empty)
    }
}

impl Replay {
    fn add(&mut self, record: Record, planned: &HashSet<EntryHandle>) -> Result<(), String> {
        let check = |handle: &EntryHandle| {
            if planned.contains(handle) { Ok(()) } else { Err(format!("`{handle}` is not in the plan")) }
        };
        match record {
            Record::Begin { .. } => return Err("a second header".to_owned()),
            Record::Resume { .. } => self.ended = None,
            Record::Intent { handles, .. } => {
                for handle in handles {
                    check(&handle)?;
                    self.states.remove(&handle);
                    self.open.insert(handle);
                }
            }
            Record::Result { handle, state } => {
                check(&handle)?;
                self.open.remove(&handle);
                self.states.insert(handle, state);
            }
            Record::Fate(SeenFate { handle, fate, .. }) => {
                check(&handle)?;
                self.fates.insert(handle, fate);
            }
            Record::End { why, .. } => self.ended = Some(why),
        }
        Ok(())
    }

    /// Returns the entries about which the rest of the run has still to decide: the open ones, and those that it is to send.
    #[cfg(feature = "runner")]
    pub(crate) fn undecided(&self, uncertain: UncertainEntries) -> impl Iterator<Item = &EntryHandle> {
        let is_undecided = move |handle: &&EntryHandle| match self.states.get(*handle) {
            None | Some(EntryState::NotTried) => true,
            Some(EntryState::Uncertain(_)) => uncertain == UncertainEntries::SendAgain,
            Some(_) => false,
        };
        self.header.plan.entries().iter().map(|entry| &entry.handle).filter(is_undecided)
    }

    /// Decides about the open entries by what is on the shelf now, and returns what it decided: an entry that left the shelf was
    /// stored in its new place before; one that is still there may have been.
    pub fn resolve(&mut self, is_on_shelf: impl Fn(&EntryHandle) -> bool) -> Vec<(EntryHandle, EntryState)> {
        let resolve = |handle: EntryHandle| {
            let state = if is_on_shelf(&handle) {
                EntryState::Uncertain("the process died while it was worked on".to_owned())
            } else {
                EntryState::Gone
            };
            (handle, state)
        };
        let resolved: Vec<_> = std::mem::take(&mut self.open).into_iter().map(resolve).collect();
        self.states.extend(resolved.iter().cloned());
        resolved
    }

    /// Creates the rest of the run. Open entries that were not [resolved](Self::resolve) are uncertain.
    #[must_use]
    pub fn into_run(mut self, uncertain: UncertainEntries) -> Run {
        self.resolve(|_| true);
        if uncertain == UncertainEntries::SendAgain {
            self.states.retain(|_, state| !matches!(state, EntryState::Uncertain(_)));
        }
        let JournalHeader { plan, options, .. } = self.header;
        Run::restored(plan, options, self.states, &self.fates)
    }
}
