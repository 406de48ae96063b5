//! How far a run is.

use super::Run;
use super::step::{EntryState, Fate};

/// How far a run is: counts of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunReport {
    /// All entries of the plan.
    pub entries: u64,
    /// Stored in their new place, and removed from the shelf.
    pub done: u64,
    /// Left the shelf while a process died.
    pub gone: u64,
    /// Had vanished from the shelf before their turn.
    pub not_found: u64,
    /// Were changed since the plan was made, and not touched.
    pub changed: u64,
    /// Failed, and are still on the shelf.
    pub failed: u64,
    /// Are still on the shelf, and possibly in their new place as well.
    pub uncertain: u64,
    /// Have not had their turn.
    pub left: u64,
    /// What became of those that were redriven.
    pub fates: FateCounts,
}

/// What became of messages that were redriven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FateCounts {
    /// Were handled, as their consumer reported.
    pub done: u64,
    /// Are on a shelf again, with the same failure.
    pub failed_same: u64,
    /// Are on a shelf again, with another failure.
    pub failed_other: u64,
    /// Were not seen again so far.
    pub not_known: u64,
}

impl RunReport {
    pub(super) fn of(run: &Run) -> Self {
        let mut report = Self { entries: run.states.len() as u64, ..Self::default() };
        for state in &run.states {
            *match state {
                EntryState::NotTried => &mut report.left,
                EntryState::Done => &mut report.done,
                EntryState::Gone => &mut report.gone,
                EntryState::NotFound => &mut report.not_found,
                EntryState::Changed => &mut report.changed,
                EntryState::Failed(_) => &mut report.failed,
                EntryState::Uncertain(_) => &mut report.uncertain,
            } += 1;
        }
        let fates = &mut report.fates;
        for fate in run.fates.values() {
            *match fate {
                Fate::Done => &mut fates.done,
                Fate::FailedSame => &mut fates.failed_same,
                Fate::FailedOther => &mut fates.failed_other,
                Fate::NotKnown => &mut fates.not_known,
            } += 1;
        }
        fates.not_known += run.awaited.len() as u64;
        report
    }
}
