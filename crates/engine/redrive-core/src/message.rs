//! A message: body, headers, properties.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::codec::Encode;
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
    /// Creates a message with this body and nothing else.
    #[must_use]
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self::from_parts(body.into(), Headers::new(), Properties::default())
    }

    /// Creates a message with this value as its body, in JSON, and the content type `application/json`.
    ///
    /// # Errors
    ///
    /// If the value cannot be written as JSON.
    #[cfg(feature = "json")]
    pub fn json<T: serde::Serialize + ?Sized>(value: &T) -> Result<Self, crate::TransportError> {
        Self::encoded::<crate::codec::JsonCodec, T>(value)
    }

    /// Creates a message from a value. The [`Codec`](crate::Codec) `C` sets body and content type.
    ///
    /// # Errors
    ///
    /// If the codec cannot write the value.
    pub fn encoded<C: Encode<T>, T: ?Sized>(value: &T) -> Result<Self, crate::TransportError> {
        let body = C::encode(value).map_err(|error| {
            let (what, format) = (std::any::type_name::<T>(), C::CONTENT_TYPE);
            let message = format!("a `{what}` cannot be written as {format}: {error}");
            crate::TransportError::new(crate::TransportErrorKind::Other, message).with_source(error)
        })?;
        Ok(Self::new(body).with_content_type(C::CONTENT_TYPE))
    }

    /// Creates a message from its parts; for transports.
    #[must_use]
    pub fn from_parts(body: Bytes, headers: Headers, properties: Properties) -> Self {
        Self { parts: Arc::new(Parts { body, headers, properties }) }
    }

    /// Returns the body.
    #[inline]
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.parts.body
    }

    /// Returns the headers.
    #[inline]
    #[must_use]
    pub fn headers(&self) -> &Headers {
        &self.parts.headers
    }

    /// Returns the headers for changes.
    #[inline]
    pub fn headers_mut(&mut self) -> &mut Headers {
        &mut Arc::make_mut(&mut self.parts).headers
    }

    /// Returns the standard properties.
    #[inline]
    #[must_use]
    pub fn properties(&self) -> &Properties {
        &self.parts.properties
    }

    /// Returns the standard properties for changes.
    #[inline]
    pub fn properties_mut(&mut self) -> &mut Properties {
        &mut Arc::make_mut(&mut self.parts).properties
    }

    /// Returns the message's id, if it has one.
    #[inline]
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.parts.properties.id.as_deref()
    }

    /// Sets the id.
    #[inline]
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.properties_mut().id = Some(id.into());
        self
    }

    /// Gives the message a random id if it has none, and returns true if it did. The only place where redrive makes ids.
    pub(crate) fn assign_id(&mut self) -> bool {
        let is_missing = self.id().is_none();
        if is_missing {
            self.properties_mut().id = Some(format!("{:032x}", fastrand::u128(..)));
        }
        is_missing
    }

    /// Sets the correlation id.
    #[inline]
    #[must_use]
    pub fn with_correlation_id(mut self, id: impl Into<String>) -> Self {
        self.properties_mut().correlation_id = Some(id.into());
        self
    }

    /// Replaces the body, to edit a message that failed. Headers and properties stay, including the content type.
    ///
    /// ```
    /// use redrive_core::Message;
    ///
    /// let failed = Message::new("2 books").with_id("order-7").with_kind("order.placed");
    /// let edited = failed.with_body("2 books, address: here");
    /// assert_eq!((edited.id(), edited.body().as_ref()), (Some("order-7"), &b"2 books, address: here"[..]));
    /// ```
    #[inline]
    #[must_use]
    pub fn with_body(self, body: impl Into<Bytes>) -> Self {
        Self::from_parts(body.into(), self.headers().clone(), self.properties().clone())
    }

    /// Returns the [kind](Properties::kind), for dispatch. `amqp-1.0` is none: RabbitMQ 4 writes it where it hands a body over encoded.
    #[inline]
    #[must_use]
    pub fn kind(&self) -> Option<&str> {
        self.properties().kind.as_deref().filter(|kind| *kind != "amqp-1.0")
    }

    /// Sets the [kind](Properties::kind).
    #[inline]
    #[must_use]
    pub fn with_kind(mut self, kind: impl Into<String>) -> Self {
        self.properties_mut().kind = Some(kind.into());
        self
    }

    /// Sets the content type.
    #[inline]
    #[must_use]
    pub fn with_content_type(mut self, content_type: impl Into<String>) -> Self {
        self.properties_mut().content_type = Some(content_type.into());
        self
    }

    /// Adds a header.
    #[inline]
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

/// The standard properties of AMQP 0-9-1 (section 1.8 of its XML definition) and of Service Bus, one name for each. A broker that
/// lacks a property carries it as documented on [its page](https://github.com/redrive-rs/redrive/tree/main/docs/transports).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Properties {
    /// `message-id`: identifies the message, for as long as it lives.
    pub id: Option<String>,
    /// `correlation-id`: the conversation that it belongs to.
    pub correlation_id: Option<String>,
    /// `content-type`: the MIME type of the body.
    pub content_type: Option<String>,
    /// `content-encoding`: for example `gzip`.
    pub content_encoding: Option<String>,
    /// `reply-to`: address for an answer.
    pub reply_to: Option<String>,
    /// `type` in AMQP 0-9-1, `subject` in Service Bus: the kind of message.
    pub kind: Option<String>,
    /// `to`: intended destination (Service Bus).
    pub to: Option<String>,
    /// `user-id`: the publishing user, as checked by the broker.
    pub user_id: Option<String>,
    /// `app-id`: the application that published it.
    pub app_id: Option<String>,
    /// `cluster-id` (AMQP 0-9-1, deprecated there; copies still carry it).
    pub cluster_id: Option<String>,
    /// `session-id` (Service Bus): messages of one session are handled in order.
    pub session_id: Option<String>,
    /// Priority, higher first; the broker defines its meaning.
    pub priority: Option<u8>,
    /// Creation time, by the publisher's word.
    pub timestamp: Option<Timestamp>,
    /// How long the message may stay in a queue before it expires.
    pub expiration: Option<Duration>,
    /// Whether the publisher asked for the message to survive a broker restart. Every copy that redrive makes is persistent,
    /// whatever this value is.
    pub persistent: Option<bool>,
}

/// Lists the properties that are texts: the one place that does.
macro_rules! texts {
    ($properties:expr) => {{
        let Properties {
            id,
            correlation_id,
            content_type,
            content_encoding,
            reply_to,
            kind,
            to,
            user_id,
            app_id,
            cluster_id,
            session_id,
            priority: _,
            timestamp: _,
            expiration: _,
            persistent: _,
        } = $properties;
        [
            ("id", id),
            ("correlation-id", correlation_id),
            ("content-type", content_type),
            ("content-encoding", content_encoding),
            ("reply-to", reply_to),
            ("kind", kind),
            ("to", to),
            ("user-id", user_id),
            ("app-id", app_id),
            ("cluster-id", cluster_id),
            ("session-id", session_id),
        ]
    }};
}

impl Properties {
    /// Returns every property that is a text, with its name.
    #[inline]
    pub fn texts(&self) -> impl Iterator<Item = (&'static str, Option<&str>)> {
        texts!(self).into_iter().map(|(name, text)| (name, text.as_deref()))
    }

    /// The same, to be changed.
    #[inline]
    pub fn texts_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut Option<String>)> {
        texts!(self).into_iter()
    }

    /// Returns every property that is a text but the id.
    #[inline]
    #[must_use]
    pub fn texts_beside_id(&self) -> [Option<&str>; 10] {
        let [_id, others @ ..] = texts!(self);
        others.map(|(_, text)| text.as_deref())
    }
}
