//! One request and its reply, without I/O.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use serde_json::{Value as Json, json};

/// A request.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) method: String,
    /// The parts of the path, decoded.
    pub(super) path: Vec<String>,
    pub(super) query: HashMap<String, String>,
    /// User and password.
    pub(super) credentials: Option<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// A reply.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Body,
}

#[derive(Debug)]
pub(super) enum Body {
    Empty,
    Json(Json),
    Text(String),
}

impl Call {
    pub(super) fn new(
        method: &str,
        uri_path: &str,
        query: Option<&str>,
        authorization: Option<&str>,
        body: Vec<u8>,
    ) -> Self {
        let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let path = uri_path.trim_matches('/').split('/').map(decode).collect();
        let query = query.unwrap_or_default().split('&').filter_map(|pair| {
            let (key, value) = pair.split_once('=')?;
            Some((decode(key), decode(&value.replace('+', " "))))
        });
        Self {
            method: method.to_owned(),
            path,
            query: query.collect(),
            credentials: authorization.and_then(credentials),
            body,
        }
    }

    /// Reads the body; an empty one is an empty object.
    ///
    /// # Errors
    /// If it is no JSON.
    pub(super) fn json(&self) -> Result<Json, Reply> {
        if self.body.iter().all(u8::is_ascii_whitespace) {
            return Ok(json!({}));
        }
        serde_json::from_slice(&self.body)
            .map_err(|error| Reply::bad_request(&format!("the body is no JSON: {error}")))
    }
}

fn credentials(header: &str) -> Option<(String, String)> {
    let decoded = STANDARD.decode(header.strip_prefix("Basic ")?.trim()).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

impl Reply {
    pub(super) fn json(json: Json) -> Self {
        Self { status: 200, body: Body::Json(json) }
    }

    pub(super) fn list(items: Vec<Json>) -> Self {
        Self::json(Json::Array(items))
    }

    pub(super) fn text(text: String) -> Self {
        Self { status: 200, body: Body::Text(text) }
    }

    pub(super) fn created() -> Self {
        Self { status: 201, body: Body::Empty }
    }

    pub(super) fn done() -> Self {
        Self { status: 204, body: Body::Empty }
    }

    pub(super) fn not_found() -> Self {
        Self { status: 404, body: Body::Json(json!({"error": "Object Not Found", "reason": "Not Found"})) }
    }

    pub(super) fn bad_request(reason: &str) -> Self {
        Self { status: 400, body: Body::Json(json!({"error": "bad_request", "reason": reason})) }
    }

    pub(super) fn unauthorized() -> Self {
        Self { status: 401, body: Body::Json(json!({"error": "not_authorized", "reason": "Login failed"})) }
    }

    pub(super) fn refused(reason: &str) -> Self {
        Self { status: 403, body: Body::Json(json!({"error": "refused", "reason": reason})) }
    }

    pub(super) fn method_not_allowed() -> Self {
        Self {
            status: 405,
            body: Body::Json(json!({"error": "Method Not Allowed", "reason": "not with this method"})),
        }
    }

    pub(super) fn unavailable(reason: &str) -> Self {
        Self { status: 503, body: Body::Json(json!({"error": "not_kept", "reason": reason})) }
    }
}
