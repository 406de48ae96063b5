//! The groups of a shelf, and the messages of a group.

use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Result, anyhow};
use axum::Extension;
use axum::extract::{Query, State};
use maud::{Markup, html};
use redrive::Shelf;
use redrive::ops::{Entries, Filter, GroupId, ShelfView, ShownFailure, SnapshotOptions, TrendOptions};
use serde::Deserialize;

use super::auth::Who;
use super::layout::{Answer, age, link, page, spark, text, time};
use super::web::Web;
use crate::args::since;
use crate::exit::usage;
use crate::look::groups::for_example;
use crate::look::select::not_looked_into;
use crate::output::{failure, one_line, plural};

/// How many messages a page lists.
const PAGE: usize = 50;

/// Which messages of which shelf a page is about. It stands in its address.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Which {
    pub(super) queue: String,
    #[serde(default)]
    pub(super) shelf: String,
    /// The filter.
    #[serde(default)]
    pub(super) q: String,
    #[serde(default)]
    pub(super) group: String,
    /// Groups that began after this are new.
    #[serde(default)]
    pub(super) since: String,
    #[serde(default)]
    pub(super) offset: usize,
}

/// The messages that a page is about.
pub(super) struct Chosen {
    pub(super) shelf: Shelf,
    pub(super) view: Arc<ShelfView>,
    filter: Filter,
    group: Option<GroupId>,
    pub(super) now: SystemTime,
}

/// Returns the shelf of this name.
pub(super) fn shelf_of(name: &str) -> Result<Shelf> {
    match name {
        "" | "dead-letter" => Ok(Shelf::DeadLetter),
        "parking" => Ok(Shelf::Parking),
        _ => Err(usage("there are two shelves: dead-letter and parking")),
    }
}

impl Which {
    /// Reads the shelf, if nobody has, and selects the messages.
    ///
    /// # Errors
    ///
    /// If the broker cannot be read, or a name or the filter is wrong.
    pub(super) async fn choose(&self, web: &Web) -> Result<Chosen> {
        let shelf = shelf_of(&self.shelf)?;
        web.desk(&self.queue)?;
        let filter = match self.q.trim() {
            "" => Filter::all(),
            text => text.parse().map_err(|error| usage(format!("{error}")))?,
        };
        let group = match &*self.group {
            "" => None,
            group => Some(group.parse().map_err(|error| usage(format!("{error}")))?),
        };
        let view = web.view(&(self.queue.clone(), shelf)).await?;
        Ok(Chosen { shelf, view, filter, group, now: SystemTime::now() })
    }

    /// Returns the address of a page about these messages, or others.
    pub(super) fn link(&self, web: &Web, path: &str, group: &str, offset: usize) -> String {
        let offset = if offset == 0 { String::new() } else { offset.to_string() };
        let parameters = [
            ("queue", &*self.queue),
            ("shelf", &*self.shelf),
            ("q", &*self.q),
            ("group", group),
            ("since", &*self.since),
            ("offset", &*offset),
        ];
        link(web, path, &parameters)
    }

    /// Returns the words of the filter and the group, for people and the audit log.
    pub(super) fn words(&self) -> String {
        match &*self.group {
            "" => self.q.trim().to_owned(),
            group => format!("group {group} {}", self.q).trim().to_owned(),
        }
    }

    /// Returns the fields of a form about these messages.
    pub(super) fn fields(&self) -> Markup {
        html! {
            input type="hidden" name="queue" value=(self.queue);
            input type="hidden" name="shelf" value=(self.shelf);
            input type="hidden" name="q" value=(self.q);
            input type="hidden" name="group" value=(self.group);
        }
    }
}

impl Chosen {
    /// Returns the messages that the filter and the group select.
    pub(super) fn entries(&self) -> Entries<'_> {
        let entries = self.view.entries();
        let entries = match self.group {
            Some(group) => entries.matching(&Filter::group(group), self.now),
            None => entries,
        };
        entries.matching(&self.filter, self.now)
    }
}

pub(super) async fn groups(
    State(web): State<Arc<Web>>,
    Extension(who): Extension<Who>,
    Query(which): Query<Which>,
) -> Answer {
    let chosen = match which.choose(&web).await {
        Ok(chosen) => chosen,
        // A wrong filter is shown beside the filter, to be mended.
        Err(error) if !which.q.is_empty() && error.is::<crate::exit::UsageError>() => {
            let content = html! { (filter_form(&web, &which)) p.bad { (text(&error.to_string())) } };
            return Ok(page(&web, &who, &which.queue, &[], &content));
        }
        Err(error) => return Err(error.into()),
    };
    let begun = match &*which.since {
        "" => None,
        text => Some(since(text).map_err(usage)?),
    };
    let entries = chosen.entries();
    let summary = entries.summary(&SnapshotOptions::new());
    let by_group = entries.by_group();
    let here = which.link(&web, "/groups", "", 0);
    let content = html! {
        (filter_form(&web, &which))
        p {
            strong { (plural(summary.count, "message")) } " in " (plural(entries.by_group().len(), "group")) " "
            (age(&web, &which.queue, chosen.shelf, chosen.view.taken_at(), &here))
        }
        @let others = entries.of_others();
        @if !others.is_empty() {
            p.bad {
                (plural(others.values().sum::<usize>(), "message")) " failed in other queues, and no action takes them: "
                @for (place, (queue, count)) in others.iter().enumerate() {
                    @if place > 0 { ", " } (count) " in " code { (text(&one_line(queue, 80))) }
                }
            }
        }
        @if let Some(holder) = chosen.view.holder() { p.bad { "Perhaps not all of the shelf was read: " (holder.to_string()) "." } }
        @if chosen.view.is_truncated() { p.bad { "The shelf has more than the " (plural(chosen.view.entries().len(), "message")) " that were read first." } }
        @if let Some(note) = begun.as_ref().and_then(|begun| begun.note.as_ref()) { p.dim { (text(note)) } }
        (left_out(&entries))
        @if summary.groups.is_empty() { p.good { "Nothing here." } }
        @else {
            table.rows {
                thead { tr { th.number { "Messages" } th { "Failure" } th { "First" } th { "Last" } th { "Last day" } th { } } }
                tbody { @for group in &summary.groups {
                    @let id = group.id.to_string();
                    tr {
                        td.number data-label="messages" { (group.count) }
                        td.wide {
                            a.row href=(which.link(&web, "/entries", &id, 0)) {
                                (text(&one_line(&failure(Some(group.template.reason()), group.template.text()), 300)))
                            }
                            @if group.sample.text.as_deref().is_some_and(|text| text != group.template.text()) {
                                " " span.dim { (text(&for_example(group))) }
                            }
                            @if begun.as_ref().is_some_and(|begun| group.is_new_since(begun.at)) { " " span.new { "NEW" } }
                        }
                        td data-label="first" { (time(group.first_seen, chosen.now)) }
                        td data-label="last" { (time(group.last_seen, chosen.now)) }
                        td { @if let Some(of_group) = by_group.get(&group.id) { (spark(&of_group.trend(&TrendOptions::until(chosen.now)).counts)) } }
                        td { (act(&web, &who, &Which { group: id.clone(), ..which.clone() })) }
                    }
                } }
            }
            @if summary.left_out.of_groups > 0 { p { "Groups that are not shown have " (plural(summary.left_out.of_groups, "more message")) "." } }
            section { h2 { "All " (plural(entries.len(), "message")) } (act(&web, &who, &which)) }
        }
    };
    let title = format!("{} {}", which.queue, chosen.shelf);
    Ok(page(&web, &who, &title, &[(which.queue.clone(), here)], &content))
}

/// Says for how many messages the filter could not look into the body.
fn left_out(entries: &Entries<'_>) -> Markup {
    html! {
        @if let Some(note) = not_looked_into(entries.not_looked_into()) { p.bad { "The filter left out " (note) "." } }
    }
}

fn filter_form(web: &Web, which: &Which) -> Markup {
    html! {
        form.filter method="get" action={ (web.exposure.base) "/groups" } {
            input type="hidden" name="queue" value=(which.queue);
            input type="hidden" name="shelf" value=(which.shelf);
            input #filter type="search" name="q" value=(which.q) aria-label="filter"
                placeholder="error~\"timed out\" age>1h attempt>=3 header.tenant:blue body.order.id=42";
            label { "new since " input name="since" value=(which.since) size="6" placeholder="2h"; }
            button { "Filter" }
        }
    }
}

/// The actions on the messages of a page: each leads to a plan, and changes nothing by itself.
pub(super) fn act(web: &Web, who: &Who, which: &Which) -> Markup {
    html! {
        @if may_act(web, who) {
            form.plain method="post" action={ (web.exposure.base) "/plan" } {
                (which.fields())
                button name="action" value="redrive" { "Redrive…" }
                @if which.shelf != "parking" { button.quiet name="action" value="park" { "Park…" } }
                button.quiet name="action" value="discard" { "Discard…" }
            }
        }
    }
}

/// Returns false for readers, and if the whole page only reads.
pub(super) fn may_act(web: &Web, who: &Who) -> bool {
    !who.read_only && web.global.may_act(&web.context).is_ok()
}

pub(super) async fn entries(
    State(web): State<Arc<Web>>,
    Extension(who): Extension<Who>,
    Query(which): Query<Which>,
) -> Answer {
    let chosen = which.choose(&web).await?;
    let entries = chosen.entries();
    let shown = entries.page(which.offset, PAGE);
    let here = which.link(&web, "/entries", &which.group, which.offset);
    let first = entries.iter().next().ok_or_else(|| {
        anyhow!("no such message is on the shelf now: it was sent back, or read the shelf again")
    });
    let heading = match (&*which.group, &first) {
        ("", _) | (_, Err(_)) => "Messages".to_owned(),
        (_, Ok(first)) => {
            let template = redrive::ops::Template::of(&first.entry);
            one_line(&failure(Some(template.reason()), template.text()), 200)
        }
    };
    let content = html! {
        p { strong { (plural(shown.total, "message")) } " " (age(&web, &which.queue, chosen.shelf, chosen.view.taken_at(), &here)) }
        (left_out(&entries))
        (act(&web, &who, &which))
        @if shown.entries.is_empty() { p.good { "Nothing here." } }
        table.rows {
            thead { tr { th { "Message" } th { "Shelved" } th.number { "Attempts" } th.number { "Redrives" } th { "Error" } } }
            tbody { @for entry in &shown.entries {
                @let handle = entry.entry.handle.to_string();
                @let told = ShownFailure::of(&entry.entry);
                @let name = told.id.as_deref().map_or_else(|| handle.clone(), |id| one_line(id, 60));
                tr {
                    td { a.row href=(link(&web, "/message", &[("queue", &which.queue), ("handle", &handle)])) { (text(&name)) } }
                    td data-label="shelved" { (time(entry.time(), chosen.now)) }
                    td.number data-label="attempts" { (entry.entry.history.attempt.or_highest()) }
                    td.number data-label="redrives" { (entry.entry.history.redrives.or_highest()) }
                    td.wide { (text(&one_line(told.error.as_deref().or(told.reason.as_deref()).unwrap_or("-"), 200))) }
                }
            } }
        }
        nav.pages {
            @if shown.offset > 0 { a rel="prev" href=(which.link(&web, "/entries", &which.group, shown.offset.saturating_sub(PAGE))) { "← previous page" } }
            @if shown.offset + shown.entries.len() < shown.total {
                a rel="next" href=(which.link(&web, "/entries", &which.group, shown.offset + PAGE)) { "next page →" }
            }
        }
    };
    let back = which.link(&web, "/groups", "", 0);
    Ok(page(&web, &who, &heading, &[(format!("{} {}", which.queue, chosen.shelf), back)], &content))
}
