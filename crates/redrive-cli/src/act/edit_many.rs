//! `redrive edit --jq`: edits many messages by one program, and keeps them on their shelf.

use std::collections::HashSet;
use std::io::IsTerminal as _;

use anyhow::{Result, bail};
use redrive::ops::{PlanAction, SensitiveEdits, diff, require_reason};

use super::ask::counted;
use crate::args::{Edit, Global};
use crate::desk::edit::Edits;
use crate::desk::plan::Wanted;
use crate::desk::{self, State, operator};
use crate::exit::{Exit, usage};
use crate::look::jq;
use crate::look::select::{read, select};
use crate::output::{print, print_json, printable};
use crate::settings::Context;

/// How many differences are shown.
const SHOWN: usize = 20;
/// What was redriven so often goes to the parking shelf.
const MAX_REDRIVES: u32 = 3;

pub(super) async fn run(global: &Global, context: &Context, command: &Edit, program: &str) -> Result<Exit> {
    if !command.yes && !std::io::stdin().is_terminal() {
        return Err(usage("nobody can be asked: there is no terminal. Pass --yes to store the edits"));
    }
    let selected = select(global, context, &command.which).await?;
    if selected.is_all() {
        return Err(usage("which messages? A filter, a group as `g1`, or --where"));
    }
    let entries: Vec<_> = selected.entries().iter().map(|entry| &entry.entry).collect();
    let sensitive = if command.sensitive { SensitiveEdits::Allow } else { SensitiveEdits::Refuse };
    let edits = jq::edited(global, program, &entries, sensitive).await?;
    let (state, found) = (State::open(global)?, entries.len());
    let edits = Edits::new(&state, &selected.desk, edits)?;
    let count = edits.edits.len();
    if !global.json {
        for (entry, edit) in edits.edits.iter().take(SHOWN) {
            print(&printable(&format!("{}\n{}", entry.handle, diff(&entry.message, edit.message()))));
        }
        if count > SHOWN {
            print(&format!("and {} more", count - SHOWN));
        }
    }
    for handle in &edits.uncertain {
        eprintln!(
            "{handle} is left out: a process died while it edited it, and its edited copy may be on the shelf beside it"
        );
    }
    eprintln!("the program changes {count} of {found} messages");
    if count == 0 {
        return Ok(Exit::Ok);
    }
    let reason = command.reason.as_deref();
    require_reason(count as u64, reason).map_err(|error| usage(format!("{error}: pass --reason")))?;
    if !command.yes && !counted(count, "edit")? {
        bail!("not done: the answer was no");
    }

    let filter = format!("{} --jq {program}", selected.text);
    let stored = edits.store(&state, &selected.desk, operator(reason), &filter).await?;
    eprintln!("the originals are in {}", stored.originals.display());
    // Exactly these are sent back, whatever else the filter matches by then.
    let view = read(global, &selected.desk, selected.view.shelf()).await?;
    let handles: HashSet<_> = stored.handles.iter().collect();
    let there = view.entries();
    let there = there.iter().map(|entry| &entry.entry).filter(|entry| handles.contains(&entry.handle));
    let wanted = Wanted {
        action: PlanAction::Redrive,
        selected: there.collect(),
        handles: &[],
        filter: &filter,
        max_redrives: MAX_REDRIVES,
    };
    let plan = match wanted.selected.is_empty() {
        true => None,
        false => Some(desk::make(&state, &selected.desk, &view, &wanted)?.plan.id().to_string()),
    };
    if global.json {
        print_json(&serde_json::json!({ "edited": stored.done, "of": count, "plan": plan }))?;
    } else {
        print(&format!("{} of {count} edited, and on the shelf", stored.done));
        if let Some(plan) = &plan {
            print(&format!("to send them back: redrive apply {plan}"));
        } else if stored.done > 0 {
            print(&format!(
                "this broker does not tell which messages they are now. To send them back: redrive redrive {} --shelf {} FILTER",
                selected.desk.queue,
                view.shelf()
            ));
        }
    }
    match stored.failed {
        Some(error) => Err(error.context("the rest was not edited: the same command goes on with it")),
        None => Ok(Exit::Ok),
    }
}
