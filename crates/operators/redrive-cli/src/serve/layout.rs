//! What every page has, and small parts of pages. Everything that a message says is escaped here or by the templates.

use std::time::SystemTime;

use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};
use redrive::Shelf;

use super::auth::Who;
use super::web::Web;
use crate::exit::{UsageError, chain};
use crate::output::{ago, printable, rfc3339, when};

/// A page, or an error that is shown as one.
pub(super) type Answer = Result<Response, PageError>;

/// An error that is shown as a page.
pub(super) struct PageError(anyhow::Error);

impl<E: Into<anyhow::Error>> From<E> for PageError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let is_wrong = self.0.is::<UsageError>();
        let status = if is_wrong { StatusCode::BAD_REQUEST } else { StatusCode::BAD_GATEWAY };
        let heading = if is_wrong { "That cannot be done" } else { "It did not work" };
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                (head(heading, None))
                body {
                    main {
                        h1 { (heading) }
                        p.bad { (text(&chain(&self.0))) }
                        p { "Go back with your browser, or " a href="." { "begin again" } "." }
                    }
                }
            }
        };
        (status, Html(page.into_string())).into_response()
    }
}

fn head(title: &str, base: Option<&str>) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            title { (title) " · redrive" }
            @if let Some(base) = base {
                link rel="stylesheet" href={ (base) "/style.css" };
                script defer src={ (base) "/script.js" } {}
            } @else {
                link rel="stylesheet" href="style.css";
            }
        }
    }
}

/// Returns a whole page. `crumbs` leads back: texts and links.
pub(super) fn page(
    web: &Web,
    who: &Who,
    title: &str,
    crumbs: &[(String, String)],
    content: &Markup,
) -> Response {
    let base = &web.exposure.base;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(title, Some(base)))
            body {
                header {
                    nav aria-label="path" {
                        a href={ (base) "/" } { "redrive" }
                        @for (name, link) in crumbs {
                            span.dim { " / " }
                            a href=(link) { (text(name)) }
                        }
                    }
                    nav.right {
                        span.dim title="the broker" { (text(web.context.label())) }
                        a href={ (base) "/runs" } { "History" }
                        form.plain method="post" action={ (base) "/logout" } {
                            button.link title="log out" { (text(&who.name)) @if who.read_only { " (reads)" } }
                        }
                    }
                }
                main { h1 { (text(title)) } (content) }
            }
        }
    };
    Html(page.into_string()).into_response()
}

/// Returns the page of whoever is not logged in.
pub(super) fn login(web: &Web, failed: bool) -> Response {
    let base = &web.exposure.base;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head("Log in", Some(base)))
            body {
                main {
                    h1 { "redrive" }
                    @if failed { p.bad { "This token is not known, or was used before." } }
                    p { "Open the address that " code { "redrive serve" } " printed when it began: it is good once. Or paste your token." }
                    form method="post" action={ (base) "/login" } {
                        label { "Token " input type="password" name="token" autocomplete="off" required autofocus; }
                        button { "Log in" }
                    }
                }
            }
        }
    };
    let status = if failed { StatusCode::FORBIDDEN } else { StatusCode::OK };
    (status, Html(page.into_string())).into_response()
}

/// Returns a page that goes on to another by itself. A redirect would not do after a login: a browser that came from elsewhere does
/// not send the new cookie with it.
pub(super) fn go_on(web: &Web) -> Markup {
    let home = format!("{}/", web.exposure.base);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="refresh" content={ "0; url=" (home) };
                title { "redrive" }
            }
            body { a href=(home) { "Go on" } }
        }
    }
}

/// Returns a text of a message as it may be shown: no character steers the terminal of whoever copies it, or turns the line.
pub(super) fn text(text: &str) -> String {
    printable(text).into_owned()
}

/// Returns a link with these parameters.
pub(super) fn link(web: &Web, path: &str, parameters: &[(&str, &str)]) -> String {
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
    let query: Vec<_> = parameters
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)))
        .collect();
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{}{path}{mark}{}", web.exposure.base, query.join("&"))
}

/// Returns how long ago something was, with the time for whoever points at it.
pub(super) fn time(time: Option<SystemTime>, now: SystemTime) -> Markup {
    timed(time, &ago(time, now))
}

/// Returns the same with ` ago`, for a time on a message, whatever it is.
pub(super) fn moment(time: Option<SystemTime>, now: SystemTime) -> Markup {
    timed(time, &when(time, now))
}

fn timed(time: Option<SystemTime>, shown: &str) -> Markup {
    let exact = rfc3339(time).unwrap_or_default();
    html! { time datetime=(exact) title=(exact) { (shown) } }
}

/// Draws counts as bars.
pub(super) fn spark(counts: &[u64]) -> Markup {
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let total: u64 = counts.iter().sum();
    html! {
        svg.spark viewBox={ "0 0 " (counts.len() * 4) " 20" } role="img" aria-label={ (total) " in the last day" } {
            @for (place, &count) in counts.iter().enumerate() {
                @let height = if count == 0 { 0 } else { (count * 18 / most).max(2) };
                rect x=(place * 4) y=(20 - height) width="3" height=(height) {}
            }
        }
    }
}

/// Returns the line that says how old a view is, with a button that reads the shelf again.
pub(super) fn age(web: &Web, queue: &str, shelf: Shelf, taken_at: SystemTime, here: &str) -> Markup {
    html! {
        form.plain method="post" action={ (web.exposure.base) "/refresh" } {
            span.dim { "read " (time(Some(taken_at), SystemTime::now())) " ago " }
            input type="hidden" name="queue" value=(queue);
            input type="hidden" name="shelf" value=(shelf.to_string());
            input type="hidden" name="back" value=(here);
            button.link { "read again" }
        }
    }
}
