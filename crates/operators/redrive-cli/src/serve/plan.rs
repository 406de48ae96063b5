//! Plans: what an action would do, and the word that it is to be done.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::Extension;
use axum::extract::{Form, Query, State};
use axum::response::{IntoResponse as _, Redirect};
use maud::html;
use redrive::ops::{MESSAGES_WITHOUT_REASON, PlanAction, RunOptions};
use redrive::shelves::EntryHandle;
use serde::Deserialize;

use super::auth::Who;
use super::groups::{Which, may_act};
use super::layout::{Answer, link, page, text};
use super::web::Web;
use crate::desk::plan::{Lines, Wanted, needs_count};
use crate::desk::{SavedPlan, make};
use crate::exit::usage;
use crate::output::{one_line, plural, short};

#[derive(Deserialize)]
pub(super) struct Make {
    queue: String,
    #[serde(default)]
    shelf: String,
    #[serde(default)]
    q: String,
    #[serde(default)]
    group: String,
    #[serde(default)]
    handle: String,
    action: String,
}

/// Makes a plan, which changes nothing.
pub(super) async fn make_one(State(web): State<Arc<Web>>, Form(form): Form<Make>) -> Answer {
    web.global.may_act(&web.context)?;
    let action = match &*form.action {
        "redrive" => PlanAction::Redrive,
        "park" => PlanAction::Park,
        "discard" => PlanAction::Discard,
        _ => return Err(usage("the actions are redrive, park and discard").into()),
    };
    let handles: Vec<EntryHandle> = match &*form.handle {
        "" => Vec::new(),
        handle => vec![handle.parse().map_err(|error| usage(format!("{error}")))?],
    };
    let which =
        Which { queue: form.queue, shelf: form.shelf, q: form.q, group: form.group, ..Which::default() };
    let chosen = which.choose(&web).await?;
    let entries = chosen.entries();
    if entries.is_empty() && handles.is_empty() {
        let shelf = chosen.view.entries().len();
        return Err(usage(format!("0 of {} match: there is nothing to do", plural(shelf, "message"))).into());
    }
    let wanted = Wanted {
        action,
        selected: entries.iter().map(|entry| &entry.entry).collect(),
        handles: &handles,
        filter: &which.words(),
        max_redrives: 3,
        of_unknown_queue: false,
    };
    let saved = make(&web.state, web.desk(&which.queue)?, &chosen.view, &wanted)?;
    Ok(Redirect::to(&link(&web, "/plan", &[("id", saved.plan.id())])).into_response())
}

#[derive(Deserialize)]
pub(super) struct Named {
    id: String,
}

pub(super) async fn show(
    State(web): State<Arc<Web>>,
    Extension(who): Extension<Who>,
    Query(named): Query<Named>,
) -> Answer {
    let saved = web.state.plan(&named.id)?;
    let plan = &saved.plan;
    let lines = Lines::of(&saved);
    let count = plan.entries().len();
    let is_redrive = plan.action() == PlanAction::Redrive;
    let which = Which { queue: plan.queue().to_owned(), shelf: plan.shelf().to_string(), ..Which::default() };
    let content = html! {
        p {
            strong { (plan.action()) " " (plural(count, "message")) } " of the " (plan.shelf()) " shelf of " strong { (text(plan.queue())) }
            @if is_redrive { ", about " (short(RunOptions::new().duration(plan))) }
        }
        ul {
            @for (target, count) in &lines.targets { li { (count) " " (text(target)) } }
            @for (why, count) in &lines.left_out { li { (count) " left where they are: " (text(why)) } }
        }
        @if lines.of_unknown_queue > 0 {
            p.bad { (lines.of_unknown_queue) " of them do not tell which of the queues that share this shelf they failed in." }
        }
        @if let Some(not_read) = &saved.not_read { p.bad { "Perhaps not all of the shelf was read: " (text(not_read)) "." } }
        @for name in &lines.names {
            p.bad { "Some messages name the queue " code { (text(&one_line(name, 80))) } ": it is not followed, any publisher can write that." }
        }
        @if !saved.filter.is_empty() { p.dim { "Selected by " code { (text(&saved.filter)) } } }
        p.dim { "Plan " code { (plan.id()) } ", digest " code { (plan.digest()) } }
        h2 { "For example" }
        ul { @for sample in plan.samples() { li {
            a href=(link(&web, "/message", &[("queue", plan.queue()), ("handle", &sample.handle.to_string())])) {
                (text(&one_line(sample.message_id.as_deref().unwrap_or("(without an id)"), 60)))
            }
            " " (text(&one_line(sample.text.as_deref().unwrap_or("-"), 150)))
        } } }
        @if count == 0 { p.good { "There is nothing to do." } }
        @else if may_act(&web, &who) { (form(&web, &saved)) }
        @else { p { "You may only look." } }
        p { a href=(which.link(&web, "/groups", "", 0)) { "Not now" } }
    };
    let title = format!("Plan: {}", plan.action());
    let back = which.link(&web, "/groups", "", 0);
    Ok(page(&web, &who, &title, &[(format!("{} {}", plan.queue(), plan.shelf()), back)], &content))
}

fn form(web: &Web, saved: &SavedPlan) -> maud::Markup {
    let plan = &saved.plan;
    let count = plan.entries().len();
    let needs_reason = count as u64 > MESSAGES_WITHOUT_REASON;
    html! {
        form.card method="post" action={ (web.exposure.base) "/apply" } {
            input type="hidden" name="id" value=(plan.id());
            @if plan.action() == PlanAction::Redrive {
                p {
                    label { "At most " input type="number" name="rate" value="10" min="1" max="100000" required; " messages a second" }
                }
                p {
                    label { "First " input type="number" name="canary" value="5" min="0" max="100000" required; " messages," }
                    label { " and wait " input type="number" name="canary_wait" value="30" min="0" max="86400" required; " seconds for their results" }
                }
                p { label { input type="checkbox" name="ignore_work_queue" value="yes"; " Send also while the work queue has no consumer" } }
            }
            p { label { "Why " input name="reason" size="40" required[needs_reason]; } }
            @if needs_count(plan) {
                p { label { "Type the number of messages, " strong { (count) } ": " input name="count" inputmode="numeric" size="8" required autocomplete="off"; } }
            }
            button { (plan.action()) " " (plural(count, "message")) }
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Apply {
    id: String,
    #[serde(default)]
    rate: Option<u32>,
    #[serde(default)]
    canary: Option<u32>,
    #[serde(default)]
    canary_wait: Option<u64>,
    #[serde(default)]
    ignore_work_queue: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    count: String,
}

impl Apply {
    fn options(&self) -> RunOptions {
        let mut options = RunOptions::new().ignore_work_queue(self.ignore_work_queue == "yes");
        if let Some(rate) = self.rate {
            options = options.rate(rate);
        }
        if let Some(canary) = self.canary {
            options = options.canary(canary);
        }
        match self.canary_wait {
            Some(seconds) => options.canary_wait(Duration::from_secs(seconds.min(86_400))),
            None => options,
        }
    }
}

/// Begins the run of a plan.
pub(super) async fn apply(
    State(web): State<Arc<Web>>,
    Extension(who): Extension<Who>,
    Form(form): Form<Apply>,
) -> Answer {
    web.global.may_act(&web.context)?;
    let saved = web.state.plan(&form.id)?;
    check_count(&saved, &form.count)?;
    let by = web.operator(&who, &form.reason);
    let run = web.begin(saved, form.options(), by).await?;
    Ok(Redirect::to(&link(&web, "/run", &[("id", &run)])).into_response())
}

fn check_count(saved: &SavedPlan, typed: &str) -> Result<()> {
    let count = saved.plan.entries().len();
    if needs_count(&saved.plan) && typed.trim().parse() != Ok(count) {
        return Err(usage(format!(
            "nothing was changed: type the number of messages, {count}, to {} them",
            saved.plan.action()
        )));
    }
    Ok(())
}
