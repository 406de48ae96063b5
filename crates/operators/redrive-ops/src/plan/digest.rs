//! Digests of messages and of plans.

use std::fmt;
use std::str::FromStr;

use redrive_core::{Headers, Message, Properties, Value};
use sha2::{Digest as _, Sha256};

/// Digest of a message's content: the first 16 bytes of SHA-256 over its properties, headers and body, printed in hexadecimal.
///
/// SHA-256, because anybody may publish: a message cannot be crafted to pass for another one.
///
/// ```
/// use redrive_core::Message;
/// use redrive_ops::ContentDigest;
///
/// let message = Message::new("1 book").with_header("tenant", "blue");
/// let digest = ContentDigest::of(&message);
/// assert_eq!(digest.to_string().parse(), Ok(digest));
/// assert_ne!(digest, ContentDigest::of(&message.with_header("tenant", "green")));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentDigest(u128);

impl ContentDigest {
    /// Computes the digest of a message.
    #[must_use]
    pub fn of(message: &Message) -> Self {
        let mut hash = Hasher::new("redrive-content/1");
        hash.properties(message.properties());
        hash.headers(message.headers());
        hash.part(0, message.body());
        Self::first_of(hash)
    }

    /// Computes a digest of what a message keeps when it is redriven and fails again: its body, and its id if it has one.
    pub(crate) fn of_identity(id: Option<&str>, body: &[u8]) -> Self {
        let mut hash = Hasher::new("redrive-identity/1");
        hash.optional(id);
        hash.part(0, body);
        Self::first_of(hash)
    }

    fn first_of(hash: Hasher) -> Self {
        let mut first = [0; 16];
        first.copy_from_slice(&hash.0.finalize()[..16]);
        Self(u128::from_be_bytes(first))
    }
}

impl fmt::Display for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for ContentDigest {
    type Err = ParseDigestError;

    /// Accepts only the printed form.
    fn from_str(text: &str) -> Result<Self, ParseDigestError> {
        let digest = u128::from_str_radix(text, 16).map(Self);
        digest
            .ok()
            .filter(|digest| digest.to_string() == text)
            .ok_or_else(|| ParseDigestError(text.to_owned()))
    }
}

/// The text is not a digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a digest: 32 hexadecimal digits in lower case are expected")]
pub struct ParseDigestError(String);

/// SHA-256 over parts: each with its tag and its length, so that no two lists of parts are the same bytes.
pub(super) struct Hasher(Sha256);

impl Hasher {
    pub(super) fn new(what: &str) -> Self {
        Self(Sha256::new_with_prefix(what))
    }

    pub(super) fn part(&mut self, tag: u8, bytes: &[u8]) {
        self.0.update([tag]);
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.part(1, text.as_bytes());
    }

    pub(super) fn optional(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.text(text),
            None => self.part(2, &[]),
        }
    }

    /// Returns the whole hash in hexadecimal.
    pub(super) fn finish(self) -> String {
        use std::fmt::Write as _;
        let mut text = String::with_capacity(64);
        for byte in self.0.finalize() {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    fn properties(&mut self, properties: &Properties) {
        let texts = [
            &properties.id,
            &properties.correlation_id,
            &properties.content_type,
            &properties.content_encoding,
            &properties.reply_to,
            &properties.kind,
            &properties.to,
            &properties.user_id,
            &properties.app_id,
            &properties.cluster_id,
            &properties.session_id,
        ];
        for text in texts {
            self.optional(text.as_deref());
        }
        let timestamp = properties.timestamp.map(|time| time.unix_millis().to_be_bytes());
        let expiration = properties.expiration.map(|expiration| expiration.as_nanos().to_be_bytes());
        let others: [Option<&[u8]>; 4] = [
            properties.priority.as_ref().map(std::slice::from_ref),
            timestamp.as_ref().map(|bytes| &bytes[..]),
            expiration.as_ref().map(|bytes| &bytes[..]),
            properties.persistent.map(|yes| if yes { &[1][..] } else { &[0][..] }),
        ];
        for bytes in others {
            self.part(if bytes.is_some() { 1 } else { 2 }, bytes.unwrap_or_default());
        }
    }

    fn headers(&mut self, headers: &Headers) {
        self.part(3, &(headers.len() as u64).to_be_bytes());
        for (name, value) in headers.iter() {
            self.text(name);
            self.value(value);
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.part(10, &[]),
            Value::Bool(yes) => self.part(11, &[u8::from(*yes)]),
            Value::I8(n) => self.part(12, &n.to_be_bytes()),
            Value::U8(n) => self.part(13, &n.to_be_bytes()),
            Value::I16(n) => self.part(14, &n.to_be_bytes()),
            Value::U16(n) => self.part(15, &n.to_be_bytes()),
            Value::I32(n) => self.part(16, &n.to_be_bytes()),
            Value::U32(n) => self.part(17, &n.to_be_bytes()),
            Value::I64(n) => self.part(18, &n.to_be_bytes()),
            Value::U64(n) => self.part(19, &n.to_be_bytes()),
            Value::F32(n) => self.part(20, &n.to_bits().to_be_bytes()),
            Value::F64(n) => self.part(21, &n.to_bits().to_be_bytes()),
            Value::Decimal { scale, value } => {
                self.part(22, &[*scale]);
                self.part(22, &value.to_be_bytes());
            }
            Value::Char(char) => self.part(23, &u32::from(*char).to_be_bytes()),
            Value::Timestamp(time) => self.part(24, &time.unix_millis().to_be_bytes()),
            Value::Uuid(bytes) => self.part(25, bytes),
            Value::String(text) => self.part(26, text.as_bytes()),
            Value::RawString(bytes) => self.part(27, bytes),
            Value::Bytes(bytes) => self.part(28, bytes),
            Value::List(items) => {
                self.part(29, &(items.len() as u64).to_be_bytes());
                items.iter().for_each(|item| self.value(item));
            }
            Value::Table(table) => self.headers(table),
            // A kind that the core got later.
            other => self.part(255, format!("{other:?}").as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_part_of_a_message_counts() {
        let base = || Message::new("body").with_id("1");
        let with = |change: fn(&mut Properties)| {
            let mut message = base();
            change(message.properties_mut());
            message
        };
        let messages = [
            base(),
            base().with_body("body2"),
            base().with_id("2"),
            base().with_header("a", 1_i64),
            base().with_header("a", 1_i32),
            base().with_header("a", "1"),
            base().with_header("a", Value::Null),
            base().with_header("a", Value::List(vec![])),
            base().with_header("a", Value::Table(Headers::new())),
            base().with_header("a", Value::List(vec![Value::Null])),
            with(|properties| properties.kind = Some("x".into())),
            with(|properties| properties.reply_to = Some("x".into())),
            with(|properties| properties.reply_to = Some(String::new())),
            with(|properties| properties.priority = Some(0)),
            with(|properties| properties.expiration = Some(Duration::ZERO)),
            with(|properties| properties.persistent = Some(false)),
            with(|properties| properties.persistent = Some(true)),
        ];
        let digests: std::collections::HashSet<_> = messages.iter().map(ContentDigest::of).collect();
        assert_eq!(digests.len(), messages.len());
    }

    /// A plan may be applied by a later version. Python's `hashlib` computed it.
    #[test]
    fn an_identity_is_this_value() {
        assert_eq!(ContentDigest::of_identity(Some("a"), b"b").to_string(), IDENTITY);
    }
    const IDENTITY: &str = "7e90c3cebd45560866f9564577edee5c";

    #[test]
    fn a_digest_is_parsed_as_it_was_printed() {
        for digest in [ContentDigest(0), ContentDigest(7), ContentDigest(u128::MAX)] {
            assert_eq!(digest.to_string().parse(), Ok(digest));
        }
        for text in ["", "7", "+0000000000000000000000000000007", "0000000000000000000000000000000A"] {
            text.parse::<ContentDigest>().expect_err(text);
        }
    }
}
