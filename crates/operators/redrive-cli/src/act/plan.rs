//! `redrive plan`: what an action would do.

use anyhow::Result;
use redrive::ops::{Plan, PlanAction, RunOptions};
use redrive::shelves::EntryHandle;
use serde::Serialize;

use crate::args::{Global, MakePlan, Pace};
use crate::desk::plan::{Lines, Wanted};
use crate::desk::{self, SavedPlan, State};
use crate::exit::{Exit, usage};
use crate::look::select::{Selected, require_selection, require_shelf, select};
use crate::output::{note, one_line, plural, print, print_json, printable, short};

pub(crate) async fn run(global: &Global, command: MakePlan) -> Result<Exit> {
    let context = global.broker()?;
    require_selection(&command.which, &command.handle, command.all, "plan")?;
    let selected = select(global, &context, &command.which).await?;
    let Some(saved) = make(
        global,
        &selected,
        command.action.into(),
        &command.handle,
        command.max_redrives,
        command.with_unknown,
    )?
    else {
        return Ok(Exit::Ok);
    };
    if global.json {
        print_json(&Printed {
            plan: &saved.plan,
            not_looked_into: selected.not_looked_into,
            not_read: saved.not_read.as_deref(),
        })?;
    } else {
        show(&saved, &Pace::usual());
        print(&format!("nothing was changed. To do it: redrive apply {}", saved.plan.id()));
    }
    Ok(Exit::Ok)
}

/// A plan, and into how many bodies its filter could not look.
#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    plan: &'a Plan,
    not_looked_into: usize,
    not_read: Option<&'a str>,
}

/// Makes a plan of the selected entries, and keeps it. If nothing is selected, it says so, and makes none.
///
/// # Errors
///
/// If a handle is wrong or not on the shelf, or the plan cannot be written.
pub(super) fn make(
    global: &Global,
    selected: &Selected,
    action: PlanAction,
    handles: &[String],
    max_redrives: u32,
    of_unknown_queue: bool,
) -> Result<Option<SavedPlan>> {
    let handles: Vec<EntryHandle> = handles
        .iter()
        .map(|handle| handle.parse().map_err(|error| usage(format!("{error}"))))
        .collect::<Result<_>>()?;
    require_shelf(handles.iter(), selected.view.shelf())?;
    if let Some(nothing) = selected.nothing().filter(|_| handles.is_empty()) {
        note!(
            "{} {}: {nothing}: there is nothing to do",
            printable(&selected.desk.queue),
            selected.view.shelf()
        );
        if global.json {
            print_json(&serde_json::Value::Null)?;
        }
        return Ok(None);
    }
    let entries = selected.entries().iter().map(|entry| &entry.entry).collect();
    let wanted = Wanted {
        action,
        selected: entries,
        handles: &handles,
        filter: &selected.text,
        max_redrives,
        of_unknown_queue,
    };
    desk::make(&State::open(global)?, &selected.desk, &selected.view, &wanted).map(Some)
}

/// Shows a plan to a person.
pub(super) fn show(saved: &SavedPlan, pace: &Pace) {
    for line in lines(saved, &pace.options()) {
        print(&line);
    }
}

/// Returns the lines of a plan, for a person: counts, targets, what is left out, how long it takes. Nothing in them steers a terminal.
pub(crate) fn lines(saved: &SavedPlan, options: &RunOptions) -> Vec<String> {
    let plan = &saved.plan;
    let took = short(options.duration(plan));
    let mut lines = vec![format!(
        "plan {} on {}: {} {} of the {} shelf of `{}`, about {took}",
        plan.id(),
        printable(&saved.broker),
        plan.action(),
        plural(plan.entries().len(), "message"),
        plan.shelf(),
        printable(plan.queue())
    )];
    let Lines { targets, left_out, names, of_unknown_queue } = Lines::of(saved);
    for (target, count) in targets {
        lines.push(format!("  {count:>7}  {}", printable(&target)));
    }
    for (why, count) in left_out {
        lines.push(format!("  {count:>7}  left where it is: {why}"));
    }
    if of_unknown_queue > 0 {
        lines.push(format!(
            "  {of_unknown_queue:>7}  of them: do not tell which of the queues that share this shelf they failed in"
        ));
    }
    if let Some(not_read) = &saved.not_read {
        lines.push(format!("  perhaps not all of the shelf was read: {}", printable(not_read)));
    }
    for name in names {
        lines.push(format!(
            "  some messages name the queue `{}`: it is not followed, any publisher can write that",
            one_line(&name, 80)
        ));
    }
    for sample in plan.samples().iter().take(3) {
        lines.push(format!(
            "  for example {}  {}",
            sample.handle,
            one_line(sample.text.as_deref().unwrap_or("-"), 90)
        ));
    }
    lines
}

impl Pace {
    pub(super) fn options(&self) -> RunOptions {
        RunOptions::new()
            .rate(self.rate)
            .canary(self.canary)
            .canary_wait(self.canary_wait)
            .ramp_step(self.ramp_step)
            .ignore_work_queue(self.ignore_work_queue)
    }

    fn usual() -> Self {
        use std::time::Duration;
        Self {
            rate: 10,
            canary: 5,
            canary_wait: Duration::from_secs(30),
            ramp_step: Duration::from_secs(10),
            ignore_work_queue: false,
            reason: None,
            yes: false,
        }
    }
}
