use std::borrow::{Borrow, Cow};
use std::fmt;

use bytes::Bytes;

/// A text of at most 255 bytes: a name, a routing key, a property. UTF-8 by convention; any bytes are kept as they are. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShortStr(Bytes);

/// A text has more than 255 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a short string has at most 255 bytes, this text has {0}")]
pub struct TooLong(pub usize);

impl ShortStr {
    /// Maximum length in bytes.
    pub const MAX: usize = 255;

    /// Creates one.
    ///
    /// # Errors
    /// If it has more than 255 bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self, TooLong> {
        let bytes = bytes.into();
        if bytes.len() > Self::MAX { Err(TooLong(bytes.len())) } else { Ok(Self(bytes)) }
    }

    /// Creates one from a constant.
    ///
    /// # Panics
    /// If it has more than 255 bytes; in a `const`, at compile time.
    #[must_use]
    pub const fn from_static(text: &'static str) -> Self {
        assert!(text.len() <= Self::MAX, "a short string has at most 255 bytes");
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// Creates one from the first 255 bytes of a text; cuts between characters.
    #[must_use]
    pub fn truncated(text: &str) -> Self {
        let end = (0..=Self::MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        Self(Bytes::copy_from_slice(&text.as_bytes()[..end]))
    }

    pub(crate) fn from_wire(bytes: Bytes) -> Self {
        debug_assert!(bytes.len() <= Self::MAX);
        Self(bytes)
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the text; bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn to_str(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    /// Returns whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Copies the bytes out of the buffer that they share, so that this value does not keep a large buffer alive.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }

    /// Returns the bytes, shared.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl Borrow<[u8]> for ShortStr {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq<str> for ShortStr {
    fn eq(&self, other: &str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl PartialEq<&str> for ShortStr {
    fn eq(&self, other: &&str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl TryFrom<&str> for ShortStr {
    type Error = TooLong;

    fn try_from(text: &str) -> Result<Self, TooLong> {
        Self::new(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl TryFrom<String> for ShortStr {
    type Error = TooLong;

    fn try_from(text: String) -> Result<Self, TooLong> {
        Self::new(text)
    }
}

impl fmt::Debug for ShortStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_str())
    }
}

impl fmt::Display for ShortStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_str())
    }
}
