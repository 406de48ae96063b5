//! `redrive serve`: the web page.
//!
//! | module | contains |
//! |---|---|
//! | [`exposure`] | where the page may be reached, and by which names; pure |
//! | [`auth`] | tokens and sessions |
//! | [`bounded`] | how many connections there may be, and how long a request may take to begin |
//! | [`guard`] | what stands before every page |
//! | [`web`] | shelves, views that were read, runs that go on |
//! | [`layout`] | what every page has |
//! | [`shelves`] | the first page |
//! | [`groups`] | the groups of a shelf, and the messages of a group |
//! | [`message`] | one message, and its edit |
//! | [`plan`] | a plan, and its word |
//! | [`mod@run`] | one run, and all of them |

mod auth;
mod bounded;
mod exposure;
mod groups;
mod guard;
mod layout;
mod message;
mod plan;
mod run;
mod shelves;
mod web;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use axum::extract::{DefaultBodyLimit, Form, Query, State};
use axum::http::header::{CONTENT_TYPE, HeaderMap, LOCATION, SET_COOKIE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse as _, Response};
use axum::routing::get;
use axum::{Router, middleware};
use axum_server::tls_rustls::RustlsConfig;
use redrive::ops::Activity;
use serde::Deserialize;

use self::auth::{Auth, Who, read_token};
use self::bounded::{Bounded, http};
use self::exposure::Exposure;
use self::layout::{Answer, go_on, login};
use self::web::Web;
use crate::args::Serve;
use crate::desk::connect_all;
use crate::exit::{EndSignals, Exit};
use crate::output::{note, plural};
use crate::settings::Global;

/// A message is at most so large in a form: RabbitMQ takes 16 MiB by default, and a browser escapes some of it.
const MAX_FORM: usize = 64 * 1024 * 1024;
/// How long a run may take for its step when the process ends.
const LAST_STEP: Duration = Duration::from_secs(10);

pub(crate) async fn run(global: &Global, command: Serve) -> Result<Exit> {
    let context = global.broker()?;
    let listener =
        TcpListener::bind(command.listen).with_context(|| format!("cannot listen on {}", command.listen))?;
    listener.set_nonblocking(true)?;
    let listen = listener.local_addr()?;
    let tls = command.tls_cert.zip(command.tls_key);
    let exposure = Exposure::new(listen, command.public_url.as_deref(), tls.is_some(), command.behind_proxy)?;
    let mut tokens = Vec::new();
    for (arguments, read_only) in [(&command.token, false), (&command.read_only_token, true)] {
        for argument in arguments {
            tokens.push(read_token(argument, read_only)?);
        }
    }
    let owner = Who { name: crate::desk::operator(None).who, read_only: false };
    let (auth, token) = Auth::new(tokens, owner)?;
    let desks = connect_all(global, &context, &command.queues).await?;
    let url = format!("{}/login?token={token}", exposure.url);
    let web = Arc::new(Web::new(global.clone(), context, desks, auth, exposure)?);
    let app = app(&web);
    let mut end_signals = EndSignals::claim();
    note!("The page of redrive, for one login:");
    crate::output::print(&url);
    crate::output::finish()?;
    note!("Ctrl-C ends it");
    let serving = async {
        match tls {
            Some((cert, key)) => {
                let _ = rustls::crypto::ring::default_provider().install_default();
                let config = RustlsConfig::from_pem_file(&cert, &key)
                    .await
                    .with_context(|| format!("cannot use {} and {}", cert.display(), key.display()))?;
                let mut server = axum_server::from_tcp_rustls(listener, config)?.map(Bounded::new);
                *server.http_builder() = http();
                Ok(server.serve(app.into_make_service()).await?)
            }
            None => {
                let mut server = axum_server::from_tcp(listener)?.map(Bounded::new);
                *server.http_builder() = http();
                Ok(server.serve(app.into_make_service()).await?)
            }
        }
    };
    tokio::select! {
        served = serving => served.map(|()| Exit::Ok),
        () = end_signals.next() => {
            end(&web).await;
            Ok(Exit::Ok)
        }
    }
}

/// Lets runs end their step: what is certain then is certain when they are resumed.
async fn end(web: &Web) {
    let runs = web.pause_all();
    if runs.is_empty() {
        return;
    }
    note!("ending the step of {}; `redrive runs list` shows what is left", plural(runs.len(), "run"));
    let is_idle =
        |activity: &Activity| matches!(activity, Activity::Paused(_) | Activity::Done | Activity::Stopped(_));
    let all_idle = async {
        while !runs.iter().all(|run| is_idle(&run.progress().activity)) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let _ = tokio::time::timeout(LAST_STEP, all_idle).await;
}

fn app(web: &Arc<Web>) -> Router {
    let pages = Router::new()
        .route("/", get(shelves::show))
        .route("/refresh", axum::routing::post(shelves::refresh))
        .route("/groups", get(groups::groups))
        .route("/entries", get(groups::entries))
        .route("/message", get(message::show))
        .route("/body", get(message::raw))
        .route("/edit", get(message::edit).post(message::store_edit))
        .route("/plan", get(plan::show).post(plan::make_one))
        .route("/apply", axum::routing::post(plan::apply))
        .route("/run", get(run::show).post(run::control))
        .route("/runs", get(run::history))
        .route("/login", get(log_in_once).post(log_in))
        .route("/logout", axum::routing::post(log_out))
        .route("/style.css", get(|| asset("text/css; charset=utf-8", include_str!("style.css"))))
        .route("/script.js", get(|| asset("text/javascript; charset=utf-8", include_str!("script.js"))));
    // A proxy passes the path on with its own beginning, or without it.
    let base = &web.exposure.base;
    let app = if base.is_empty() {
        pages
    } else {
        let home = format!("{base}/");
        pages.clone().nest(base, pages).route(&home, get(shelves::show))
    };
    app.fallback(|| async { (StatusCode::NOT_FOUND, "there is no such page") })
        .layer(DefaultBodyLimit::max(MAX_FORM))
        .layer(middleware::from_fn_with_state(Arc::clone(web), guard::guard))
        .with_state(Arc::clone(web))
}

async fn asset(kind: &'static str, text: &'static str) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static(kind))], text).into_response()
}

#[derive(Deserialize)]
struct Token {
    #[serde(default)]
    token: String,
}

async fn log_in_once(State(web): State<Arc<Web>>, Query(Token { token }): Query<Token>) -> Answer {
    if token.is_empty() { Ok(login(&web, false)) } else { begin_session(&web, &token) }
}

async fn log_in(State(web): State<Arc<Web>>, Form(Token { token }): Form<Token>) -> Answer {
    begin_session(&web, token.trim())
}

fn begin_session(web: &Web, token: &str) -> Answer {
    let Some(session) = web.auth.log_in(token, Instant::now())? else { return Ok(login(web, true)) };
    let cookie = HeaderValue::from_str(&guard::cookie(web, &session)).map_err(|_| anyhow!("no cookie"))?;
    Ok(([(SET_COOKIE, cookie)], Html(go_on(web).into_string())).into_response())
}

async fn log_out(State(web): State<Arc<Web>>, headers: HeaderMap) -> Response {
    if let Some(session) = guard::session(&web, &headers) {
        web.auth.log_out(session);
    }
    (StatusCode::SEE_OTHER, [(LOCATION, format!("{}/login", web.exposure.base))]).into_response()
}
