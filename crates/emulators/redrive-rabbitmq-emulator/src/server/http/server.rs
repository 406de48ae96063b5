//! Accepts clients by HTTP, and responds.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderName, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use redrive_emulator_host::{Accepting, Door, Listeners};
use tokio::net::TcpStream;

use super::call::{Body, Call, Reply};
use super::{api, own};
use crate::server::shared_state::SharedState;

/// Maximum number of bytes of a request's body: definitions can be long.
const MAX_BODY: usize = 64 << 20;

/// Accepts clients, which nobody can ask to end.
pub(crate) fn accept(listeners: Listeners, door: &Arc<Door>, shared: &Arc<SharedState>) -> Accepting {
    let door = Arc::clone(door);
    let shared = Arc::clone(shared);
    Accepting::until_aborted(listeners, move |stream, _| {
        serve(stream, Arc::clone(&door), Arc::clone(&shared))
    })
}

async fn serve(stream: TcpStream, door: Arc<Door>, shared: Arc<SharedState>) {
    let service = service_fn(move |request| respond(request, Arc::clone(&door), Arc::clone(&shared)));
    // With a timer, a client that does not finish its request is not waited for (30 s).
    let serving =
        http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
    if let Err(error) = serving.await {
        tracing::debug!(%error, "connection ended");
    }
}

async fn respond(
    request: Request<Incoming>,
    door: Arc<Door>,
    shared: Arc<SharedState>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    if let Err(reason) =
        door.check(head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())))
    {
        return Ok(response(Reply::refused(&reason)));
    }
    let body = match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => body.to_bytes().to_vec(),
        Err(error) => return Ok(response(Reply::bad_request(&format!("the body cannot be read: {error}")))),
    };
    let authorization = head.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let call = Call::new(head.method.as_str(), head.uri.path(), head.uri.query(), authorization, body);
    let reply = if call.path.first().is_none_or(|first| first != "emulator") {
        shared.with(|broker, now| api::answer(broker, now, &call))
    } else if shared.with(|broker, _| api::user_of(broker, &call).is_some()) {
        own::answer(&shared, &call)
    } else {
        Reply::unauthorized()
    };
    // Responds only after the change is on disk: a crash must not make a response untrue.
    let reply = match shared.written(shared.ticket()).await {
        Ok(()) => reply,
        Err(reason) => Reply::unavailable(&reason),
    };
    Ok(response(reply))
}

fn response(reply: Reply) -> Response<Full<Bytes>> {
    let mut builder = Response::builder()
        .status(StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
        .header(CACHE_CONTROL, "no-store")
        .header(X_CONTENT_TYPE_OPTIONS, "nosniff")
        .header(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    if reply.status == 401 {
        builder = builder.header(WWW_AUTHENTICATE, "Basic realm=\"RabbitMQ Management\"");
    }
    let (kind, body) = match reply.body {
        Body::Empty => ("application/json", Bytes::new()),
        Body::Json(json) => ("application/json", Bytes::from(json.to_string())),
        Body::Text(text) => ("text/plain; charset=utf-8", Bytes::from(text)),
    };
    // Status and headers are constants.
    builder.header(CONTENT_TYPE, kind).body(Full::new(body)).unwrap_or_default()
}
