//! Makes plans.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use anyhow::Result;
use redrive::ops::{LeftOutEntry, Plan, PlanAction, PlanOptions, ShelfView, Target};
use redrive::{EntryHandle, Holder, Shelf, Shelved};

use super::{Desk, SavedPlan, State};
use crate::exit::usage;
use crate::output::one_line;

/// What a plan is made of.
pub(crate) struct Wanted<'a> {
    pub(crate) action: PlanAction,
    /// The entries that the filter selects.
    pub(crate) selected: Vec<&'a Shelved>,
    /// Only these of them, if there are any.
    pub(crate) handles: &'a [EntryHandle],
    /// The group and the filter, for people and the audit log.
    pub(crate) filter: &'a str,
    pub(crate) max_redrives: u32,
}

/// Makes a plan of entries of a view, and keeps it.
///
/// # Errors
///
/// If a handle is not among the selected entries, or the plan cannot be written.
pub(crate) fn make(state: &State, desk: &Desk, view: &ShelfView, wanted: &Wanted<'_>) -> Result<SavedPlan> {
    make_of(state, desk, view.shelf(), view.holder(), wanted)
}

/// Makes a plan of entries of a shelf, and keeps it. `holder` may have kept entries from being read.
///
/// # Errors
///
/// The same as [`make`].
pub(crate) fn make_of(
    state: &State,
    desk: &Desk,
    shelf: Shelf,
    holder: Option<Holder>,
    wanted: &Wanted<'_>,
) -> Result<SavedPlan> {
    let handles = wanted.handles;
    let mut entries = Vec::new();
    for entry in &wanted.selected {
        if handles.is_empty() || handles.contains(&entry.handle) {
            entries.push((*entry).clone());
        }
    }
    if let Some(missing) = handles.iter().find(|handle| entries.iter().all(|entry| entry.handle != **handle))
    {
        return Err(usage(format!("{missing} is not on the shelf, or not among what the filter selects")));
    }
    let options = PlanOptions::new(&desk.queue).max_redrives(wanted.max_redrives);
    let plan = Plan::new(wanted.action, shelf, &entries, &options, SystemTime::now());
    let named = handles.iter().map(ToString::to_string);
    let filter =
        named.chain([wanted.filter.to_owned()]).filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
    let is_final = !desk.can_restore(shelf);
    let not_read = holder.map(|holder| holder.to_string());
    let saved = SavedPlan { broker: desk.broker.clone(), filter, is_final, not_read, plan };
    state.save_plan(&saved)?;
    Ok(saved)
}

/// Returns true if a person types the number of messages to agree: the plan removes them, or there are many.
pub(crate) fn needs_count(plan: &Plan) -> bool {
    plan.action() == PlanAction::Discard || plan.entries().len() > 100
}

/// A plan in numbers and words.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// Where messages go, and how many.
    pub(crate) targets: BTreeMap<String, usize>,
    /// Why messages are left out, and how many.
    pub(crate) left_out: BTreeMap<String, usize>,
    /// Queues that messages name and that are not followed.
    pub(crate) names: BTreeSet<String>,
}

impl Lines {
    pub(crate) fn of(saved: &SavedPlan) -> Self {
        let (plan, mut lines) = (&saved.plan, Self::default());
        for entry in plan.entries() {
            *lines.targets.entry(target(&entry.target, saved.is_final)).or_default() += 1;
            lines.names.extend(entry.names.clone());
        }
        for entry in plan.left_out() {
            *lines.left_out.entry(left_out(entry)).or_default() += 1;
        }
        lines
    }
}

fn left_out(entry: &LeftOutEntry) -> String {
    match &entry.failed_in {
        Some(queue) => format!(
            "failed in the queue `{}`, which is not listed under `shelves-shared-with`",
            one_line(queue, 80)
        ),
        None => entry.why.to_string(),
    }
}

fn target(target: &Target, is_final: bool) -> String {
    match target {
        Target::Queue(queue) => format!("to the consumer of `{queue}`"),
        Target::Parking => "to the parking shelf".to_owned(),
        Target::Nowhere if is_final => "removed for good; the originals are kept".to_owned(),
        Target::Nowhere => "removed; the originals are kept, `redrive undo` brings them back".to_owned(),
        _ => "elsewhere".to_owned(),
    }
}
