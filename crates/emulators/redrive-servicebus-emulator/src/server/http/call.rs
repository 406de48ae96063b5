//! Handles one request: checks the client's rights, calls the broker, and builds the response.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming as Body;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, HeaderValue};
use hyper::{Request, Response, StatusCode, Uri};
use redrive_emulator_host::Door;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};
use uuid::Uuid;

use super::message;
use super::properties::http_date;
use super::route::{NoRoute, Verb, route};
use crate::amqp::Map;
use crate::broker::{BrokerError, Delivered, EntityId, ReceiveMode, ReceiverId, Settlement};
use crate::faults::{Effect, Step};
use crate::server::errors::status_of;
use crate::server::keys::Authorised;
use crate::server::mailbox::LinkKey;
use crate::server::shared_state::SharedState;

/// More than the largest message of the Premium tier.
const MAX_BODY: usize = 128 << 20;
/// A connection handles one request at a time, which waits like one link.
const LINK: LinkKey = LinkKey { channel: 0, handle: 0 };

/// The client and its connection.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    pub(super) shared: Arc<SharedState>,
    pub(super) connection: u64,
    /// Notified when the request that waits may be served.
    pub(super) wake: Arc<Notify>,
    pub(super) door: Arc<Option<Door>>,
    /// True when the emulator ends.
    pub(super) ends: watch::Receiver<bool>,
}

/// An error response.
struct Refused {
    status: StatusCode,
    detail: String,
}

/// Ends the connection without a response, as a fault demands.
#[derive(Debug, thiserror::Error)]
#[error("ended on purpose (fault injection)")]
pub(super) struct Dropped;

type Answer = Response<Full<Bytes>>;

impl Caller {
    pub(super) async fn answer(self, request: Request<Body>) -> Result<Answer, Dropped> {
        let outages = self.shared.outages();
        let (head, body) = request.into_parts();
        let asked = match self.check(&head.uri, &head.headers, route(&head.method, &head.uri)) {
            Ok(asked) => asked,
            Err(refused) => return Ok(self.finished(refused.into_answer())),
        };
        let (path, verb) = asked;
        let fault = self.shared.faults.strike(step(&verb), &path);
        let answer = match fault.as_ref().and_then(Effect::refusal) {
            Some(refusal) => Err(Refused::condition(&refusal.condition)),
            None => self.act(&path, verb, &head.uri, &head.headers, body).await,
        };
        // Responds only after the change is on disk: a crash must not make a response untrue.
        let kept = self.shared.written(self.shared.ticket(), outages).await;
        let answer = kept.map_err(Refused::from).and(answer).unwrap_or_else(Refused::into_answer);
        match fault {
            Some(Effect::LoseReply) => pending().await,
            Some(Effect::DropConnection) => return Err(Dropped),
            Some(Effect::DelayReply(by)) => sleep(by).await,
            Some(Effect::Refuse { .. } | Effect::Detach { .. } | Effect::WithholdCredit) | None => {}
        }
        Ok(self.finished(answer))
    }

    fn check(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        routed: Result<(String, Verb), NoRoute>,
    ) -> Result<(String, Verb), Refused> {
        let pairs = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        if let Some(Err(reason)) = self.door.as_ref().as_ref().map(|door| door.check(pairs)) {
            return Err(Refused::new(StatusCode::FORBIDDEN, reason));
        }
        let token = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let now = self.shared.clock.now();
        let grant = self.shared.keys.check_token(token, now);
        let grant = grant.map_err(|error| Refused::new(StatusCode::UNAUTHORIZED, error.to_string()))?;
        let (path, verb) = routed.map_err(|none| match none {
            NoRoute::Path => Refused::new(StatusCode::NOT_FOUND, "This is no path of the run-time REST API."),
            NoRoute::Method => Refused::new(StatusCode::METHOD_NOT_ALLOWED, "Not with this method."),
        })?;
        let mut authorised = Authorised::default();
        authorised.add(grant);
        // A token may be signed for the namespace, the entity, or the whole URL.
        let url = uri.path_and_query().map_or_else(|| uri.path(), |all| all.as_str());
        let allowed = [path.as_str(), uri.path().trim_matches('/'), url.trim_matches('/')];
        if !allowed.iter().any(|path| authorised.covers(path, now)) {
            return Err(Refused::new(
                StatusCode::UNAUTHORIZED,
                format!("The token is not for '{path}'. Sign one for it, or for the namespace."),
            ));
        }
        Ok((path, verb))
    }

    async fn act(
        &self,
        path: &str,
        verb: Verb,
        uri: &Uri,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Answer, Refused> {
        let entity = self.shared.change(|broker, _| broker.find(path))?;
        match verb {
            Verb::Send => {
                self.send(entity, headers, body).await?;
                Ok(status(StatusCode::CREATED))
            }
            Verb::PeekLock { wait } => self.receive(entity, ReceiveMode::PeekLock, wait, uri).await,
            Verb::ReceiveAndDelete { wait } => {
                self.receive(entity, ReceiveMode::ReceiveAndDelete, wait, uri).await
            }
            Verb::Complete(lock) => self.settle(entity, lock, &Settlement::Complete),
            Verb::Unlock(lock) => self.settle(entity, lock, &Settlement::Abandon { properties: Map::new() }),
            Verb::Renew(lock) => {
                let renewed = self.shared.with(|broker, now| broker.renew(entity, &[lock], now));
                renewed.map_err(of_lock)?;
                Ok(status(StatusCode::OK))
            }
        }
    }

    async fn send(&self, to: EntityId, headers: &HeaderMap, body: Body) -> Result<(), Refused> {
        self.shared.with(|broker, _| broker.check_sender(to))?;
        let collected = Limited::new(body, MAX_BODY).collect().await;
        let body = collected.map_err(|error| Refused::new(StatusCode::BAD_REQUEST, error.to_string()))?;
        let message = message::read(headers, body.to_bytes(), self.shared.clock.now());
        let message = message.map_err(|error| Refused::new(StatusCode::BAD_REQUEST, error))?;
        self.shared.with(|broker, now| broker.send(to, vec![message.into()], now))?;
        Ok(())
    }

    /// Waits for the next message and returns it. Cancel safe: a dropped request waits no more, and takes no message.
    async fn receive(
        &self,
        from: EntityId,
        mode: ReceiveMode,
        wait: Duration,
        uri: &Uri,
    ) -> Result<Answer, Refused> {
        self.shared.with(|broker, _| broker.check_receiver(from, false))?;
        let deadline = Instant::now() + wait;
        let receiver = ReceiverId(self.shared.next_id());
        let _waiting = Waiting { caller: self, entity: from };
        let mut ends = self.ends.clone();
        loop {
            let next = self.shared.with_or_wait(from, (self.connection, LINK), |broker, now| {
                match broker.receive(from, receiver, mode, 1, now) {
                    Ok(messages) => messages.into_iter().next().map(Ok),
                    Err(error) => Some(Err(error)),
                }
            });
            if let Some(next) = next {
                return Ok(delivered(&next?, uri));
            }
            tokio::select! {
                () = self.wake.notified() => {}
                _ = ends.wait_for(|ends| *ends) => return Ok(status(StatusCode::NO_CONTENT)),
                () = sleep_until(deadline) => return Ok(status(StatusCode::NO_CONTENT)),
            }
        }
    }

    fn settle(&self, at: EntityId, lock: Uuid, settlement: &Settlement) -> Result<Answer, Refused> {
        self.shared.with(|broker, now| broker.settle(at, &[lock], settlement, now)).map_err(of_lock)?;
        Ok(status(StatusCode::OK))
    }

    /// Adds the emulator's time, to which all times in the response refer.
    fn finished(&self, mut answer: Answer) -> Answer {
        if let Ok(date) = HeaderValue::try_from(http_date(self.shared.clock.now())) {
            answer.headers_mut().append(DATE, date);
        }
        answer
    }
}

/// Registers a waiting request until this is dropped.
struct Waiting<'a> {
    caller: &'a Caller,
    entity: EntityId,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.caller.shared.stop_waiting(self.entity, (self.caller.connection, LINK));
    }
}

impl Refused {
    fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }

    fn condition(condition: &str) -> Self {
        let status =
            u16::try_from(status_of(condition)).ok().and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::new(status, format!("{condition}: the emulator was asked to refuse this (fault injection)."))
    }

    fn into_answer(self) -> Answer {
        let Self { status: code, detail } = self;
        let detail = detail.replace('&', "&amp;").replace('<', "&lt;");
        let text = format!("<Error><Code>{}</Code><Detail>{detail}</Detail></Error>", code.as_u16());
        let mut answer = Response::new(Full::from(text));
        *answer.status_mut() = code;
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml; charset=utf-8"));
        answer
    }
}

impl From<BrokerError> for Refused {
    fn from(error: BrokerError) -> Self {
        let status = match &error {
            // As documented for each call: an entity that does not exist is "gone".
            BrokerError::EntityNotFound { .. } => StatusCode::GONE,
            BrokerError::QuotaExceeded { .. } | BrokerError::MessageSizeExceeded { .. } => {
                StatusCode::FORBIDDEN
            }
            BrokerError::NotKept { .. } => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error.to_string())
    }
}

/// Converts a missing lock into a missing message.
fn of_lock(error: BrokerError) -> Refused {
    match error {
        BrokerError::MessageLockLost { .. } | BrokerError::SessionLockLost { .. } => {
            Refused::new(StatusCode::NOT_FOUND, error.to_string())
        }
        error => error.into(),
    }
}

fn step(verb: &Verb) -> Step {
    match verb {
        Verb::Send => Step::Send,
        Verb::PeekLock { .. } | Verb::ReceiveAndDelete { .. } => Step::Receive,
        Verb::Complete(_) | Verb::Unlock(_) => Step::Settle,
        Verb::Renew(_) => Step::Request,
    }
}

fn delivered(delivered: &Delivered, uri: &Uri) -> Answer {
    let mut answer = Response::new(Full::from(message::body(&delivered.message)));
    let (locked, entity) = (delivered.lock_token.is_some(), uri.path().rsplit_once("/messages"));
    *answer.status_mut() = if locked { StatusCode::CREATED } else { StatusCode::OK };
    let location = delivered
        .lock_token
        .zip(entity)
        .map(|(token, (entity, _))| format!("{entity}/messages/{}/{token}", delivered.sequence_number));
    message::write(delivered, location.as_deref(), answer.headers_mut());
    answer
}

fn status(code: StatusCode) -> Answer {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = code;
    answer
}
