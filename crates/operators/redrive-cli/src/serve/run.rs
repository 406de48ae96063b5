//! One run, and all of them.

use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Result;
use axum::Extension;
use axum::extract::{Form, Query, State};
use axum::response::{IntoResponse as _, Redirect};
use maud::{Markup, html};
use redrive::ops::{Activity, PlanAction, Replay, RunReport, StopReason, UncertainEntries};
use serde::Deserialize;

use super::auth::Who;
use super::groups::may_act;
use super::layout::{Answer, link, page, text, time};
use super::web::Web;
use crate::desk::asks::{Ask, ask};
use crate::desk::outcome::{advice, has_nothing_left, is_complete, words};
use crate::desk::undo::Undoing;
use crate::exit::usage;
use crate::output::plural;

/// How many runs the history lists.
const LISTED: usize = 100;

#[derive(Deserialize)]
pub(super) struct Named {
    id: String,
}

/// How a run is now.
struct Now {
    replay: Replay,
    report: RunReport,
    /// Messages a second; none if it does not go on in this process.
    rate: Option<u32>,
    activity: String,
    is_running: bool,
    is_paused: bool,
}

impl Now {
    fn of(web: &Web, id: &str) -> Result<Self> {
        let folder = web.state.journals()?;
        let replay = folder.read(id)?;
        if let Some(control) = web.control(id) {
            let progress = control.progress();
            let is_paused = matches!(progress.activity, Activity::Paused(_));
            let activity = said(&progress.activity);
            return Ok(Self {
                replay,
                report: progress.report,
                rate: Some(progress.rate),
                activity,
                is_running: true,
                is_paused,
            });
        }
        let is_running = replay.ended.is_none() && folder.is_running(id)?;
        let report = replay.clone().into_run(UncertainEntries::Leave).report();
        let activity = match &replay.ended {
            None if is_running => "runs in another process of this machine".to_owned(),
            None => "was killed: it can be resumed".to_owned(),
            Some(None) => "the run is over".to_owned(),
            Some(Some(reason)) => advice(reason, "Resume", &report),
        };
        Ok(Self { replay, report, rate: None, activity, is_running, is_paused: false })
    }

    fn can_resume(&self) -> bool {
        let is_over = self.is_running || has_nothing_left(&self.replay, &self.report);
        !is_over && !matches!(&self.replay.ended, Some(None | Some(StopReason::Aborted)))
    }

    /// Returns how it is, for a list.
    fn in_a_list(&self) -> String {
        match &self.replay.ended {
            Some(stopped) if !self.is_running => words(stopped.as_ref(), &self.report),
            _ => self.activity.clone(),
        }
    }

    /// Returns the text of the button that brings discarded messages back.
    fn undo_button(&self, web: &Web, id: &str) -> Option<String> {
        if self.is_running || self.replay.header.plan.action() != PlanAction::Discard {
            return None;
        }
        let undoing = Undoing::of(&web.state, id).ok()?;
        let most = undoing.left() + undoing.in_doubt();
        let up_to = if undoing.in_doubt() > 0 { "up to " } else { "" };
        (most > 0).then(|| format!("Bring back {up_to}{}", plural(most, "message")))
    }
}

/// Returns what a run does now, in words.
fn said(activity: &Activity) -> String {
    match activity {
        Activity::Checking => "compares the plan with the shelf".to_owned(),
        Activity::Sending | Activity::WaitingForRate => "sends".to_owned(),
        Activity::WaitingForTurn => "waits: another reader has the shelf".to_owned(),
        Activity::Looking => "checks the results".to_owned(),
        Activity::WaitingForCanary => "waits for the results of the first ones".to_owned(),
        Activity::Held(why) => format!("waits: {why}"),
        Activity::Paused(why) => why.to_string(),
        Activity::Done => "the run is over".to_owned(),
        Activity::Stopped(why) => format!("stopped: {why}"),
        _ => String::new(),
    }
}

pub(super) async fn show(
    State(web): State<Arc<Web>>,
    Extension(who): Extension<Who>,
    Query(named): Query<Named>,
) -> Answer {
    let now = Now::of(&web, &named.id)?;
    let header = &now.replay.header;
    let plan = &header.plan;
    let groups = link(&web, "/groups", &[("queue", plan.queue()), ("shelf", &plan.shelf().to_string())]);
    let report = &now.report;
    let content = html! {
        div #live data-live[now.is_running] {
            p {
                strong { (plan.action()) } " on " a href=(groups) { (text(plan.queue())) " " (plan.shelf()) } ", by " (text(&header.by.who))
                " " span.dim { (time(Some(header.by.at), SystemTime::now())) " ago" }
                @if let Some(reason) = &header.by.reason { ": " (text(reason)) }
            }
            progress max=(report.entries.max(1)) value=(report.entries - report.left) {}
            p.big { (report.done) " of " (report.entries) " done. " span.bad[is_bad(&now)] { (text(&now.activity)) } }
            (counts(report))
            @if let Some(rate) = now.rate { p.dim { "At most " (plural(rate, "message")) " a second now." } }
            @if may_act(&web, &who) { (controls(&web, &named.id, &now)) }
        }
    };
    Ok(page(
        &web,
        &who,
        &format!("Run {}", named.id),
        &[("History".to_owned(), link(&web, "/runs", &[]))],
        &content,
    ))
}

fn is_bad(now: &Now) -> bool {
    (now.replay.ended.is_some() && !is_complete(&now.report))
        || matches!(&now.replay.ended, Some(Some(_)))
        || (now.replay.ended.is_none() && !now.is_running)
        || now.is_paused
}

fn counts(report: &RunReport) -> Markup {
    let fates = &report.fates;
    let all = [
        (fates.done, "handled, as their consumer reported"),
        (fates.failed_same, "came back with the same failure"),
        (fates.failed_other, "came back with another failure"),
        (fates.not_known, "were not seen on a shelf again so far"),
        (report.gone, "left the shelf while a process died"),
        (report.not_found, "were not found: they left the shelf, or another client holds them"),
        (report.changed, "were changed since the plan, and not touched"),
        (report.failed, "failed, and are still on the shelf"),
        (report.uncertain, "are on the shelf, and perhaps in their new place as well"),
        (report.left, "have not had their turn"),
    ];
    html! { ul { @for (count, what) in all.iter().filter(|(count, _)| *count > 0) { li { strong { (count) } " " (what) } } } }
}

fn controls(web: &Web, id: &str, now: &Now) -> Markup {
    html! {
        form.plain method="post" action={ (web.exposure.base) "/run" } {
            input type="hidden" name="id" value=(id);
            @if now.is_running {
                @if now.is_paused { button name="ask" value="resume" { "Go on" } }
                @else { button name="ask" value="pause" { "Pause" } }
                button.quiet name="ask" value="abort" { "Abort" }
            }
            @if now.can_resume() { button name="ask" value="resume" { "Resume" } }
            @if let Some(text) = now.undo_button(web, id) { button name="ask" value="undo" { (text) } }
        }
        @if now.is_running {
            form.plain method="post" action={ (web.exposure.base) "/run" } {
                input type="hidden" name="id" value=(id);
                label { "Rate " input type="number" name="per_second" min="1" max="100000" required size="6"; }
                button.quiet name="ask" value="rate" { "Set" }
            }
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Asked {
    id: String,
    ask: String,
    #[serde(default)]
    per_second: Option<u32>,
}

/// Controls a run, wherever on this machine it goes on.
pub(super) async fn control(
    State(web): State<Arc<Web>>,
    Extension(who): Extension<Who>,
    Form(asked): Form<Asked>,
) -> Answer {
    web.global.may_act(&web.context)?;
    let now = Now::of(&web, &asked.id)?;
    let by = web.operator(&who, "");
    let what = match (&*asked.ask, asked.per_second) {
        ("undo", _) => {
            web.undo(asked.id.clone(), by).await?;
            None
        }
        ("resume", _) if !now.is_running && has_nothing_left(&now.replay, &now.report) => {
            return Err(usage("this run has nothing left to do").into());
        }
        ("resume", _) if !now.is_running => {
            web.resume(asked.id.clone(), by).await?;
            None
        }
        ("pause", _) => Some(Ask::Pause),
        ("resume", _) => Some(Ask::Resume),
        ("abort", _) => Some(Ask::Abort),
        ("rate", Some(per_second)) => Some(Ask::Rate { per_second }),
        _ => return Err(usage("a run can be paused, resumed, aborted, undone, and given a rate").into()),
    };
    if let Some(what) = what {
        match web.control(&asked.id) {
            Some(control) => what.of(&control),
            None if now.is_running => ask(&web.state.asks(&asked.id), what)?,
            None => return Err(usage("the run has ended").into()),
        }
    }
    Ok(Redirect::to(&link(&web, "/run", &[("id", &asked.id)])).into_response())
}

pub(super) async fn history(State(web): State<Arc<Web>>, Extension(who): Extension<Who>) -> Answer {
    let folder = web.state.journals()?;
    let mut runs = folder.runs()?;
    runs.reverse();
    let mut rows = Vec::new();
    for id in runs.iter().take(LISTED) {
        // One damaged journal does not hide the others.
        rows.push((id, Now::of(&web, id)));
    }
    let content = html! {
        @if rows.is_empty() { p { "No run yet." } }
        table.rows {
            thead { tr { th { "Run" } th { "Queue" } th { "Action" } th.number { "Done" } th { "By" } th { "When" } th { "How it is" } } }
            tbody { @for (id, now) in &rows {
                @match now {
                    Ok(now) => { @let header = &now.replay.header; tr {
                        td { a.row href=(link(&web, "/run", &[("id", id)])) { (id) } }
                        td { (text(header.plan.queue())) }
                        td { (header.plan.action()) }
                        td.number { (now.report.done) "/" (now.report.entries) }
                        td { (text(&header.by.who)) }
                        td { (time(Some(header.by.at), SystemTime::now())) " ago" }
                        td.bad[is_bad(now)] { (text(&now.in_a_list())) }
                    } }
                    Err(error) => { tr { td { (id) } td.bad colspan="6" { (text(&error.to_string())) } } }
                }
            } }
        }
    };
    Ok(page(&web, &who, "History", &[], &content))
}
