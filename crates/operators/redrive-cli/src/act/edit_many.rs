//! `redrive edit --jq`: edits many messages by one program, and keeps them on their shelf.

use std::collections::HashSet;
use std::io::IsTerminal as _;

use anyhow::{Context as _, Result, bail};
use redrive::Shelf;
use redrive::ops::{Edit as EditOf, PlanAction, SensitiveEdits, ShelfView, diff, require_reason};
use redrive::shelves::{Owner, Shelved};

use super::apply::bar;
use super::ask::counted;
use crate::args::{Edit, Global};
use crate::desk::edits::{Before, Edits, StoredAll};
use crate::desk::plan::{Wanted, make_of};
use crate::desk::{Desk, State, operator, within};
use crate::exit::{Exit, usage};
use crate::look::jq;
use crate::look::select::{Selected, read, select};
use crate::output::{note, plural, print, print_json, printable};
use crate::settings::Context;

/// How many differences are shown.
const SHOWN: usize = 20;
/// What was redriven so often goes to the parking shelf.
const MAX_REDRIVES: u32 = 3;

pub(super) async fn run(global: &Global, context: &Context, command: &Edit, program: &str) -> Result<Exit> {
    jq::check(program)?;
    if command.dry_run {
        let selected = selected(global, context, command).await?;
        let (edits, found) = edited(global, &selected, command, program).await?;
        return dry_run(global, &edits, found);
    }
    let (state, shelf) = (State::open(global)?, Shelf::from(command.which.shelf));
    let before = Before::read(&state, context.label(), &context.queue_name(&command.which.queue), shelf)?;
    let selected = selected(global, context, command).await?;
    let (edits, found) = edited(global, &selected, command, program).await?;
    let filter = format!("{} --jq {program}", selected.text);
    let became = within(global.timeout, before.judge(&selected.desk)).await?;
    let edits = Edits::new(before, became, filter.clone(), edits);
    let count = edits.edits.len();
    if !global.json {
        show(&edits.edits, SHOWN);
    }
    if count > SHOWN && !global.json {
        print(&format!("and {} more: --dry-run shows all of them", count - SHOWN));
    }
    say_what_is_left_out(&edits);
    note!("the program changes {count} of {}", plural(found, "message"));
    if count == 0 && !edits.has_rest() {
        return Ok(Exit::Ok);
    }
    let reason = command.reason.as_deref();
    if count > 0 {
        require_reason(count as u64, reason).map_err(|error| usage(format!("{error}: pass --reason")))?;
        if !command.yes && !std::io::stdin().is_terminal() {
            return Err(usage(
                "nothing was changed: cannot ask for confirmation without a terminal. Pass --yes to store the edits, or --dry-run to \
                 see all of them",
            ));
        }
        edited_stays(&selected.desk, shelf)?;
        if !command.yes && !counted(count, "edit")? {
            bail!("cancelled: nothing was changed");
        }
    }

    let progress = bar(count as u64)?;
    let stored =
        edits.store(&state, &selected.desk, operator(reason), |done| progress.set_position(done)).await;
    progress.finish_and_clear();
    let mut stored = stored?;
    let plan = plan(global, &state, &selected.desk, shelf, &stored, &filter).await;
    let plan = match plan {
        // The error that ended it counts.
        Err(error) if stored.failed.is_some() => {
            note!("no plan could be made: {error:#}");
            None
        }
        plan => plan.with_context(|| format!("edited {}, on the shelf", plural(stored.done, "message")))?,
    };
    if stored.failed.is_none() && (count > 0 || stored.earlier > 0) {
        stored.planned()?;
    }
    finish(global, &selected.desk, shelf, stored, count, plan.as_deref())
}

/// Refuses a shelf that takes nothing back, before anything is written.
///
/// # Errors
///
/// If it is the dead-letter queue of Service Bus.
pub(super) fn edited_stays(desk: &Desk, shelf: Shelf) -> Result<()> {
    if desk.can_restore(shelf) {
        return Ok(());
    }
    bail!(
        "nothing was changed: Service Bus lets nobody store an edit in the dead-letter queue of `{0}`. Name a parking queue in \
         `parking-queues` of the context, move them there with `redrive park {0}`, and edit with --shelf parking; or edit one message \
         without --keep, which sends it back",
        desk.queue
    )
}

async fn selected(global: &Global, context: &Context, command: &Edit) -> Result<Selected> {
    let selected = select(global, context, &command.which).await?;
    if selected.is_all() {
        return Err(usage("which messages? A filter, a group as `g1`, or --where"));
    }
    Ok(selected)
}

/// Returns the edits, and how many messages are selected.
async fn edited(
    global: &Global,
    selected: &Selected,
    command: &Edit,
    program: &str,
) -> Result<(Vec<(Shelved, EditOf)>, usize)> {
    let entries: Vec<_> = selected.entries().iter().map(|entry| &entry.entry).collect();
    let entries: Vec<_> = entries.into_iter().filter(|entry| entry.owner != Owner::Other).collect();
    let sensitive = if command.sensitive { SensitiveEdits::Allow } else { SensitiveEdits::Refuse };
    let edits = jq::edited(global, program, &entries, sensitive).await?;
    Ok((edits, entries.len()))
}

fn show(edits: &[(Shelved, EditOf)], most: usize) {
    for (entry, edit) in edits.iter().take(most) {
        print(&printable(&format!("{}\n{}", entry.handle, diff(&entry.message, edit.message()))));
    }
}

fn dry_run(global: &Global, edits: &[(Shelved, EditOf)], found: usize) -> Result<Exit> {
    if global.json {
        let shown = edits.iter().map(|(entry, edit)| {
            serde_json::json!({ "handle": entry.handle.to_string(), "diff": diff(&entry.message, edit.message()) })
        });
        print_json(&serde_json::json!({ "of": found, "edits": shown.collect::<Vec<_>>() }))?;
    } else {
        show(edits, usize::MAX);
    }
    note!("the program changes {} of {}; nothing was changed", edits.len(), plural(found, "message"));
    Ok(Exit::Ok)
}

fn say_what_is_left_out(edits: &Edits) {
    for handle in &edits.uncertain {
        note!(
            "{handle} is left out: a process died while it edited it, and its edited copy may be on the shelf beside it. Look, and \
             discard one of them, or edit this one alone: redrive edit QUEUE {handle} --keep"
        );
    }
    for handle in edits.gone() {
        note!(
            "{handle} is not on the shelf any more: a process died while it edited it, and its edited copy was not found. If it was \
             stored, no plan has it"
        );
    }
}

/// Makes the plan of all that was edited and is on the shelf, also by the same command before it was interrupted.
async fn plan(
    global: &Global,
    state: &State,
    desk: &Desk,
    shelf: Shelf,
    stored: &StoredAll,
    filter: &str,
) -> Result<Option<String>> {
    if stored.handles.is_empty() {
        return Ok(None);
    }
    let view = match read(global, desk, shelf).await {
        Ok(view) => Some(view),
        // The broker is gone: a plan of what it confirmed. The same command makes one of all when it is back.
        Err(_) if stored.failed.is_some() => None,
        Err(error) => return Err(error),
    };
    let entries: Vec<&Shelved> = match &view {
        Some(view) => {
            // Exactly these are sent back, whatever else the filter matches by then.
            let handles: HashSet<_> = stored.handles.iter().collect();
            let there = view.entries();
            there.iter().map(|entry| &entry.entry).filter(|entry| handles.contains(&entry.handle)).collect()
        }
        None => stored.messages.iter().collect(),
    };
    if entries.is_empty() {
        return Ok(None);
    }
    let wanted = Wanted {
        action: PlanAction::Redrive,
        selected: entries,
        handles: &[],
        filter,
        max_redrives: MAX_REDRIVES,
        of_unknown_queue: false,
    };
    Ok(Some(
        make_of(state, desk, shelf, view.as_ref().and_then(ShelfView::holder), &wanted)?
            .plan
            .id()
            .to_string(),
    ))
}

/// Says what was done, and what is left.
fn finish(
    global: &Global,
    desk: &Desk,
    shelf: Shelf,
    stored: StoredAll,
    count: usize,
    plan: Option<&str>,
) -> Result<Exit> {
    let StoredAll { originals, done, earlier, handles, failed, .. } = stored;
    let originals = originals.map(|path| path.display().to_string());
    if let Some(originals) = originals.as_ref().filter(|_| failed.is_none()) {
        note!("the originals are in {originals}");
    }
    if global.json {
        print_json(&serde_json::json!({
            "edited": done, "of": count, "edited_before": earlier, "plan": plan, "originals": originals,
        }))?;
    } else {
        let before = match earlier {
            0 => String::new(),
            earlier => format!("; {earlier} were edited before it was interrupted"),
        };
        if count > 0 || earlier > 0 {
            print(&format!("{done} of {count} edited, and on the shelf{before}"));
        }
        if let Some(plan) = plan {
            print(&format!("to send them back: redrive apply {plan}"));
        } else if !handles.is_empty() && failed.is_none() {
            print("none of them is on the shelf any more");
        } else if (done > 0 || earlier > 0) && failed.is_none() {
            print(&format!(
                "this broker does not tell which messages they are now. To send them back: redrive redrive {} --shelf {shelf} FILTER",
                desk.queue
            ));
        }
    }
    match failed {
        Some(error) => Err(error.context(ended_early(done, count, originals.as_deref()))),
        None => Ok(Exit::Ok),
    }
}

/// Returns what an edit that ended early has changed, and how it goes on.
fn ended_early(done: u64, count: usize, originals: Option<&str>) -> String {
    let originals = originals.map_or_else(String::new, |path| format!(". The originals are in {path}"));
    format!(
        "edited {done} of {}, not the rest: run the same command again to continue; it makes a plan of all{originals}",
        plural(count, "message")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_that_ended_early_says_what_is_changed_and_how_it_goes_on() {
        let text = ended_early(36, 400, Some("/state/originals/edit-1.jsonl"));
        for said in
            ["edited 36 of 400 messages", "not the rest", "run the same command again", "edit-1.jsonl"]
        {
            assert!(text.contains(said), "{text}");
        }
    }
}
