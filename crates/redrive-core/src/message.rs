//! What is carried: body, headers, properties.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::headers::{Headers, Timestamp, Value};

/// A message: body, typed headers and the standard properties. Cheap to clone.
///
/// ```
/// use redrive_core::Message;
///
/// let message = Message::new(r#"{"order":1}"#)
///     .with_id("order-1")
///     .with_content_type("application/json")
///     .with_header("tenant", "blue");
/// assert_eq!(message.id(), Some("order-1"));
/// ```
#[derive(Clone, Default, PartialEq)]
pub struct Message {
    parts: Arc<Parts>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Parts {
    body: Bytes,
    headers: Headers,
    properties: Properties,
}

impl Message {
    /// A message with this body and nothing else.
    #[must_use]
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self::from_parts(body.into(), Headers::new(), Properties::default())
    }

    /// A message with this value as its body, in JSON, and the content type `application/json`.
    ///
    /// # Errors
    ///
    /// When the value cannot be written as JSON.
    #[cfg(feature = "json")]
    pub fn json<T: serde::Serialize + ?Sized>(value: &T) -> Result<Self, crate::TransportError> {
        let body = serde_json::to_vec(value).map_err(|error| {
            let message = format!("a `{}` cannot be written as JSON: {error}", std::any::type_name::<T>());
            crate::TransportError::new(crate::TransportErrorKind::Other, message).with_source(error)
        })?;
        Ok(Self::new(body).with_content_type("application/json"))
    }

    /// A message from its parts; for transports.
    #[must_use]
    pub fn from_parts(body: Bytes, headers: Headers, properties: Properties) -> Self {
        Self { parts: Arc::new(Parts { body, headers, properties }) }
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.parts.body
    }

    /// The headers.
    #[must_use]
    pub fn headers(&self) -> &Headers {
        &self.parts.headers
    }

    /// The headers, to change.
    pub fn headers_mut(&mut self) -> &mut Headers {
        &mut Arc::make_mut(&mut self.parts).headers
    }

    /// The standard properties.
    #[must_use]
    pub fn properties(&self) -> &Properties {
        &self.parts.properties
    }

    /// The standard properties, to change.
    pub fn properties_mut(&mut self) -> &mut Properties {
        &mut Arc::make_mut(&mut self.parts).properties
    }

    /// The message's id, if it has one.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.parts.properties.id.as_deref()
    }

    /// The same message with this id.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.properties_mut().id = Some(id.into());
        self
    }

    /// Gives the message a random id if it has none; true if it did. The only place where ids are made.
    pub(crate) fn assign_id(&mut self) -> bool {
        let is_missing = self.id().is_none();
        if is_missing {
            self.properties_mut().id = Some(format!("{:032x}", fastrand::u128(..)));
        }
        is_missing
    }

    /// The same message with this correlation id.
    #[must_use]
    pub fn with_correlation_id(mut self, id: impl Into<String>) -> Self {
        self.properties_mut().correlation_id = Some(id.into());
        self
    }

    /// The same message with this content type.
    #[must_use]
    pub fn with_content_type(mut self, content_type: impl Into<String>) -> Self {
        self.properties_mut().content_type = Some(content_type.into());
        self
    }

    /// How many bytes properties and headers take as an AMQP 0-9-1 content header (section 4.2.6.1), at most.
    #[must_use]
    pub fn encoded_header_len(&self) -> usize {
        self.parts.properties.encoded_len() + self.parts.headers.encoded_len()
    }

    /// The same message with one more header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.headers_mut().insert(name, value);
        self
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { body, headers, properties } = &*self.parts;
        f.debug_struct("Message")
            .field("body", body)
            .field("headers", headers)
            .field("properties", properties)
            .finish()
    }
}

/// The standard properties of AMQP 0-9-1 (section 1.8 of its XML definition) and Service Bus under
/// one name each. A broker that has no such property carries it as documented on its page in `docs/transports`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Properties {
    /// `message-id`: who this message is, for as long as it lives.
    pub id: Option<String>,
    /// `correlation-id`: the conversation that it belongs to.
    pub correlation_id: Option<String>,
    /// `content-type`: the MIME type of the body.
    pub content_type: Option<String>,
    /// `content-encoding`: for example `gzip`.
    pub content_encoding: Option<String>,
    /// `reply-to`: where an answer should go.
    pub reply_to: Option<String>,
    /// `type` in AMQP 0-9-1, `subject` in Service Bus: what kind of message this is.
    pub kind: Option<String>,
    /// `to`: where it was meant to go (Service Bus).
    pub to: Option<String>,
    /// `user-id`: who published it, as checked by the broker.
    pub user_id: Option<String>,
    /// `app-id`: the application that published it.
    pub app_id: Option<String>,
    /// `cluster-id` (AMQP 0-9-1, deprecated there; carried on all the same).
    pub cluster_id: Option<String>,
    /// `session-id` (Service Bus): messages of one session are handled in order.
    pub session_id: Option<String>,
    /// Priority, higher first; the meaning is the broker's.
    pub priority: Option<u8>,
    /// When the publisher says that it was made.
    pub timestamp: Option<Timestamp>,
    /// How long it may rest in a queue before it expires.
    pub expiration: Option<Duration>,
    /// Whether the publisher asked for the message to survive a broker restart. Every copy that
    /// redrive makes is persistent, whatever stands here.
    pub persistent: Option<bool>,
}

impl Properties {
    fn encoded_len(&self) -> usize {
        // Class, weight, body size, flags; then delivery mode, priority, timestamp and expiration at their longest.
        const FIXED: usize = 14 + 1 + 1 + 8 + 21;
        let texts = [
            &self.id,
            &self.correlation_id,
            &self.content_type,
            &self.content_encoding,
            &self.reply_to,
            &self.kind,
            &self.to,
            &self.user_id,
            &self.app_id,
            &self.cluster_id,
            &self.session_id,
        ];
        FIXED + texts.into_iter().flatten().map(|text| 1 + text.len()).sum::<usize>()
    }
}
