//! Sends one request and reads the response.

use std::error::Error as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use azure_core_rest::headers::{HeaderName, HeaderValue};
use azure_core_rest::{HttpClient, Method, Request, Url};
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::timeout;
use uuid::Uuid;

use super::http::REPEATED;
use crate::address::Address;
use crate::auth::Token;
use crate::error::{Refusal, WireError, says};
use crate::wire::tls::is_no_tls;

/// The longest time that a response may take beyond the wait that was requested.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// The most characters of a response that an error repeats.
const MAX_ERROR_CHARS: usize = 300;
/// The port of an emulator whose connection string names none.
const EMULATOR_PORT: u16 = 5300;
/// The characters that are escaped in a path.
const PATH_ESCAPES: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'$').remove(b'/');

/// Sends requests to a namespace.
#[derive(Debug)]
pub(super) struct Client {
    http: Arc<dyn HttpClient>,
    address: Arc<Address>,
}

/// An operation on an entity.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verb {
    Send,
    PeekLock {
        wait: Duration,
    },
    /// Completes a message, by its sequence number and its lock.
    Complete(i64, Uuid),
    /// Unlocks a message, by its sequence number and its lock.
    Unlock(i64, Uuid),
    /// Renews a lock, by the sequence number of its message and the lock.
    Renew(i64, Uuid),
}

/// The content of a request.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) content_type: Option<String>,
    pub(super) lines: Vec<(String, String)>,
    pub(super) body: Bytes,
}

/// A response with any status. The names of its headers are in lower case; a name may be there more than once.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Bytes,
}

impl Client {
    pub(super) fn new(http: Arc<dyn HttpClient>, address: Arc<Address>) -> Self {
        Self { http, address }
    }

    /// Sends a request, and waits for the response, with any status.
    pub(super) async fn ask(&self, entity: &str, verb: Verb, content: Content) -> Result<Answer, WireError> {
        let request = self.request(entity, verb, content).await?;
        let limit = match verb {
            Verb::PeekLock { wait } => wait + ANSWER_WAIT,
            _ => ANSWER_WAIT,
        };
        let response = timeout(limit, async {
            let answer = self.http.execute_request(&request).await?;
            let (status, headers, body) = answer.deconstruct();
            // Read as bytes: a body need not be text.
            Ok::<_, azure_core_rest::Error>((u16::from(status), headers, body.collect().await?))
        });
        let (status, headers, body) = match response.await {
            Ok(Ok(answered)) => answered,
            Ok(Err(error)) if is_no_tls(&error) => {
                return Err(self.address.without_tls(&with_causes(&error)));
            }
            Ok(Err(error)) => return Err(WireError::interrupted(with_causes(&error))),
            Err(_) => return Err(WireError::interrupted(format!("no answer within {limit:?}"))),
        };
        let headers = headers.into_iter();
        let headers = headers.map(|(name, value)| {
            let name = name.as_str().split(REPEATED).next().unwrap_or_default();
            (name.to_owned(), value.as_str().to_owned())
        });
        Ok(Answer { status, headers: headers.collect(), body })
    }

    async fn request(&self, entity: &str, verb: Verb, content: Content) -> Result<Request, WireError> {
        let path = utf8_percent_encode(entity, PATH_ESCAPES);
        let (method, rest) = match verb {
            Verb::Send => (Method::Post, "messages".to_owned()),
            Verb::PeekLock { wait } => {
                (Method::Post, format!("messages/head?timeout={}", wait.as_secs().max(1)))
            }
            Verb::Complete(number, lock) => (Method::Delete, format!("messages/{number}/{lock}")),
            Verb::Unlock(number, lock) => (Method::Put, format!("messages/{number}/{lock}")),
            Verb::Renew(number, lock) => (Method::Post, format!("messages/{number}/{lock}")),
        };
        let base = self.base();
        let url = Url::parse(&format!("{base}/{path}/{rest}"));
        let url = url.map_err(|error| {
            WireError::new(Refusal::Other, format!("`{entity}` cannot be part of a URL: {error}"))
        })?;
        let mut request = Request::new(url, method);
        let audience = format!("{base}/{}", entity.split("/$").next().unwrap_or(entity));
        let token = Token::for_audience(&self.address.credential, &audience, SystemTime::now()).await?;
        request.insert_header("authorization", token.for_http());
        if let Some(content_type) = content.content_type {
            request.insert_header("content-type", content_type);
        }
        for (name, value) in content.lines {
            request.insert_header(HeaderName::from(name), HeaderValue::from(value));
        }
        request.set_body(content.body);
        Ok(request)
    }

    fn base(&self) -> String {
        let Address { host, port, development_emulator, .. } = &*self.address;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        match (port, development_emulator) {
            (port, true) => format!("http://{host}:{}", port.unwrap_or(EMULATOR_PORT)),
            (Some(port), false) => format!("https://{host}:{port}"),
            (None, false) => format!("https://{host}"),
        }
    }
}

impl Answer {
    /// Returns the result of a request about a lock. A message that is not found is no longer locked.
    pub(super) fn of_lock(self) -> Result<(), WireError> {
        match self.status {
            200..300 => Ok(()),
            404 | 410 => Err(WireError::new(Refusal::LockLost, self.error_text())),
            _ => Err(self.into_error()),
        }
    }

    /// Converts a response that is not a success.
    pub(super) fn into_error(self) -> WireError {
        let text = self.error_text();
        let lower = text.to_ascii_lowercase();
        let refusal = match self.status {
            401 => Refusal::Unauthorized,
            // The status 403 stands for a message that is too large, a full entity, and a missing right: the text distinguishes
            // them.
            403 if lower.contains("exceeds the limit") || lower.contains("too large") => Refusal::TooLarge,
            403 if says(&text, &["quota", "maximum"]) || lower.contains("size limit") => {
                Refusal::QuotaExceeded
            }
            403 if says(&text, &["disabled"]) => Refusal::Disabled,
            403 => Refusal::Unauthorized,
            404 | 410 => Refusal::NotFound,
            413 => Refusal::TooLarge,
            429 | 503 => Refusal::Busy,
            408 | 500..600 => Refusal::Interrupted,
            _ => Refusal::Other,
        };
        WireError::new(refusal, text)
    }

    fn error_text(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let detail = text.split_once("<Detail>").and_then(|(_, rest)| rest.split_once("</Detail>"));
        let text = detail.map_or(&*text, |(detail, _)| detail);
        let text: String = text.chars().filter(|c| !c.is_control()).take(MAX_ERROR_CHARS).collect();
        format!("status {} {}", self.status, text.trim())
    }
}

/// Formats an error of the client library with its causes, which say more. None of them contains the request.
fn with_causes(error: &azure_core_rest::Error) -> String {
    let mut full = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !full.contains(&text) {
            full = format!("{full}: {text}");
        }
        cause = error.source();
    }
    full
}
