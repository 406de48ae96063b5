//! Makes plans.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use anyhow::Result;
use redrive::Shelf;
use redrive::ops::{LeftOutEntry, Plan, PlanAction, PlanOptions, ShelfView, Target, WhyLeftOut};
use redrive::shelves::{EntryHandle, Holder, Shelved};

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
    /// If nothing selects, and so the whole shelf is meant: also what does not tell where it failed, on a shelf that others share.
    pub(crate) of_unknown_queue: bool,
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
    let plan = Plan::new(wanted.action, shelf, &entries, &options(&desk.queue, wanted), SystemTime::now());
    let named = handles.iter().map(ToString::to_string);
    let filter =
        named.chain([wanted.filter.to_owned()]).filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
    let is_final = !desk.can_restore(shelf);
    let not_read = holder.map(|holder| holder.to_string());
    let saved = SavedPlan { broker: desk.broker.clone(), filter, is_final, not_read, plan };
    state.save_plan(&saved)?;
    Ok(saved)
}

/// Who means the whole shelf has named no message that does not tell where it failed.
fn options(queue: &str, wanted: &Wanted<'_>) -> PlanOptions {
    let options = PlanOptions::new(queue).max_redrives(wanted.max_redrives);
    let is_whole_shelf = wanted.handles.is_empty() && wanted.filter.is_empty();
    if is_whole_shelf && !wanted.of_unknown_queue { options.without_unknown() } else { options }
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
    /// How many do not tell where they failed, on a shelf that others share.
    pub(crate) of_unknown_queue: usize,
}

impl Lines {
    pub(crate) fn of(saved: &SavedPlan) -> Self {
        let (plan, mut lines) = (&saved.plan, Self::default());
        for entry in plan.entries() {
            *lines.targets.entry(target(&entry.target, saved.is_final)).or_default() += 1;
            lines.names.extend(entry.names.clone());
            lines.of_unknown_queue += usize::from(entry.of_unknown_queue);
        }
        for entry in plan.left_out() {
            *lines.left_out.entry(left_out(entry)).or_default() += 1;
        }
        lines
    }
}

fn left_out(entry: &LeftOutEntry) -> String {
    if entry.why == WhyLeftOut::UnknownQueue {
        return format!("{}: a filter, a handle or --with-unknown takes it", entry.why);
    }
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

#[cfg(test)]
mod tests {
    use redrive::Message;
    use redrive::shelves::Owner;

    use super::*;

    #[test]
    fn the_whole_of_a_shared_shelf_is_not_what_does_not_tell_its_queue() {
        let entry = |number: &str, owner| {
            let mut entry = Shelved::new(EntryHandle::new(Shelf::DeadLetter, number), Message::new(""));
            entry.owner = owner;
            entry
        };
        let entries = [entry("1", Owner::This), entry("2", Owner::Unknown)];
        let planned = |filter, of_unknown_queue| {
            let wanted = Wanted {
                action: PlanAction::Discard,
                selected: Vec::new(),
                handles: &[],
                filter,
                max_redrives: 3,
                of_unknown_queue,
            };
            let options = options("orders", &wanted);
            let plan =
                Plan::new(PlanAction::Discard, Shelf::DeadLetter, &entries, &options, SystemTime::now());
            SavedPlan { broker: "shop".into(), filter: filter.into(), is_final: false, not_read: None, plan }
        };
        let all = planned("", false);
        let lines = Lines::of(&all);
        assert_eq!((all.plan.entries().len(), lines.of_unknown_queue), (1, 0));
        let why = lines.left_out.keys().next().expect("a reason");
        assert!(why.contains("does not tell which") && why.contains("--with-unknown"), "{why}");
        for taken in [planned("", true), planned("reason:Broken", false)] {
            assert_eq!((taken.plan.entries().len(), Lines::of(&taken).of_unknown_queue), (2, 1));
        }
    }
}
