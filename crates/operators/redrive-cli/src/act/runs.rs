//! `redrive runs`: the runs of plans, and control of one.

use std::io::IsTerminal as _;

use anyhow::Result;
use redrive::ops::{JournalError, JournalFolder, JournalHeader, Replay, RunReport, UncertainEntries};
use serde_json::json;

use super::apply::{finish, say_if_shelf_is_gone, say_undo, told, watched};
use crate::args::{Global, Runs};
use crate::desk::asks::{Ask, ask};
use crate::desk::outcome::{came_back, has_nothing_left, words};
use crate::desk::{self, State, connect, operator};
use crate::exit::{Exit, usage};
use crate::output::{note, print_json, rfc3339, table};

pub(crate) async fn run(global: &Global, command: Runs) -> Result<Exit> {
    match command {
        Runs::List => list(global),
        Runs::Pause { run } => control(global, &run, Ask::Pause),
        Runs::Abort { run } => control(global, &run, Ask::Abort),
        Runs::Rate { run, per_second } => control(global, &run, Ask::Rate { per_second }),
        Runs::Resume { run, send_uncertain_again, yes } => {
            resume(global, &run, send_uncertain_again, yes).await
        }
    }
}

/// Asks something of a run that runs in another process of this machine.
fn control(global: &Global, run: &str, what: Ask) -> Result<Exit> {
    let context = global.broker()?;
    global.may_act(&context)?;
    let state = State::open(global)?;
    let id = state.run(run)?;
    if !state.journals()?.is_running(&id)? {
        return Err(usage(format!("run {id} is not running now: `redrive runs list` says how it ended")));
    }
    ask(&state.asks(&id), what)?;
    Ok(Exit::Ok)
}

fn list(global: &Global) -> Result<Exit> {
    let state = State::open(global)?;
    let folder = state.journals()?;
    let mut rows = table(["run", "broker", "queue", "action", "done", "by", "ended"]);
    let mut data = Vec::new();
    for id in folder.runs()?.into_iter().rev() {
        // One that is damaged, or that has just begun, does not hide the others.
        let Listed { header, report, ended } = match listed(&state, &folder, &id) {
            Ok(listed) => listed,
            Err(error) => {
                data.push(json!({ "run": id, "error": error.to_string() }));
                let mut row = [const { String::new() }; 7];
                (row[0], row[6]) = (id, error.to_string());
                rows.row(row);
                continue;
            }
        };
        data.push(json!({
            "run": id, "broker": header.broker, "queue": header.plan.queue(), "action": header.plan.action(), "entries": report.entries,
            "done": report.done, "came_back": came_back(&report), "not_found": report.not_found, "by": header.by.who, "at": rfc3339(Some(header.by.at)), "ended": ended,
        }));
        rows.row([
            id,
            header.broker,
            header.plan.queue().to_owned(),
            header.plan.action().to_string(),
            format!("{}/{}", report.done, report.entries),
            header.by.who,
            ended,
        ]);
    }
    match global.json {
        true => print_json(&data)?,
        false => rows.print(),
    }
    Ok(Exit::Ok)
}

/// What the journal of a run says.
struct Listed {
    header: JournalHeader,
    report: RunReport,
    ended: String,
}

fn listed(state: &State, folder: &JournalFolder, id: &str) -> Result<Listed, JournalError> {
    let replay = folder.read(id)?;
    let (header, ended) = (replay.header.clone(), replay.ended.clone());
    let report = replay.into_run(UncertainEntries::Leave).report();
    let ended = match ended {
        None if folder.is_running(id)? => "no: it is running".to_owned(),
        None if state.unwritten(id).exists() => "no: its journal could not be written".to_owned(),
        None => "no: its process ended without a note; it was probably killed".to_owned(),
        Some(stopped) => words(stopped.as_ref(), &report),
    };
    Ok(Listed { header, report, ended })
}

async fn resume(global: &Global, run: &str, send_again: bool, yes: bool) -> Result<Exit> {
    let context = global.broker()?;
    global.may_act(&context)?;
    let state = State::open(global)?;
    let (folder, id) = (state.journals()?, state.run(run)?);
    if folder.is_running(&id)? {
        ask(&state.asks(&id), Ask::Resume)?;
        return Ok(Exit::Ok);
    }
    if send_again && !yes && !std::io::stdin().is_terminal() {
        return Err(usage("messages may be sent twice: pass --yes as well"));
    }
    let replay = folder.read(&id)?;
    if !send_again && let Some(exit) = nothing_left(global, &id, &replay)? {
        return Ok(exit);
    }
    let desk = connect(global, &context, replay.header.plan.queue()).await?;
    let uncertain = if send_again { UncertainEntries::SendAgain } else { UncertainEntries::Leave };
    let finished = watched(desk::resume(&state, &desk, &id, operator(None), uncertain)?).await?;
    let exit = finish(global, &finished)?;
    say_undo(&desk, &replay.header.plan, &finished);
    say_if_shelf_is_gone(&state, &desk, &replay.header.plan, &finished).await?;
    Ok(exit)
}

/// Says what became of a run that ended without success and has nothing left to send. Its journal keeps why it stopped.
fn nothing_left(global: &Global, id: &str, replay: &Replay) -> Result<Option<Exit>> {
    let report = replay.clone().into_run(UncertainEntries::Leave).report();
    if !has_nothing_left(replay, &report) {
        return Ok(None);
    }
    told(global, id, &report, replay.ended.as_ref().and_then(Option::as_ref))?;
    note!("this run has nothing left to do: nothing was changed");
    if came_back(&report) > 0 {
        note!("the messages that came back are on the shelf again: repair the cause, then make another plan");
    }
    Ok(Some(Exit::Incomplete))
}
