//! A message in JSON, without loss: as a part of an exported line, and on the operators' socket.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use redrive_core::{Message, Properties};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::properties::PropertiesJson;
use super::value::{UnwritableValue, headers_from_json, headers_to_json};

/// The parts of a message. A body that is UTF-8 is `body`, any other is `body_base64`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessageJson<'a> {
    pub(super) properties: PropertiesJson,
    pub(super) headers: Map<String, Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) body: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) body_base64: Option<String>,
}

impl<'a> MessageJson<'a> {
    /// Describes a message.
    ///
    /// # Errors
    ///
    /// If a header cannot be written without loss.
    pub(crate) fn of(message: &'a Message) -> Result<Self, UnwritableValue> {
        let body = std::str::from_utf8(message.body()).ok();
        Ok(Self {
            properties: PropertiesJson::from(message.properties()),
            headers: headers_to_json(message.headers())?,
            body_base64: body.is_none().then(|| BASE64.encode(message.body())),
            body: body.map(Cow::Borrowed),
        })
    }

    /// Returns the message.
    ///
    /// # Errors
    ///
    /// If a part is wrong. The error names it.
    pub(crate) fn into_message(self) -> Result<Message, String> {
        let body = match (self.body, self.body_base64) {
            (Some(text), None) => text.into_owned().into_bytes(),
            (None, Some(text)) => BASE64.decode(text).map_err(|error| format!("`body_base64`: {error}"))?,
            _ => return Err("one of `body` and `body_base64` is expected".to_owned()),
        };
        let properties = Properties::try_from(self.properties)?;
        let headers = headers_from_json(self.headers)?;
        Ok(Message::from_parts(body.into(), headers, properties))
    }
}
