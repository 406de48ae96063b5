//! Stands before every page: who asks, by which name, from where.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION,
    ORIGIN, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::MAX_FORM;
use super::web::Web;

/// How long the body of a request may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Nothing but what the page itself brings: no script in the page, no other server, no frame.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";

/// Methods that change nothing. Whoever asks with `HEAD` gets what `GET` would be answered, without the page.
fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Paths that need no session.
fn is_open(path: &str) -> bool {
    ["/login", "/style.css", "/script.js"].iter().any(|open| path.ends_with(open))
}

/// Refuses requests of strangers, and those that another page makes for a person who is logged in.
pub(super) async fn guard(State(web): State<Arc<Web>>, mut request: Request, next: Next) -> Response {
    let refused = |why: &'static str| (StatusCode::FORBIDDEN, why).into_response();
    let headers = request.headers();
    let mut response = if !is_own_host(&web, headers) {
        refused("refused: this name is not the one of the page. See --public-url")
    } else if !is_read(request.method()) && !is_own_origin(&web, headers) {
        refused("refused: the request comes from another page")
    } else if let Some(who) = session(&web, headers).and_then(|session| web.auth.who(session, Instant::now()))
    {
        let is_change = !is_read(request.method());
        if is_change && who.read_only && !may_read_only(request.uri().path()) {
            refused("refused: this token may only read")
        } else {
            request.extensions_mut().insert(who);
            run(request, next).await
        }
    } else if is_open(request.uri().path()) {
        run(request, next).await
    } else {
        let login = format!("{}/login", web.exposure.base);
        (StatusCode::SEE_OTHER, [(LOCATION, login)]).into_response()
    };
    secure(response.headers_mut());
    response
}

/// Reads the whole request first, so that one that never ends does not keep its connection.
async fn run(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    match tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, MAX_FORM)).await {
        Ok(Ok(body)) => next.run(Request::from_parts(head, body.into())).await,
        Ok(Err(_)) => {
            (StatusCode::PAYLOAD_TOO_LARGE, "refused: the form is too large, or was not sent to its end")
                .into_response()
        }
        Err(_) => {
            (StatusCode::REQUEST_TIMEOUT, "refused: the form did not come to its end in time").into_response()
        }
    }
}

/// What a reader may post: it changes nothing on the broker.
fn may_read_only(path: &str) -> bool {
    ["/refresh", "/logout", "/login"].iter().any(|open| path.ends_with(open))
}

fn is_own_host(web: &Web, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    hosts.next().is_none() && host.is_some_and(|host| web.exposure.is_host(host))
}

/// A browser says where a change comes from; whoever does not is no browser, and has no session to steal. Both headers must agree.
fn is_own_origin(web: &Web, headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let site = text(HeaderName::from_static("sec-fetch-site"));
    let origin = text(ORIGIN);
    site.is_none_or(|site| site == "same-origin")
        && origin.is_some_and(|origin| web.exposure.is_origin(origin))
}

/// Returns the name of the session in the cookie.
pub(super) fn session<'a>(web: &Web, headers: &'a HeaderMap) -> Option<&'a str> {
    let cookie_name = &web.exposure.cookie;
    let cookies = headers.get_all(COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    cookies
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='))
        .find_map(|(name, value)| (name == cookie_name).then_some(value))
}

/// Returns the cookie of a session: no script reads it, and no other site sends it.
pub(super) fn cookie(web: &Web, session: &str) -> String {
    let path = if web.exposure.base.is_empty() { "/" } else { &web.exposure.base };
    let secure = if web.exposure.is_tls { "; Secure" } else { "" };
    let name = &web.exposure.cookie;
    format!("{name}={session}; Path={path}; HttpOnly; SameSite=Strict{secure}")
}

fn secure(headers: &mut HeaderMap) {
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // With `no-referrer`, a browser does not say where a form comes from.
        (REFERRER_POLICY, "same-origin"),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
