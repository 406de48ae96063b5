use bytes::Bytes;

use super::{DecodeError, Map, Reader, Value};

/// The fields of a performative or a section, in their order. Fields that are left out at the end are null.
#[derive(Debug)]
pub struct Fields<'a> {
    left: usize,
    reader: Reader<'a>,
}

impl<'a> Fields<'a> {
    /// Reads this many fields from the front of the reader.
    fn new(count: usize, reader: Reader<'a>) -> Self {
        Self { left: count, reader }
    }

    /// Reads the next field.
    pub fn value(&mut self) -> Result<Value, DecodeError> {
        if self.left == 0 {
            return Ok(Value::Null);
        }
        self.left -= 1;
        self.reader.value_at(2)
    }

    /// Reads the next field, a number up to 2^32 - 1.
    pub fn u32(&mut self) -> Result<Option<u32>, DecodeError> {
        match self.value()? {
            Value::Null => Ok(None),
            value => value.as_u32().map(Some).ok_or(DecodeError::Expected("an unsigned number")),
        }
    }

    /// Reads the next field, a boolean.
    pub fn bool(&mut self) -> Result<Option<bool>, DecodeError> {
        match self.value()? {
            Value::Null => Ok(None),
            value => value.as_bool().map(Some).ok_or(DecodeError::Expected("a boolean")),
        }
    }

    /// Reads the next field, a string or a symbol.
    pub fn text(&mut self) -> Result<Option<String>, DecodeError> {
        match self.value()? {
            Value::Null => Ok(None),
            Value::String(text) | Value::Symbol(text) => Ok(Some(text)),
            _ => Err(DecodeError::Expected("text")),
        }
    }

    /// Reads the next field, bytes.
    pub fn binary(&mut self) -> Result<Option<Bytes>, DecodeError> {
        match self.value()? {
            Value::Null => Ok(None),
            Value::Binary(bytes) => Ok(Some(bytes)),
            _ => Err(DecodeError::Expected("binary")),
        }
    }

    /// Reads the next field, a map; null means an empty one.
    pub fn map(&mut self) -> Result<Map, DecodeError> {
        match self.value()? {
            Value::Null => Ok(Map::new()),
            Value::Map(map) => Ok(map),
            _ => Err(DecodeError::Expected("a map")),
        }
    }
}

impl<'a> Reader<'a> {
    /// Returns the fields of the next list.
    pub fn fields(&mut self) -> Result<Fields<'a>, DecodeError> {
        let code = self.u8()?;
        let (count, body) = match code {
            0x45 => (0, &[][..]),
            0xc0 | 0xd0 => self.compound(code)?,
            _ => return Err(DecodeError::Expected("a list")),
        };
        Ok(Fields::new(count, Reader::new(body)))
    }
}
