//! The encoding of AMQP 0-9-1, written for this test alone: an error in the emulator's codec must not be hidden by using that
//! codec on both sides.

use anyhow::{Context as _, Result, bail};

/// A value in a table, with its type on the wire.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// `t`
    Bool(bool),
    /// `I`
    Int(i32),
    /// `l`
    Long(i64),
    /// `S`
    Text(String),
    /// `T`, seconds since 1970
    Time(u64),
    /// `A`
    Array(Vec<Value>),
    /// `F`
    Table(Table),
    /// `V`
    Void,
    /// Any other type, as its letter and bytes: nothing here sends one.
    Other(u8, Vec<u8>),
}

/// A table, in the order of the wire.
pub(crate) type Table = Vec<(String, Value)>;

/// A text value.
pub(crate) fn text(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}

/// Writes the arguments of a method.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn octet(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub(crate) fn short(&mut self, value: u16) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn long(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn long_long(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn short_text(&mut self, value: &str) -> &mut Self {
        let length = u8::try_from(value.len()).expect("names in scenarios are short");
        self.0.push(length);
        self.0.extend(value.as_bytes());
        self
    }

    pub(crate) fn long_text(&mut self, value: &[u8]) -> &mut Self {
        self.long(u32::try_from(value.len()).expect("texts in scenarios are short"));
        self.0.extend(value);
        self
    }

    /// Up to eight bits, the first in the lowest place.
    pub(crate) fn bits(&mut self, bits: &[bool]) -> &mut Self {
        self.octet(bits.iter().rev().fold(0, |packed, &bit| (packed << 1) | u8::from(bit)))
    }

    pub(crate) fn table(&mut self, table: &Table) -> &mut Self {
        let mut inner = Writer::default();
        for (name, value) in table {
            inner.short_text(name).value(value);
        }
        self.long_text(&inner.0)
    }

    fn value(&mut self, value: &Value) -> &mut Self {
        match value {
            Value::Bool(value) => self.octet(b't').octet(u8::from(*value)),
            Value::Int(value) => self.octet(b'I').long(value.cast_unsigned()),
            Value::Long(value) => self.octet(b'l').long_long(value.cast_unsigned()),
            Value::Text(value) => self.octet(b'S').long_text(value.as_bytes()),
            Value::Time(value) => self.octet(b'T').long_long(*value),
            Value::Array(values) => {
                let mut inner = Writer::default();
                for value in values {
                    inner.value(value);
                }
                self.octet(b'A').long_text(&inner.0)
            }
            Value::Table(table) => self.octet(b'F').table(table),
            Value::Void => self.octet(b'V'),
            Value::Other(letter, bytes) => {
                self.octet(*letter).0.extend(bytes);
                self
            }
        }
    }
}

/// Reads the arguments of a method.
#[derive(Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).context("the broker sent too few bytes")?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn octet(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn short(&mut self) -> Result<u16> {
        Ok(u16::from_be_bytes(self.take(2)?.try_into()?))
    }

    pub(crate) fn long(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into()?))
    }

    pub(crate) fn long_long(&mut self) -> Result<u64> {
        Ok(u64::from_be_bytes(self.take(8)?.try_into()?))
    }

    pub(crate) fn short_text(&mut self) -> Result<String> {
        let length = self.octet()?;
        Ok(String::from_utf8_lossy(self.take(length.into())?).into_owned())
    }

    fn long_bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.long()?;
        self.take(length.try_into()?)
    }

    pub(crate) fn table(&mut self) -> Result<Table> {
        let mut inner = Reader(self.long_bytes()?);
        let mut table = Vec::new();
        while !inner.0.is_empty() {
            table.push((inner.short_text()?, inner.value()?));
        }
        Ok(table)
    }

    fn value(&mut self) -> Result<Value> {
        let letter = self.octet()?;
        Ok(match letter {
            b't' => Value::Bool(self.octet()? != 0),
            b'I' => Value::Int(self.long()?.cast_signed()),
            b'l' => Value::Long(self.long_long()?.cast_signed()),
            b'S' => Value::Text(String::from_utf8_lossy(self.long_bytes()?).into_owned()),
            b'T' => Value::Time(self.long_long()?),
            b'A' => {
                let mut inner = Reader(self.long_bytes()?);
                let mut values = Vec::new();
                while !inner.0.is_empty() {
                    values.push(inner.value()?);
                }
                Value::Array(values)
            }
            b'F' => Value::Table(self.table()?),
            b'V' => Value::Void,
            b'b' | b'B' => Value::Other(letter, self.take(1)?.to_vec()),
            b's' | b'u' => Value::Other(letter, self.take(2)?.to_vec()),
            b'i' | b'f' => Value::Other(letter, self.take(4)?.to_vec()),
            b'L' | b'd' => Value::Other(letter, self.take(8)?.to_vec()),
            b'D' => Value::Other(letter, self.take(5)?.to_vec()),
            b'x' => {
                let bytes = self.long_bytes()?;
                Value::Other(letter, Writer::default().long_text(bytes).0.clone())
            }
            other => bail!("the broker sent a value of the unknown type {:?}", char::from(other)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let table = vec![
            ("long".to_owned(), Value::Long(-3)),
            (
                "array".to_owned(),
                Value::Array(vec![text("a"), Value::Table(vec![("t".to_owned(), Value::Bool(true))])]),
            ),
            ("time".to_owned(), Value::Time(7)),
            ("void".to_owned(), Value::Void),
            ("float".to_owned(), Value::Other(b'd', vec![0; 8])),
            ("bytes".to_owned(), Value::Other(b'x', vec![0, 0, 0, 1, 7])),
        ];
        let mut writer = Writer::default();
        writer.table(&table);
        assert_eq!(Reader(&writer.0).table().unwrap(), table);
    }

    #[test]
    fn the_first_bit_is_the_lowest() {
        assert_eq!(Writer::default().bits(&[true, false, true]).0, [0b101]);
    }
}
