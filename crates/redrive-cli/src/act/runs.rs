//! `redrive runs`: the runs of plans, and going on with one.

use std::io::IsTerminal as _;

use anyhow::Result;
use redrive::ops::{Runner, UncertainEntries};
use serde_json::json;

use super::apply::{finish, operator, watched};
use crate::args::{Global, Runs};
use crate::connect::connect;
use crate::exit::{Exit, usage};
use crate::output::{print_json, rfc3339, table};
use crate::state::State;

pub(crate) async fn run(global: &Global, command: Runs) -> Result<Exit> {
    match command {
        Runs::List => list(global),
        Runs::Resume { run, send_uncertain_again, yes } => {
            resume(global, &run, send_uncertain_again, yes).await
        }
    }
}

fn list(global: &Global) -> Result<Exit> {
    let folder = State::open(global)?.journals()?;
    let mut rows = table(["run", "broker", "queue", "action", "done", "by", "ended"]);
    let mut data = Vec::new();
    for id in folder.runs()?.into_iter().rev() {
        let replay = folder.read(&id)?;
        let (header, ended) = (replay.header.clone(), replay.ended.clone());
        let report = replay.into_run(UncertainEntries::Leave).report();
        let ended = match ended {
            None => "no: it goes on, or was killed".to_owned(),
            Some(None) => "done".to_owned(),
            Some(Some(reason)) => reason.to_string(),
        };
        data.push(json!({
            "run": id, "broker": header.broker, "queue": header.plan.queue(), "action": header.plan.action(), "entries": report.entries,
            "done": report.done, "by": header.by.who, "at": rfc3339(Some(header.by.at)), "ended": ended,
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

async fn resume(global: &Global, run: &str, send_again: bool, yes: bool) -> Result<Exit> {
    let context = global.broker()?;
    global.may_act(&context)?;
    let state = State::open(global)?;
    let (folder, id) = (state.journals()?, state.run(run)?);
    let header = folder.read(&id)?.header;
    if header.broker != context.label() {
        return Err(usage(format!("this run is one of {}, and not of {}", header.broker, context.label())));
    }
    if send_again && !yes && !std::io::stdin().is_terminal() {
        return Err(usage("messages may be sent twice: pass --yes as well"));
    }
    let desk = connect(global, &context, header.plan.queue()).await?;
    let uncertain = if send_again { UncertainEntries::SendAgain } else { UncertainEntries::Leave };
    let runner = Runner::resume(&*desk.shelves, &folder, &id, operator(None), uncertain)?;
    finish(global, &watched(runner).await?)
}
