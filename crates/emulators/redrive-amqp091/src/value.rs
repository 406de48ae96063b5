use bytes::{BufMut as _, Bytes, BytesMut};

use crate::wire::{Reader, Writer};
use crate::{DecodeError, ShortStr};

/// A value in a field table, by RabbitMQ's type letters.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `t`
    Bool(bool),
    /// `b`
    I8(i8),
    /// `B`
    U8(u8),
    /// `s`
    I16(i16),
    /// `u`
    U16(u16),
    /// `I`
    I32(i32),
    /// `i`
    U32(u32),
    /// `l`
    I64(i64),
    /// `L`; RabbitMQ does not read it
    U64(u64),
    /// `f`
    F32(f32),
    /// `d`
    F64(f64),
    /// `D`
    Decimal(Decimal),
    /// `S`: a text, UTF-8 by convention
    LongStr(Bytes),
    /// `x`
    Binary(Bytes),
    /// `T`: seconds since 1970-01-01 UTC
    Timestamp(u64),
    /// `A`
    Array(Vec<Value>),
    /// `F`
    Table(Table),
    /// `V`
    Void,
}

/// A decimal number: `value` divided by ten to the power of `scale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decimal {
    /// Number of decimal places.
    pub scale: u8,
    /// The digits.
    pub value: i32,
}

/// A field table, in the order of its entries. A key may occur twice on the wire; then the first one counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table(Vec<(ShortStr, Value)>);

impl Table {
    /// Maximum number of tables and arrays within each other, the outermost included.
    pub const MAX_DEPTH: usize = 128;

    /// Creates an empty table.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Returns the first value of this key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(name, _)| *name == *key).map(|(_, value)| value)
    }

    /// Replaces the value of this key, or appends the entry.
    pub fn insert(&mut self, key: ShortStr, value: impl Into<Value>) {
        let value = value.into();
        match self.0.iter_mut().find(|(name, _)| *name == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key, value)),
        }
    }

    /// Appends an entry without looking for its key.
    pub fn push(&mut self, key: ShortStr, value: impl Into<Value>) {
        self.0.push((key, value.into()));
    }

    /// Appends an entry; for tables written in code.
    ///
    /// # Panics
    /// If the key has more than 255 bytes.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.insert(ShortStr::from_static(key), value);
        self
    }

    /// Removes all entries of this key, and returns the first one's value.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let at = self.0.iter().position(|(name, _)| *name == *key)?;
        let (_, value) = self.0.remove(at);
        self.0.retain(|(name, _)| *name != *key);
        Some(value)
    }

    /// Returns the entries in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&ShortStr, &Value)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn write_entries(&self, out: &mut BytesMut) {
        self.0.iter().for_each(|(key, value)| write_entry(key, value, out));
    }
}

impl FromIterator<(ShortStr, Value)> for Table {
    fn from_iter<I: IntoIterator<Item = (ShortStr, Value)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl IntoIterator for Table {
    type Item = (ShortStr, Value);
    type IntoIter = std::vec::IntoIter<(ShortStr, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Value {
    /// Returns the number, whatever its width; `None` if it is no integer, or larger than `i64::MAX`.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::I8(number) => Some(i64::from(*number)),
            Self::U8(number) => Some(i64::from(*number)),
            Self::I16(number) => Some(i64::from(*number)),
            Self::U16(number) => Some(i64::from(*number)),
            Self::I32(number) => Some(i64::from(*number)),
            Self::U32(number) => Some(i64::from(*number)),
            Self::I64(number) => Some(*number),
            Self::U64(number) => i64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// Returns the text, if it is one in UTF-8.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::LongStr(text) => std::str::from_utf8(text).ok(),
            _ => None,
        }
    }

    /// Returns the truth value, if it is one.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns the table, if it is one.
    #[must_use]
    pub fn as_table(&self) -> Option<&Table> {
        match self {
            Self::Table(table) => Some(table),
            _ => None,
        }
    }

    /// Returns the array, if it is one.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Self::Array(values) => Some(values),
            _ => None,
        }
    }

    /// Returns the type's letter on the wire.
    #[must_use]
    pub fn letter(&self) -> u8 {
        match self {
            Self::Bool(_) => b't',
            Self::I8(_) => b'b',
            Self::U8(_) => b'B',
            Self::I16(_) => b's',
            Self::U16(_) => b'u',
            Self::I32(_) => b'I',
            Self::U32(_) => b'i',
            Self::I64(_) => b'l',
            Self::U64(_) => b'L',
            Self::F32(_) => b'f',
            Self::F64(_) => b'd',
            Self::Decimal(_) => b'D',
            Self::LongStr(_) => b'S',
            Self::Binary(_) => b'x',
            Self::Timestamp(_) => b'T',
            Self::Array(_) => b'A',
            Self::Table(_) => b'F',
            Self::Void => b'V',
        }
    }

    pub(crate) fn write(&self, out: &mut BytesMut) {
        out.put_u8(self.letter());
        match self {
            Self::Bool(value) => out.put_u8(u8::from(*value)),
            Self::I8(number) => out.put_i8(*number),
            Self::U8(number) => out.put_u8(*number),
            Self::I16(number) => out.put_i16(*number),
            Self::U16(number) => out.put_u16(*number),
            Self::I32(number) => out.put_i32(*number),
            Self::U32(number) => out.put_u32(*number),
            Self::I64(number) => out.put_i64(*number),
            Self::U64(number) | Self::Timestamp(number) => out.put_u64(*number),
            Self::F32(number) => out.put_f32(*number),
            Self::F64(number) => out.put_f64(*number),
            Self::Decimal(Decimal { scale, value }) => {
                out.put_u8(*scale);
                out.put_i32(*value);
            }
            Self::LongStr(bytes) | Self::Binary(bytes) => Writer::new(out).long_str(bytes),
            Self::Array(values) => with_length(out, |out| values.iter().for_each(|value| value.write(out))),
            Self::Table(table) => with_length(out, |out| table.write_entries(out)),
            Self::Void => {}
        }
    }

    /// Reads a value, its letter included. `depth`: how many more tables and arrays may be nested.
    pub(crate) fn read(from: &mut Reader<'_>, depth: usize) -> Result<Self, DecodeError> {
        Ok(match from.u8()? {
            b't' => Self::Bool(from.u8()? != 0),
            b'b' => Self::I8(i8::from_be_bytes(from.array()?)),
            b'B' => Self::U8(from.u8()?),
            b's' => Self::I16(i16::from_be_bytes(from.array()?)),
            b'u' => Self::U16(from.u16()?),
            b'I' => Self::I32(i32::from_be_bytes(from.array()?)),
            b'i' => Self::U32(from.u32()?),
            b'l' => Self::I64(i64::from_be_bytes(from.array()?)),
            b'L' => Self::U64(from.u64()?),
            b'f' => Self::F32(f32::from_be_bytes(from.array()?)),
            b'd' => Self::F64(f64::from_be_bytes(from.array()?)),
            b'D' => Self::Decimal(Decimal { scale: from.u8()?, value: i32::from_be_bytes(from.array()?) }),
            b'S' => Self::LongStr(from.long_str()?),
            b'x' => Self::Binary(from.long_str()?),
            b'T' => Self::Timestamp(from.u64()?),
            b'V' => Self::Void,
            b'A' => {
                let depth = depth.checked_sub(1).ok_or(DecodeError::TooDeep)?;
                let bytes = from.long_str()?;
                let mut inner = Reader::new(&bytes);
                let mut values = Vec::new();
                while inner.remaining() > 0 {
                    values.push(Self::read(&mut inner, depth)?);
                }
                Self::Array(values)
            }
            b'F' => {
                let depth = depth.checked_sub(1).ok_or(DecodeError::TooDeep)?;
                Self::Table(Table::read_entries(&from.long_str()?, depth)?)
            }
            other => return Err(DecodeError::UnknownFieldType(other)),
        })
    }

    /// Passes over a value, its letter included, and checks it as [`read`](Self::read) does.
    pub(crate) fn skip(from: &mut Reader<'_>, depth: usize) -> Result<(), DecodeError> {
        let length = match Length::of(from.u8()?)? {
            Length::Fixed(length) => length,
            Length::Counted => from.u32()? as usize,
            Length::Array => {
                let depth = depth.checked_sub(1).ok_or(DecodeError::TooDeep)?;
                return within(from, |from, end| {
                    while from.position() < end {
                        Self::skip(from, depth)?;
                    }
                    Ok(())
                });
            }
            Length::Table => {
                let depth = depth.checked_sub(1).ok_or(DecodeError::TooDeep)?;
                return within(from, |from, end| {
                    while from.position() < end {
                        let length = from.u8()?;
                        from.skip(usize::from(length))?;
                        Self::skip(from, depth)?;
                    }
                    Ok(())
                });
            }
        };
        from.skip(length)
    }
}

/// How long a value is, by its type's letter.
pub(crate) enum Length {
    Fixed(usize),
    /// It begins with its length.
    Counted,
    /// The same, and values follow.
    Array,
    /// The same, and keys with values follow.
    Table,
}

impl Length {
    pub(crate) fn of(letter: u8) -> Result<Self, DecodeError> {
        Ok(match letter {
            b'V' => Self::Fixed(0),
            b't' | b'b' | b'B' => Self::Fixed(1),
            b's' | b'u' => Self::Fixed(2),
            b'I' | b'i' | b'f' => Self::Fixed(4),
            b'D' => Self::Fixed(5),
            b'l' | b'L' | b'd' | b'T' => Self::Fixed(8),
            b'S' | b'x' => Self::Counted,
            b'A' => Self::Array,
            b'F' => Self::Table,
            other => return Err(DecodeError::UnknownFieldType(other)),
        })
    }
}

/// Reads a length, then that many bytes: `read` must end exactly there.
fn within(
    from: &mut Reader<'_>,
    read: impl FnOnce(&mut Reader<'_>, usize) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let length = from.u32()? as usize;
    if length > from.remaining() {
        return Err(DecodeError::Truncated);
    }
    let end = from.position() + length;
    read(from, end)?;
    if from.position() == end { Ok(()) } else { Err(DecodeError::Truncated) }
}

impl Table {
    pub(crate) fn read_entries(bytes: &Bytes, depth: usize) -> Result<Self, DecodeError> {
        let mut from = Reader::new(bytes);
        let mut entries = Vec::new();
        while from.remaining() > 0 {
            entries.push((from.short_str()?, Value::read(&mut from, depth)?));
        }
        Ok(Self(entries))
    }
}

pub(crate) fn write_entry(key: &ShortStr, value: &Value, out: &mut BytesMut) {
    Writer::new(out).short_str(key);
    value.write(out);
}

fn with_length(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let at = out.len();
    out.put_u32(0);
    write(out);
    let length = u32::try_from(out.len() - at - 4).unwrap_or(u32::MAX);
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

macro_rules! from {
    ($($type:ty => $variant:ident),* $(,)?) => {$(
        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Self::$variant(value)
            }
        }
    )*};
}

from!(
    bool => Bool, i8 => I8, u8 => U8, i16 => I16, u16 => U16, i32 => I32, u32 => U32, i64 => I64,
    f32 => F32, f64 => F64, Table => Table, Vec<Value> => Array, Decimal => Decimal,
);

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::LongStr(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::LongStr(text.into())
    }
}

impl From<ShortStr> for Value {
    fn from(text: ShortStr) -> Self {
        Self::LongStr(text.into_bytes())
    }
}
