//! The first page: all shelves.

use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use axum::extract::{Form, State};
use axum::response::{IntoResponse as _, Redirect};
use axum::{Extension, response::Response};
use maud::{Markup, html};
use redrive::Shelf;
use redrive::ops::{ShelfView, TrendOptions};
use redrive::shelves::{Holder, WorkQueue};
use redrive::{TransportError, TransportErrorKind};
use serde::Deserialize;

use super::auth::Who;
use super::groups::shelf_of;
use super::layout::{Answer, age, link, page, spark, text, time};
use super::web::Web;
use crate::desk::{Desk, within};
use crate::look::shelves::{ShelfCount, counts};

/// A shelf of at most this many messages is read for the first page without being asked.
const READ_AT_ONCE: u64 = 5_000;

pub(super) async fn show(State(web): State<Arc<Web>>, Extension(who): Extension<Who>) -> Answer {
    let mut rows = Vec::new();
    for desk in &web.desks {
        match row(&web, desk).await {
            Ok(row) => rows.push(row),
            // The other queues are shown all the same.
            Err(error) => rows.push(html! {
                tr { td { (text(&desk.queue)) } td.bad colspan="7" { (text(&crate::exit::chain(&error))) } }
            }),
        }
    }
    let content = html! {
        table.rows {
            thead { tr {
                th { "Queue" } th { "Shelf" } th.number { "Messages" } th.number { "Last hour" } th { "Oldest" } th { "Last day" } th.number { "Consumers" } th { }
            } }
            tbody { @for row in &rows { (row) } }
        }
        p.dim { kbd { "j" } " " kbd { "k" } " move, " kbd { "Enter" } " opens, " kbd { "/" } " filters" }
    };
    Ok(page(&web, &who, "Shelves", &[], &content))
}

async fn row(web: &Web, desk: &Desk) -> Result<Markup> {
    let counts = counts(&web.global, desk).await?;
    let work_queue = within(web.global.timeout, async { Ok(desk.shelves.work_queue().await?) });
    let work_queue = work_queue.await.context("cannot read the work queue").unwrap_or_default();
    let mut rows = Vec::new();
    for mut counted in counts {
        let ShelfCount { shelf, count: Some(count), .. } = counted else { continue };
        let place = (desk.queue.clone(), shelf);
        let mut view = web.last_view(&place);
        if view.is_none() && count <= READ_AT_ONCE && counted.holder != Some(Holder::Look) {
            match web.read(&place).await {
                // A person wants to see what is known.
                Err(error) if is_busy(&error) => counted.holder = Some(Holder::Look),
                read => view = Some(read?),
            }
        }
        rows.push(line(web, desk, &counted, view.as_deref(), work_queue));
    }
    Ok(html! { @for row in &rows { (row) } })
}

fn is_busy(error: &anyhow::Error) -> bool {
    error.downcast_ref::<TransportError>().is_some_and(|error| error.kind() == TransportErrorKind::Busy)
}

fn line(
    web: &Web,
    desk: &Desk,
    counted: &ShelfCount,
    view: Option<&ShelfView>,
    work_queue: WorkQueue,
) -> Markup {
    let now = SystemTime::now();
    let ShelfCount { shelf, count, holder } = *counted;
    let is_bad = count != Some(0) || holder.is_some();
    let groups = link(web, "/groups", &[("queue", &desk.queue), ("shelf", &shelf.to_string())]);
    let trend = view.map(|view| view.entries().trend(&TrendOptions::until(now)));
    let last_hour = trend.as_ref().and_then(|trend| trend.counts.last());
    // Somebody may hold the oldest.
    let whole = view.filter(|view| view.holder().is_none());
    let oldest = whole.and_then(|view| view.entries().iter().filter_map(redrive::ops::ViewEntry::time).min());
    let waits = work_queue.consumers == Some(0);
    html! {
        tr {
            td { a.row href=(groups) { (text(&desk.queue)) } }
            td { (shelf) @if let Some(holder) = holder { " " span.bad { (holder.to_string()) } } }
            td.number.bad[is_bad && shelf == Shelf::DeadLetter] data-label="messages" { (counted.shown()) }
            td.number data-label="last hour" { @match last_hour { Some(count) => (count), None => "-" } }
            td data-label="oldest" { (time(oldest, now)) }
            td { @if let Some(trend) = &trend { (spark(&trend.counts)) } }
            td.number.bad[waits] data-label="consumers" { @match work_queue.consumers { Some(count) => (count), None => "-" } }
            td { @if let Some(view) = view { (age(web, &desk.queue, shelf, view.taken_at(), &link(web, "/", &[]))) } }
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Refresh {
    queue: String,
    shelf: String,
    back: String,
}

/// Reads a shelf again, and goes back to where the person was.
pub(super) async fn refresh(
    State(web): State<Arc<Web>>,
    Form(refresh): Form<Refresh>,
) -> Result<Response, super::layout::PageError> {
    let shelf = shelf_of(&refresh.shelf)?;
    web.desk(&refresh.queue)?;
    web.read(&(refresh.queue, shelf)).await?;
    // Only to a path of this page.
    let is_own =
        refresh.back.starts_with('/') && !refresh.back.starts_with("//") && !refresh.back.contains('\\');
    let back = if is_own { refresh.back } else { link(&web, "/", &[]) };
    Ok(Redirect::to(&back).into_response())
}
