//! `redrive apply`: does what a plan says, and nothing else.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, IsTerminal as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use redrive::ops::{
    Activity, EntryState, ExportLines, ExportedEntry, FinishedRun, PauseReason, Plan, PlanAction,
    RunProgress, RunReport, StopReason, require_reason,
};
use redrive::shelves::EntryHandle;

use super::{ask, plan};
use crate::args::{Apply, Global, Pace};
use crate::desk::outcome::{advice, is_complete, resume_command};
use crate::desk::{Begun, Desk, SavedPlan, State, begin, connect, operator};
use crate::exit::{EndSignals, Exit, usage};
use crate::interrupt::INTERRUPTED;
use crate::output::{note, plural, print, print_json, printable};

const ENDING: &str = "ending after this step";
/// How many entries that are not done are listed.
const SHOWN: usize = 5;
const TICK: Duration = Duration::from_millis(200);
/// Number of ticks in which a run must wait for the work queue before it is said.
const TOLD_AFTER: u32 = 10;

pub(crate) async fn run(global: &Global, command: Apply) -> Result<Exit> {
    let context = global.broker()?;
    global.may_act(&context)?;
    let saved = State::open(global)?.plan(&command.plan)?;
    plan::show(&saved, &command.pace);
    let desk = connect(global, &context, saved.plan.queue()).await?;
    apply(global, &desk, &saved, &command.pace).await
}

/// Asks, exports the originals, and runs the plan.
///
/// # Errors
///
/// If nobody can be asked, or the same as [`begin()`].
pub(super) async fn apply(global: &Global, desk: &Desk, saved: &SavedPlan, pace: &Pace) -> Result<Exit> {
    let by = operator(pace.reason.as_deref());
    // Before anybody types an answer.
    require_reason(saved.plan.entries().len() as u64, pace.reason.as_deref())
        .map_err(|error| usage(format!("{error}: pass --reason")))?;
    if !ask::agreed(&saved.plan, pace)? {
        bail!("cancelled. Plan {} was kept", saved.plan.id());
    }
    let state = State::open(global)?;
    let begun = begin(&state, desk, saved, pace.options(), by, global.timeout).await?;
    if let Some((path, count)) = &begun.originals {
        note!("{} in {}", plural(count, "original"), path.display());
    }
    let finished = watched(begun).await?;
    let exit = finish(global, &finished)?;
    say_undo(desk, &saved.plan, &finished);
    say_if_shelf_is_gone(&state, desk, &saved.plan, &finished).await?;
    Ok(exit)
}

/// Says where the messages are that had no turn, if the broker has lost the shelf with them.
///
/// # Errors
///
/// If their originals cannot be read, or written to a file of their own.
pub(super) async fn say_if_shelf_is_gone(
    state: &State,
    desk: &Desk,
    plan: &Plan,
    finished: &FinishedRun,
) -> Result<()> {
    let shelf = plan.shelf();
    if finished.report.left == 0 || !matches!(finished.stopped, Some(StopReason::Broker(_))) {
        return Ok(());
    }
    // Another answer, or none, tells nothing about them.
    let counted = tokio::time::timeout(SHELF_ANSWERS_WITHIN, desk.shelves.count(shelf)).await;
    if !counted.is_ok_and(|counted| counted.is_err_and(|error| error.is_missing_shelf())) {
        return Ok(());
    }
    let replay = state.journals()?.read(&finished.id)?;
    let had_no_turn = |handle: &EntryHandle| {
        replay.states.get(handle).is_none_or(|state| *state == EntryState::NotTried)
            && !replay.open.contains(handle)
    };
    let handles = plan.entries().iter().map(|entry| entry.handle.clone());
    let left = handles.filter(had_no_turn).collect();
    let (path, count) = save_left(state, &finished.id, &left)?;
    note!(
        "{}",
        printable(&format!(
            "the {shelf} shelf of `{queue}` was deleted, and what had no turn went with it. The originals of {count} of them are in \
             {path}: when the shelf exists again, `redrive import {queue} {path}` puts them onto it",
            queue = desk.queue,
            path = path.display(),
        ))
    );
    Ok(())
}

/// How long a broker that failed a run is asked whether the shelf is there.
const SHELF_ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// Writes the originals of these entries to a file of their own: an import of all of them would repeat what is done.
fn save_left(state: &State, run: &str, left: &HashSet<EntryHandle>) -> Result<(PathBuf, usize)> {
    let path = state.originals(run);
    let file = File::open(&path).with_context(|| format!("cannot open the originals {}", path.display()))?;
    let entries: Vec<ExportedEntry> = ExportLines::new(BufReader::new(file)).collect::<Result<_, _>>()?;
    let entries: Vec<_> = entries.into_iter().filter(|entry| left.contains(&entry.handle)).collect();
    Ok((state.save_originals(&format!("{run}-left"), entries.iter())?, entries.len()))
}

/// Says how to bring back what a run removed.
pub(super) fn say_undo(desk: &Desk, plan: &Plan, finished: &FinishedRun) {
    let is_discard = plan.action() == PlanAction::Discard && finished.report.done > 0;
    if is_discard && desk.can_restore(plan.shelf()) {
        note!("to bring them back: redrive undo {}", finished.id);
    }
}

/// Runs it, with its progress on stderr. The first Ctrl-C, SIGTERM or SIGHUP ends it after its step; the second says what an end at once
/// would cut; the third ends it at once. A run that the canary pauses
/// waits for `redrive runs resume` from another terminal; without a terminal it ends.
///
/// # Errors
///
/// If the journal cannot be written.
pub(super) async fn watched(begun: Begun<'_>) -> Result<FinishedRun> {
    let control = begun.control();
    let id = begun.id().to_owned();
    let bar = bar(control.progress().report.entries)?;
    let mut signals = EndSignals::claim();
    let watching = async {
        let (mut interrupted, mut told, mut held) = (0, false, 0);
        let mut tick = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                _ = tick.tick() => {
                    let progress = control.progress();
                    show(&bar, &progress);
                    if interrupted > 0 {
                        bar.set_message(ENDING);
                    }
                    let waits = matches!(progress.activity, Activity::Held(_) | Activity::WaitingForTurn);
                    held = if waits { held + 1 } else { 0 };
                    if held == TOLD_AFTER {
                        let without = match progress.activity {
                            Activity::Held(_) => "; `--ignore-work-queue` skips this check",
                            _ => "",
                        };
                        bar.suspend(|| note!("{}. Continues automatically{without}", activity(&progress)));
                    }
                    if let Activity::Paused(reason) = progress.activity {
                        if !told {
                            bar.suspend(|| note!("{reason}. Continue with `redrive runs resume {id}`, stop with `redrive runs abort {id}`"));
                        }
                        told = true;
                        // Nobody looks at it.
                        if reason != PauseReason::Asked && !std::io::stdin().is_terminal() {
                            control.abort();
                        }
                    } else {
                        told = false;
                    }
                }
                () = signals.next() => {
                    interrupted += 1;
                    match interrupted {
                        1 => {
                            control.abort();
                            bar.suspend(|| note!("{ENDING}"));
                        }
                        2 => bar.suspend(|| note!("{}", would_cut(&control.progress(), &id))),
                        _ => {
                            // The journal says what is done.
                            bar.finish_and_clear();
                            note!("ended in the middle of a step: continue with `redrive runs resume {id}`");
                            std::process::exit(INTERRUPTED);
                        }
                    }
                }
            }
        }
    };
    let finished = tokio::select! {
        finished = begun.run() => finished,
        failed = watching => failed,
    };
    bar.finish_and_clear();
    finished
}

/// Says what an end in the middle of a step would cut.
fn would_cut(progress: &RunProgress, id: &str) -> String {
    format!(
        "this step is not over yet ({}), and not done for {} of {}. Ctrl-C again ends it in the middle: messages of this step may \
         then be on the shelf and in their new place as well, and `redrive runs resume {id}` names them",
        activity(progress),
        progress.report.left,
        plural(progress.report.entries, "message")
    )
}

/// Returns a progress bar for this many messages, on stderr, and only on a terminal.
///
/// # Errors
///
/// If the template is wrong, which it is not.
pub(super) fn bar(messages: u64) -> Result<ProgressBar> {
    let bar = ProgressBar::new(messages);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {rate} {eta} left  {wide_msg}")?;
    bar.set_style(style.with_key("rate", |state: &ProgressState, to: &mut dyn std::fmt::Write| {
        let _ = write!(to, "{:.1}/s", state.per_sec());
    }));
    Ok(bar)
}

fn show(bar: &ProgressBar, progress: &RunProgress) {
    let report = &progress.report;
    bar.set_position(report.entries - report.left);
    bar.set_message(activity(progress));
}

/// Returns what a run does now, for a person.
pub(crate) fn activity(progress: &RunProgress) -> String {
    match &progress.activity {
        Activity::Checking => "compares the plan with the shelf".to_owned(),
        Activity::Sending | Activity::WaitingForRate => format!("at most {} a second", progress.rate),
        Activity::WaitingForTurn => "waits: another reader has the shelf".to_owned(),
        Activity::Looking => "checks the results".to_owned(),
        Activity::WaitingForCanary => "waits for the results of the first ones".to_owned(),
        Activity::Held(why) => format!("waits: {why}"),
        Activity::Paused(reason) => format!("{reason}"),
        Activity::Stopped(reason) => format!("{reason}"),
        _ => String::new(),
    }
}

/// Says how a run ended.
///
/// # Errors
///
/// If it cannot be written as JSON.
pub(super) fn finish(global: &Global, finished: &FinishedRun) -> Result<Exit> {
    let report = &finished.report;
    told(global, &finished.id, report, finished.stopped.as_ref())?;
    if !global.json {
        for (entry, state) in finished.not_done.iter().take(SHOWN) {
            print(&printable(&format!("  {} {state}", entry.handle)));
        }
        if let Some(more @ 1..) = finished.not_done.len().checked_sub(SHOWN) {
            print(&format!("  and {more} more"));
        }
    }
    if let Some(reason) = &finished.stopped {
        note!("{}", advice(reason, &resume_command(&finished.id), report));
    }
    let is_complete = finished.stopped.is_none() && is_complete(report);
    Ok(if is_complete { Exit::Ok } else { Exit::Incomplete })
}

/// Tells the counts of a run that has ended.
///
/// # Errors
///
/// If they cannot be written as JSON.
pub(super) fn told(
    global: &Global,
    id: &str,
    report: &RunReport,
    stopped: Option<&StopReason>,
) -> Result<()> {
    if global.json {
        print_json(&serde_json::json!({
            "run": id, "entries": report.entries, "done": report.done, "gone": report.gone, "not_found": report.not_found,
            "changed": report.changed, "failed": report.failed, "uncertain": report.uncertain, "left": report.left,
            "handled": report.fates.done,
            "failed_again": report.fates.failed_same + report.fates.failed_other,
            "stopped": stopped.map(ToString::to_string),
        }))?;
    } else {
        print(&format!("run {id}: {} of {} done", report.done, report.entries));
        for (count, what) in not_simply_done(report) {
            print(&format!("  {count:>7}  {what}"));
        }
    }
    Ok(())
}

/// Returns the counts of entries that were not simply done, with what became of them.
pub(crate) fn not_simply_done(report: &RunReport) -> impl Iterator<Item = (u64, &'static str)> {
    let others = [
        (report.gone, "left the shelf while the process died"),
        (report.not_found, "were not found: they left the shelf, or another client holds them"),
        (report.changed, "were changed since the plan, and not touched"),
        (report.failed, "failed, and are still on the shelf"),
        (report.uncertain, "are on the shelf, and perhaps in their new place as well"),
        (report.left, "had no turn"),
        (report.fates.done, "were handled, as their consumer reported"),
        (report.fates.failed_same, "came back with the same failure"),
        (report.fates.failed_other, "came back with another failure"),
    ];
    others.into_iter().filter(|(count, _)| *count > 0)
}
