//! One message: its history, and its edit.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use axum::Extension;
use axum::extract::{Form, Query, State};
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use redrive::Message;
use redrive::ops::{EditText, SensitiveEdits, ShownFailure, ViewEntry, diff};
use redrive::shelves::{EntryHandle, Owner, Shelved};
use serde::Deserialize;

use super::auth::Who;
use super::groups::{Which, may_act};
use super::layout::{Answer, link, moment, page, text};
use super::web::Web;
use crate::desk::edit::{Then, store};
use crate::exit::usage;
use crate::look::show;
use crate::output::{one_line, plural};

/// A longer body is shown in part: a browser, and a person, have enough of that.
const SHOWN: usize = 100_000;

/// Which message a page is about.
#[derive(Deserialize)]
pub(super) struct One {
    pub(super) queue: String,
    pub(super) handle: String,
}

impl One {
    fn link(&self, web: &Web, path: &str) -> String {
        link(web, path, &[("queue", &self.queue), ("handle", &self.handle)])
    }

    /// Returns the message as the last view of its shelf has it.
    async fn find(&self, web: &Web) -> Result<ViewEntry> {
        let handle: EntryHandle = self.handle.parse().map_err(|error| usage(format!("{error}")))?;
        let view = web.view(&(self.queue.clone(), handle.shelf())).await?;
        let found = view.entries().iter().find(|entry| entry.entry.handle == handle).cloned();
        found.with_context(|| format!("{handle} was not on the shelf when it was read: read it again"))
    }
}

pub(super) async fn show(
    State(web): State<Arc<Web>>,
    Extension(who): Extension<Who>,
    Query(one): Query<One>,
) -> Answer {
    let found = one.find(&web).await?;
    let now = SystemTime::now();
    let Shelved { handle, message, history, .. } = &found.entry;
    let shelf = handle.shelf().to_string();
    let group = found.group.to_string();
    let which = Which { queue: one.queue.clone(), shelf: shelf.clone(), ..Which::default() };
    let told = ShownFailure::of(&found.entry);
    let name = told.id.as_deref().unwrap_or("(without an id)");
    let content = html! {
        @if may_act(&web, &who) {
            form.plain method="post" action={ (web.exposure.base) "/plan" } {
                (which.fields())
                input type="hidden" name="handle" value=(one.handle);
                button name="action" value="redrive" { "Redrive…" }
                a.button href=(one.link(&web, "/edit")) { "Edit…" }
                @if shelf != "parking" { button.quiet name="action" value="park" { "Park…" } }
                button.quiet name="action" value="discard" { "Discard…" }
            }
        }
        dl {
            dt { "Reason" } dd { (text(told.reason.as_deref().unwrap_or("-"))) }
            @if let Some(error) = &told.error { dt { "Error" } dd { pre.error { (text(error)) } } }
            @if let Some(kind) = &told.error_type { dt { "Type" } dd { (text(kind)) } }
            @if let Some(reason) = &told.broker_reason {
                dt { "The broker says" } dd { (text(reason)) " " (text(told.broker_description.as_deref().unwrap_or_default())) }
            }
            @if let Some(queue) = &found.entry.failed_in {
                dt { "Failed in" } dd {
                    (text(&one_line(queue, 80)))
                    @if found.entry.owner == Owner::Other { span.bad { ", which is not listed as sharing this shelf: no action takes it" } }
                }
            }
            dt { "Shelved" } dd { (moment(show::shelved_at(&found), now)) }
            dt { "Group" } dd { a href=(which.link(&web, "/entries", &group, 0)) { (group) } }
            dt { "Handle" } dd { code { (text(&one.handle)) } }
            @if let Some(trace) = &history.trace_parent { dt { "Trace" } dd { code { (text(&trace.to_string())) } } }
        }
        h2 { "Attempts" }
        (attempts(&found.entry, now))
        h2 { "Headers and properties" }
        (headers(message, now))
        h2 { "Body" }
        p.dim { (text(&show::about_body(message))) " " a href=(one.link(&web, "/body")) { "as it is" } }
        pre.body { (text(&cut(&show::body(message).join("\n")))) }
    };
    let groups = which.link(&web, "/groups", "", 0);
    let entries = which.link(&web, "/entries", &group, 0);
    let crumbs = [(format!("{} {shelf}", one.queue), groups), (format!("group {group}"), entries)];
    Ok(page(&web, &who, &one_line(name, 100), &crumbs, &content))
}

fn attempts(entry: &Shelved, now: SystemTime) -> Markup {
    let history = &entry.history;
    let told = ShownFailure::of(entry);
    html! {
        ol.timeline {
            @for past in &told.past {
                li {
                    strong { "Attempt " (past.attempt) } " " span.dim { (moment(past.at, now)) } " "
                    (text(&one_line(&format!("{}: {}", past.reason, past.error), 300)))
                    @if let Some(ms) = past.wait_ms {
                        span.dim { ", then waited " (humantime::format_duration(Duration::from_millis(ms)).to_string()) }
                    }
                }
            }
            // The last one, where the list does not have it.
            @if history.past.last().is_none_or(|past| past.attempt != history.attempt.or_highest()) {
                li {
                    strong { "Attempt " (history.attempt.or_highest()) } " " span.dim { (moment(history.last_failed_at, now)) } " "
                    (text(&one_line(told.error.as_deref().or(told.reason.as_deref()).unwrap_or("set aside"), 300)))
                }
            }
        }
        @if history.redrives.or_highest() > 0 { p { "Redriven " (plural(history.redrives.or_highest(), "time")) " before." } }
    }
}

fn headers(message: &Message, now: SystemTime) -> Markup {
    html! {
        table {
            @for (name, value) in show::properties(message) {
                tr { th { (name) } td { (text(&one_line(&value, 1000))) } }
            }
            @for (name, value) in show::odd_times(message, now) {
                tr { th { (name) } td { (text(&one_line(&value, 1000))) " (not plausible)" } }
            }
            @for (name, value) in show::headers(message) {
                tr { th { (text(&one_line(name, 200))) } td { (text(&one_line(&value, 1000))) } }
            }
        }
    }
}

fn cut(body: &str) -> String {
    match body.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}\n… the rest is not shown", &body[..end]),
        None => body.to_owned(),
    }
}

/// Returns the body, byte by byte: as text or as a file, never as anything that a browser runs.
pub(super) async fn raw(State(web): State<Arc<Web>>, Query(one): Query<One>) -> Answer {
    let body = one.find(&web).await?.entry.message.body().clone();
    let (kind, disposition) = match std::str::from_utf8(&body) {
        Ok(_) => ("text/plain; charset=utf-8", "inline"),
        Err(_) => ("application/octet-stream", "attachment; filename=\"body\""),
    };
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(kind)),
        (CONTENT_DISPOSITION, HeaderValue::from_static(disposition)),
    ];
    Ok((headers, body).into_response())
}

pub(super) async fn edit(
    State(web): State<Arc<Web>>,
    Extension(who): Extension<Who>,
    Query(one): Query<One>,
) -> Answer {
    let found = one.find(&web).await?;
    let original = EditText::of(&found.entry.message)?;
    Ok(editor(&web, &who, &one, original.as_str(), &html! {}))
}

fn editor(web: &Web, who: &Who, one: &One, content: &str, above: &Markup) -> Response {
    let content = html! {
        (above)
        form method="post" action={ (web.exposure.base) "/edit" } {
            input type="hidden" name="queue" value=(one.queue);
            input type="hidden" name="handle" value=(one.handle);
            // A browser drops the first line feed of a text area.
            textarea name="text" rows="24" spellcheck="false" aria-label="the message" { "\n" (content) }
            p {
                label { input type="checkbox" name="sensitive" value="yes"; " Allow changes to its id and to headers that decide where it goes" }
            }
            p { button name="then" value="show" { "Show the difference" } }
        }
    };
    page(web, who, "Edit", &[("message".to_owned(), one.link(web, "/message"))], &content)
}

#[derive(Deserialize)]
pub(super) struct Edited {
    queue: String,
    handle: String,
    text: String,
    #[serde(default)]
    sensitive: String,
    /// `show`, `send` or `keep`.
    then: String,
    #[serde(default)]
    reason: String,
}

/// Shows the difference; asked again, stores the edit.
pub(super) async fn store_edit(
    State(web): State<Arc<Web>>,
    Extension(who): Extension<Who>,
    Form(edited): Form<Edited>,
) -> Answer {
    web.global.may_act(&web.context)?;
    let one = One { queue: edited.queue.clone(), handle: edited.handle.clone() };
    let found = one.find(&web).await?;
    let original = &found.entry.message;
    // A browser ends lines as the network does.
    let wanted = edited.text.replace("\r\n", "\n");
    let sensitive = if edited.sensitive == "yes" { SensitiveEdits::Allow } else { SensitiveEdits::Refuse };
    let edit = EditText::parse(&wanted, original)
        .map_err(anyhow::Error::from)
        .and_then(|message| Ok(redrive::ops::Edit::between(original, message, sensitive)?));
    let edit = match edit {
        Ok(Some(edit)) => edit,
        Ok(None) => {
            return Ok(editor(&web, &who, &one, &wanted, &html! { p.bad { "The text was not edited." } }));
        }
        Err(error) => {
            let above = html! { p.bad { (text(&crate::exit::chain(&error))) } };
            return Ok(editor(&web, &who, &one, &wanted, &above));
        }
    };
    let then = match &*edited.then {
        "send" => Then::SendBack,
        "keep" => Then::Keep,
        _ => return Ok(confirm(&web, &who, &one, &edited, &wanted, &diff(original, edit.message()))),
    };
    let by = web.operator(&who, &edited.reason);
    store(&web.state, web.desk(&one.queue)?, &found.entry, edit, then, by).await?;
    web.forget(&one.queue);
    let shelf = found.entry.handle.shelf().to_string();
    Ok(Redirect::to(&link(&web, "/groups", &[("queue", &one.queue), ("shelf", &shelf)])).into_response())
}

fn confirm(web: &Web, who: &Who, one: &One, edited: &Edited, wanted: &str, difference: &str) -> Response {
    let content = html! {
        pre.diff { @for line in difference.lines() {
            span.added[line.starts_with('+')].removed[line.starts_with('-')] { (text(line)) "\n" }
        } }
        form method="post" action={ (web.exposure.base) "/edit" } {
            input type="hidden" name="queue" value=(one.queue);
            input type="hidden" name="handle" value=(one.handle);
            input type="hidden" name="sensitive" value=(edited.sensitive);
            textarea.hidden name="text" aria-hidden="true" tabindex="-1" readonly { "\n" (wanted) }
            p { label { "Why " input name="reason" size="40"; } }
            p {
                button name="then" value="send" { "Send the edited message back" }
                button.quiet name="then" value="keep" { "Keep it on the shelf" }
            }
        }
        p.dim { "The original is exported first. Only the edited copy leaves." }
    };
    page(web, who, "The difference", &[("message".to_owned(), one.link(web, "/message"))], &content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_a_message_masks_its_secrets() {
        let message =
            Message::new("").with_header("authorization", "Bearer abcdef123456").with_header("checked", true);
        let page = headers(&message, SystemTime::now()).into_string();
        assert!(page.contains("Bearer ***") && !page.contains("abcdef"), "{page}");
        assert!(page.contains("<td>true</td>"), "{page}");
    }
}
