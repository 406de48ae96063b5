//! What the page asks for, and what it is answered.

use std::sync::Arc;
use std::time::SystemTime;

use redrive::Shelf;
use redrive::ops::{FinishedRun, GroupId, PlanAction, RunProgress, ShelfView};
use redrive::shelves::EntryHandle;

use crate::desk::{SavedPlan, asks};
use crate::look::shelves::ShelfCount;

/// A shelf of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) queue: String,
    pub(super) shelf: Shelf,
}

/// What the page wants done.
pub(super) enum Ask {
    /// The counts of all shelves.
    Count,
    /// One pass over a shelf.
    Read(Place),
    /// Remember which groups are called g1, g2, …, as `redrive groups` does.
    NameGroups(Place, Vec<GroupId>),
    /// A plan.
    Plan(Planning),
    /// Run a plan.
    Begin { saved: Arc<SavedPlan>, rate: u32, reason: Option<String> },
    /// Tell the run.
    Control(asks::Ask),
    /// The end of the page.
    Quit,
}

/// What a plan is made of.
pub(super) struct Planning {
    pub(super) place: Place,
    pub(super) view: Arc<ShelfView>,
    pub(super) action: PlanAction,
    /// The entries that are meant, as the page shows them.
    pub(super) handles: Vec<EntryHandle>,
    /// True if a person marked them one by one.
    pub(super) is_marked: bool,
    /// The group and the filter, for people and the audit log.
    pub(super) filter: String,
}

/// The shelves of a queue, counted.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub(super) at: SystemTime,
    /// How many messages each shelf has, and since when.
    pub(super) shelves: Vec<(ShelfCount, Option<SystemTime>)>,
}

/// What became of an [`Ask`]. Errors are texts for a person.
pub(super) enum Answer {
    /// The shelves of one queue.
    Counted(String, Result<Counted, String>),
    /// A shelf.
    Read(Place, Result<Arc<ShelfView>, String>),
    /// A plan.
    Planned(Place, Result<Arc<SavedPlan>, String>),
    /// A run has begun; where its originals are.
    Begun { id: String, originals: Option<String> },
    /// How far the run is.
    Progress(RunProgress),
    /// The run is over, or could not begin.
    Ended(Result<FinishedRun, String>),
    /// Something else failed.
    Failed(String),
}
