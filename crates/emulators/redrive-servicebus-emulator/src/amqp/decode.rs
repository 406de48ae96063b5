use bytes::Bytes;
use uuid::Uuid;

use super::{Map, Value};

/// How deep values may be nested. Service Bus needs 4.
pub const MAX_DEPTH: u8 = 32;

/// Maximum number of elements of an array of null or of empty lists, whose elements take no bytes.
const MAX_EMPTY_ELEMENTS: usize = 4096;

/// Why bytes cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end inside a value.
    #[error("the bytes end inside a value")]
    UnexpectedEnd,
    /// There is no type with this code.
    #[error("{0:#04x} is the code of no AMQP type")]
    UnknownType(u8),
    /// Values nested deeper than [`MAX_DEPTH`].
    #[error("values are nested deeper than {MAX_DEPTH}")]
    TooDeep,
    /// Text that is not UTF-8.
    #[error("text is not UTF-8")]
    NotUtf8,
    /// A count or a length that exceeds the bytes.
    #[error("a count or a length does not fit the bytes")]
    BadLength,
    /// A value of another type than expected.
    #[error("expected {0}")]
    Expected(&'static str),
}

/// Reads values from the front of a byte slice.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the front of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Returns the bytes that are not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns true if everything is read.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reads the next value.
    pub fn value(&mut self) -> Result<Value, DecodeError> {
        self.value_at(0)
    }

    /// Skips the next value; checks it only as far as its own length says.
    pub fn skip(&mut self) -> Result<(), DecodeError> {
        let mut descriptors = 0;
        loop {
            match self.u8()? {
                0x00 if descriptors < MAX_DEPTH => {
                    descriptors += 1;
                    let descriptor = self.u8()?;
                    self.skip_body(descriptor)?;
                }
                0x00 => return Err(DecodeError::TooDeep),
                code => return self.skip_body(code),
            }
        }
    }

    /// Returns the numeric descriptor of the next value, a described one; `None` if its descriptor is symbolic.
    pub fn descriptor(&mut self) -> Result<Option<u64>, DecodeError> {
        if self.u8()? != 0x00 {
            return Err(DecodeError::Expected("a described value"));
        }
        match self.value_at(1)? {
            Value::Ulong(code) => Ok(Some(code)),
            _ => Ok(None),
        }
    }

    fn skip_body(&mut self, code: u8) -> Result<(), DecodeError> {
        let length = match code >> 4 {
            0x4 => 0,
            0x5 => 1,
            0x6 => 2,
            0x7 => 4,
            0x8 => 8,
            0x9 => 16,
            0xa | 0xc | 0xe => usize::from(self.u8()?),
            0xb | 0xd | 0xf => self.length32()?,
            _ => return Err(DecodeError::UnknownType(code)),
        };
        self.take(length).map(|_| ())
    }

    pub(super) fn value_at(&mut self, depth: u8) -> Result<Value, DecodeError> {
        match self.u8()? {
            0x00 if depth >= MAX_DEPTH => Err(DecodeError::TooDeep),
            0x00 => {
                let descriptor = self.value_at(depth + 1)?;
                let value = self.value_at(depth + 1)?;
                Ok(Value::described(descriptor, value))
            }
            code => self.body(code, depth),
        }
    }

    /// Reads the bytes after a constructor. The descriptor of a described array element comes before all elements.
    fn body(&mut self, code: u8, depth: u8) -> Result<Value, DecodeError> {
        Ok(match code {
            0x40 => Value::Null,
            0x41 => Value::Bool(true),
            0x42 => Value::Bool(false),
            0x43 => Value::Uint(0),
            0x44 => Value::Ulong(0),
            0x45 => Value::List(Vec::new()),
            0x50 => Value::Ubyte(self.u8()?),
            0x51 => Value::Byte(i8::from_be_bytes(self.array()?)),
            0x52 => Value::Uint(u32::from(self.u8()?)),
            0x53 => Value::Ulong(u64::from(self.u8()?)),
            0x54 => Value::Int(i32::from(i8::from_be_bytes(self.array()?))),
            0x55 => Value::Long(i64::from(i8::from_be_bytes(self.array()?))),
            0x56 => Value::Bool(self.u8()? != 0),
            0x60 => Value::Ushort(u16::from_be_bytes(self.array()?)),
            0x61 => Value::Short(i16::from_be_bytes(self.array()?)),
            0x70 => Value::Uint(u32::from_be_bytes(self.array()?)),
            0x71 => Value::Int(i32::from_be_bytes(self.array()?)),
            0x72 => Value::Float(f32::from_be_bytes(self.array()?)),
            0x73 => {
                let code = u32::from_be_bytes(self.array()?);
                Value::Char(char::from_u32(code).ok_or(DecodeError::Expected("a Unicode character"))?)
            }
            0x74 => Value::Decimal32(self.array()?),
            0x80 => Value::Ulong(u64::from_be_bytes(self.array()?)),
            0x81 => Value::Long(i64::from_be_bytes(self.array()?)),
            0x82 => Value::Double(f64::from_be_bytes(self.array()?)),
            0x83 => Value::Timestamp(i64::from_be_bytes(self.array()?)),
            0x84 => Value::Decimal64(self.array()?),
            0x94 => Value::Decimal128(self.array()?),
            0x98 => Value::Uuid(Uuid::from_bytes(self.array()?)),
            0xa0 => Value::Binary(Bytes::copy_from_slice(self.short()?)),
            0xb0 => Value::Binary(Bytes::copy_from_slice(self.long()?)),
            0xa1 => Value::String(text(self.short()?)?),
            0xb1 => Value::String(text(self.long()?)?),
            0xa3 => Value::Symbol(text(self.short()?)?),
            0xb3 => Value::Symbol(text(self.long()?)?),
            0xc0 | 0xd0 | 0xc1 | 0xd1 | 0xe0 | 0xf0 if depth >= MAX_DEPTH => {
                return Err(DecodeError::TooDeep);
            }
            0xc0 | 0xd0 => Value::List(self.list(code, depth + 1)?),
            0xc1 | 0xd1 => Value::Map(self.map(code, depth + 1)?),
            0xe0 | 0xf0 => Value::Array(self.items(code, depth + 1)?),
            _ => return Err(DecodeError::UnknownType(code)),
        })
    }

    fn list(&mut self, code: u8, depth: u8) -> Result<Vec<Value>, DecodeError> {
        let (count, body) = self.compound(code)?;
        let mut reader = Reader::new(body);
        (0..count).map(|_| reader.value_at(depth)).collect()
    }

    fn map(&mut self, code: u8, depth: u8) -> Result<Map, DecodeError> {
        let (count, body) = self.compound(code)?;
        if count % 2 != 0 {
            return Err(DecodeError::BadLength);
        }
        let mut reader = Reader::new(body);
        let pairs = (0..count / 2).map(|_| Ok((reader.value_at(depth)?, reader.value_at(depth)?)));
        Ok(Map(pairs.collect::<Result<_, DecodeError>>()?))
    }

    fn items(&mut self, code: u8, depth: u8) -> Result<Vec<Value>, DecodeError> {
        let body = if code == 0xe0 { self.short()? } else { self.long()? };
        let mut reader = Reader::new(body);
        let count = if code == 0xe0 { usize::from(reader.u8()?) } else { reader.length32()? };
        let descriptor = match reader.bytes.first() {
            Some(0x00) => {
                reader.u8()?;
                Some(reader.value_at(depth)?)
            }
            _ => None,
        };
        let element = reader.u8()?;
        let takes_no_bytes = element >> 4 == 0x4;
        if count > if takes_no_bytes { MAX_EMPTY_ELEMENTS } else { reader.bytes.len() } {
            return Err(DecodeError::BadLength);
        }
        (0..count)
            .map(|_| {
                let value = reader.body(element, depth)?;
                Ok(match &descriptor {
                    Some(descriptor) => Value::described(descriptor.clone(), value),
                    None => value,
                })
            })
            .collect()
    }

    /// Reads the count and the bytes of a list or a map. Every element takes at least one byte.
    pub(super) fn compound(&mut self, code: u8) -> Result<(usize, &'a [u8]), DecodeError> {
        let short = code >> 4 == 0xc;
        let mut reader = Reader::new(if short { self.short()? } else { self.long()? });
        let count = if short { usize::from(reader.u8()?) } else { reader.length32()? };
        if count > reader.bytes.len() {
            return Err(DecodeError::BadLength);
        }
        Ok((count, reader.bytes))
    }

    fn short(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = usize::from(self.u8()?);
        self.take(length)
    }

    fn long(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.length32()?;
        self.take(length)
    }

    fn length32(&mut self) -> Result<usize, DecodeError> {
        usize::try_from(u32::from_be_bytes(self.array()?)).map_err(|_| DecodeError::BadLength)
    }

    pub(super) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array().map(|[byte]| byte)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(DecodeError::UnexpectedEnd)?;
        self.bytes = rest;
        Ok(*taken)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(DecodeError::UnexpectedEnd)?;
        self.bytes = rest;
        Ok(taken)
    }
}

fn text(bytes: &[u8]) -> Result<String, DecodeError> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| DecodeError::NotUtf8)
}
