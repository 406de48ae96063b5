//! Typed headers: everything that AMQP 0-9-1 and AMQP 1.0 can carry, without loss.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::mem::discriminant;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

/// Headers of a message, ordered by name. Cheap to clone.
///
/// ```
/// use redrive_core::{Headers, Value};
///
/// let mut headers = Headers::new();
/// headers.insert("tenant", "blue");
/// headers.insert("priority", 7_i64);
/// assert_eq!(headers.get("tenant").and_then(Value::as_str), Some("blue"));
/// ```
#[derive(Clone, Default)]
pub struct Headers {
    /// Ordered by name. A list, because a map takes more memory and time for so few entries. `None` for no headers, as on most
    /// messages.
    entries: Option<Arc<Vec<(Name, Value)>>>,
}

/// Names of redrive's own headers are `'static`, and take no memory in each message.
type Name = Cow<'static, str>;

impl Headers {
    /// Creates empty headers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the value of this header, if it is present.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        let index = self.find(name).ok()?;
        Some(&self.entries()[index].1)
    }

    /// Sets a header and returns its previous value.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        self.put(Cow::Owned(name.into()), value.into())
    }

    /// Sets a header with a `'static` name.
    pub(crate) fn insert_own(&mut self, name: &'static str, value: impl Into<Value>) -> Option<Value> {
        self.put(Cow::Borrowed(name), value.into())
    }

    /// Reserves capacity for this many more headers.
    pub(crate) fn reserve(&mut self, more: usize) {
        self.entries_mut().reserve(more);
    }

    /// Removes a header and returns its value.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        // Search first: changing a shared list copies it.
        let index = self.find(name).ok()?;
        Some(self.entries_mut().remove(index).1)
    }

    /// Keeps only the headers for which `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &Value) -> bool) {
        if !self.is_empty() {
            self.entries_mut().retain(|(name, value)| keep(name, value));
        }
    }

    /// Returns true if a header of this name is present.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.find(name).is_ok()
    }

    /// Returns the number of headers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries().len()
    }

    /// Returns true if there are no headers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// Iterates over all headers, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries().iter().map(|(name, value)| (&**name, value))
    }

    /// Returns the size that redrive's own headers are budgeted with, in bytes: names and values, a byte for each type and four for
    /// each length. What headers take on the wire is the transport's to say ([`HeaderLimit`](crate::transport::HeaderLimit)).
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        4 + self.iter().map(|(name, value)| 1 + name.len() + value.encoded_len()).sum::<usize>()
    }

    fn put(&mut self, name: Name, value: Value) -> Option<Value> {
        match self.find(&name) {
            Ok(index) => Some(std::mem::replace(&mut self.entries_mut()[index].1, value)),
            Err(index) => {
                self.entries_mut().insert(index, (name, value));
                None
            }
        }
    }

    /// Finds the position of the header, or the position where it would be inserted.
    fn find(&self, name: &str) -> Result<usize, usize> {
        self.entries().binary_search_by(|(there, _)| (**there).cmp(name))
    }

    fn entries(&self) -> &[(Name, Value)] {
        self.entries.as_ref().map_or(&[], |entries| entries)
    }

    fn entries_mut(&mut self) -> &mut Vec<(Name, Value)> {
        Arc::make_mut(self.entries.get_or_insert_default())
    }
}

impl PartialEq for Headers {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<N: Into<String>, V: Into<Value>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(entries: I) -> Self {
        let named = |(name, value): (N, V)| (Cow::Owned(name.into()), value.into());
        let mut entries: Vec<(Name, Value)> = entries.into_iter().map(named).collect();
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        // Of several headers with one name, the last one wins.
        entries.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });
        Self { entries: (!entries.is_empty()).then(|| Arc::new(entries)) }
    }
}

/// Value of a header. It keeps the width of a number, so that a header leaves with the type that it came with.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// No value (AMQP `void` / `null`).
    Null,
    /// A boolean.
    Bool(bool),
    /// A signed 8-bit integer.
    I8(i8),
    /// An unsigned 8-bit integer.
    U8(u8),
    /// A signed 16-bit integer.
    I16(i16),
    /// An unsigned 16-bit integer.
    U16(u16),
    /// A signed 32-bit integer.
    I32(i32),
    /// An unsigned 32-bit integer.
    U32(u32),
    /// A signed 64-bit integer.
    I64(i64),
    /// An unsigned 64-bit integer.
    U64(u64),
    /// A 32-bit float.
    F32(f32),
    /// A 64-bit float.
    F64(f64),
    /// A decimal: `value` / 10^`scale` (AMQP 0-9-1 `decimal-value`).
    Decimal {
        /// Number of digits after the decimal point.
        scale: u8,
        /// The digits.
        value: u32,
    },
    /// A Unicode character (AMQP 1.0).
    Char(char),
    /// A point in time.
    Timestamp(Timestamp),
    /// A UUID (AMQP 1.0).
    Uuid([u8; 16]),
    /// A string.
    String(String),
    /// A string whose bytes are not UTF-8: AMQP 0-9-1 allows it, and redrive keeps it unchanged.
    RawString(Bytes),
    /// A byte array.
    Bytes(Bytes),
    /// An array.
    List(Vec<Value>),
    /// A nested table.
    Table(Headers),
}

impl Value {
    /// Feeds the value, its type included, into a hasher. Two floats are the same if their bits are.
    pub fn hash_into(&self, hasher: &mut impl Hasher) {
        discriminant(self).hash(hasher);
        match self {
            Self::Null => {}
            Self::Bool(value) => value.hash(hasher),
            Self::I8(n) => n.hash(hasher),
            Self::U8(n) => n.hash(hasher),
            Self::I16(n) => n.hash(hasher),
            Self::U16(n) => n.hash(hasher),
            Self::I32(n) => n.hash(hasher),
            Self::U32(n) => n.hash(hasher),
            Self::I64(n) => n.hash(hasher),
            Self::U64(n) => n.hash(hasher),
            Self::F32(n) => n.to_bits().hash(hasher),
            Self::F64(n) => n.to_bits().hash(hasher),
            Self::Decimal { scale, value } => (scale, value).hash(hasher),
            Self::Char(c) => c.hash(hasher),
            Self::Timestamp(time) => time.hash(hasher),
            Self::Uuid(bytes) => bytes.hash(hasher),
            Self::String(text) => text.hash(hasher),
            Self::RawString(bytes) | Self::Bytes(bytes) => bytes.hash(hasher),
            Self::List(items) => {
                items.len().hash(hasher);
                items.iter().for_each(|item| item.hash_into(hasher));
            }
            Self::Table(table) => {
                table.len().hash(hasher);
                for (name, value) in table.iter() {
                    name.hash(hasher);
                    value.hash_into(hasher);
                }
            }
        }
    }

    /// Returns the text if this is a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the number if this is an integer of any width, or a whole float.
    #[must_use]
    pub fn as_integer(&self) -> Option<i128> {
        let whole = |float: f64| (float.fract() == 0.0 && float.abs() < 1e18).then_some(float as i128);
        match *self {
            Self::I8(n) => Some(n.into()),
            Self::U8(n) => Some(n.into()),
            Self::I16(n) => Some(n.into()),
            Self::U16(n) => Some(n.into()),
            Self::I32(n) => Some(n.into()),
            Self::U32(n) => Some(n.into()),
            Self::I64(n) => Some(n.into()),
            Self::U64(n) => Some(n.into()),
            Self::F32(n) => whole(n.into()),
            Self::F64(n) => whole(n),
            _ => None,
        }
    }

    /// Returns the number if this is an integer of any width, a whole float, or a decimal string: other clients write counters in
    /// all of these ways.
    #[must_use]
    pub fn to_integer(&self) -> Option<i128> {
        match self {
            Self::String(text) => text.trim().parse().ok(),
            _ => self.as_integer(),
        }
    }

    /// Returns the nested table if this is one.
    #[must_use]
    pub fn as_table(&self) -> Option<&Headers> {
        match self {
            Self::Table(table) => Some(table),
            _ => None,
        }
    }

    /// Returns the items if this is an array.
    #[must_use]
    pub fn as_list(&self) -> Option<&[Value]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the size of the value as in [`Headers::encoded_len`], including the byte for its type.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        1 + match self {
            Self::Null => 0,
            Self::Bool(_) | Self::I8(_) | Self::U8(_) => 1,
            Self::I16(_) | Self::U16(_) => 2,
            Self::I32(_) | Self::U32(_) | Self::F32(_) | Self::Char(_) => 4,
            Self::Decimal { .. } => 5,
            Self::I64(_) | Self::U64(_) | Self::F64(_) | Self::Timestamp(_) => 8,
            Self::Uuid(_) => 16,
            Self::String(text) => 4 + text.len(),
            Self::RawString(bytes) | Self::Bytes(bytes) => 4 + bytes.len(),
            Self::List(items) => 4 + items.iter().map(Self::encoded_len).sum::<usize>(),
            Self::Table(table) => table.encoded_len(),
        }
    }
}

macro_rules! value_from {
    ($($from:ty => $variant:ident),* $(,)?) => {
        $(impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$variant(value.into())
            }
        })*
    };
}

value_from! {
    bool => Bool, i8 => I8, u8 => U8, i16 => I16, u16 => U16, i32 => I32, u32 => U32, i64 => I64, u64 => U64,
    f32 => F32, f64 => F64, Timestamp => Timestamp, &str => String, String => String, Bytes => Bytes,
    Vec<Value> => List, Headers => Table,
}

/// A point in time, in milliseconds since 1970-01-01 UTC; wide enough for every `timestamp` of
/// AMQP 0-9-1 (unsigned 64-bit seconds) and AMQP 1.0 (signed 64-bit milliseconds).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    millis: i128,
}

impl Timestamp {
    /// Creates a timestamp from seconds since 1970-01-01 UTC.
    #[must_use]
    pub const fn from_unix_seconds(seconds: u64) -> Self {
        Self { millis: seconds as i128 * 1000 }
    }

    /// Creates a timestamp from milliseconds since 1970-01-01 UTC.
    #[must_use]
    pub const fn from_unix_millis(millis: i64) -> Self {
        Self { millis: millis as i128 }
    }

    /// Returns whole seconds since 1970-01-01 UTC; zero for any earlier time.
    #[must_use]
    pub fn unix_seconds(self) -> u64 {
        u64::try_from(self.millis / 1000).unwrap_or(0)
    }

    /// Returns milliseconds since 1970-01-01 UTC, clamped to `i64`.
    #[must_use]
    pub fn unix_millis(self) -> i64 {
        i64::try_from(self.millis).unwrap_or(if self.millis < 0 { i64::MIN } else { i64::MAX })
    }

    /// Returns the system time; `None` if the system cannot represent it.
    #[must_use]
    pub fn to_system_time(self) -> Option<SystemTime> {
        let distance = Duration::from_millis(u64::try_from(self.millis.unsigned_abs()).ok()?);
        if self.millis < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) }
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let millis = match time.duration_since(UNIX_EPOCH) {
            Ok(since) => i128::try_from(since.as_millis()).unwrap_or(i128::MAX),
            Err(before) => -i128::try_from(before.duration().as_millis()).unwrap_or(i128::MAX),
        };
        Self { millis }
    }
}

#[cfg(test)]
#[path = "headers_tests.rs"]
mod tests;
