use bytes::{BufMut, BytesMut};

use super::{Map, Value};

/// Returns the number of bytes that [`encode_value`] writes.
pub fn encoded_len(value: &Value) -> usize {
    let mut buffer = BytesMut::new();
    encode_value(value, &mut buffer);
    buffer.len()
}

/// Writes a value in its shortest form.
pub fn encode_value(value: &Value, to: &mut BytesMut) {
    match value {
        Value::Null => to.put_u8(0x40),
        Value::Bool(true) => to.put_u8(0x41),
        Value::Bool(false) => to.put_u8(0x42),
        Value::Uint(0) => to.put_u8(0x43),
        Value::Ulong(0) => to.put_u8(0x44),
        Value::List(items) if items.is_empty() => to.put_u8(0x45),
        Value::Uint(n) if *n <= 0xff => to.put_slice(&[0x52, *n as u8]),
        Value::Ulong(n) if *n <= 0xff => to.put_slice(&[0x53, *n as u8]),
        Value::Int(n) if i8::try_from(*n).is_ok() => to.put_slice(&[0x54, *n as u8]),
        Value::Long(n) if i8::try_from(*n).is_ok() => to.put_slice(&[0x55, *n as u8]),
        Value::Binary(bytes) => variable(0xa0, bytes, to),
        Value::String(text) => variable(0xa1, text.as_bytes(), to),
        Value::Symbol(text) => variable(0xa3, text.as_bytes(), to),
        Value::List(items) => compound(0xd0, items.len(), to, |to| encode_all(items, to)),
        Value::Map(map) => encode_map(map, to),
        Value::Described(described) => {
            to.put_u8(0x00);
            encode_value(&described.0, to);
            encode_value(&described.1, to);
        }
        value => {
            to.put_u8(fixed_code(value));
            body(value, to);
        }
    }
}

/// Writes a map.
pub(crate) fn encode_map(map: &Map, to: &mut BytesMut) {
    compound(0xd1, map.len() * 2, to, |to| encode_pairs(map, to));
}

/// A borrowed field of a section: a message is written far more often than it is changed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Field<'a> {
    Null,
    Value(&'a Value),
    Binary(&'a [u8]),
    String(&'a str),
    Symbol(&'a str),
    Timestamp(i64),
    Uint(u32),
}

/// Writes a section of fields with a numeric descriptor, without the nulls at its end; writes nothing if all are null.
pub(crate) fn encode_section(descriptor: u64, fields: &[Field<'_>], to: &mut BytesMut) {
    let Some(last) = fields.iter().rposition(|field| !field.is_null()) else { return };
    to.put_u8(0x00);
    encode_value(&Value::Ulong(descriptor), to);
    compound(0xd0, last + 1, to, |to| fields[..=last].iter().for_each(|field| field.encode(to)));
}

impl Field<'_> {
    fn is_null(&self) -> bool {
        matches!(self, Self::Null | Self::Value(Value::Null))
    }

    fn encode(&self, to: &mut BytesMut) {
        match self {
            Self::Null => to.put_u8(0x40),
            Self::Value(value) => encode_value(value, to),
            Self::Binary(bytes) => variable(0xa0, bytes, to),
            Self::String(text) => variable(0xa1, text.as_bytes(), to),
            Self::Symbol(text) => variable(0xa3, text.as_bytes(), to),
            Self::Timestamp(time) => encode_value(&Value::Timestamp(*time), to),
            Self::Uint(number) => encode_value(&Value::Uint(*number), to),
        }
    }
}

/// Writes a list of fields with a numeric descriptor.
pub(crate) fn encode_described_list(descriptor: u64, fields: &[Value], to: &mut BytesMut) {
    encode_padded_list(descriptor, fields, fields.len(), to);
}

/// Writes a list of fields with a numeric descriptor, padded with nulls to `count` fields.
pub(crate) fn encode_padded_list(descriptor: u64, fields: &[Value], count: usize, to: &mut BytesMut) {
    to.put_u8(0x00);
    encode_value(&Value::Ulong(descriptor), to);
    compound(0xd0, count.max(fields.len()), to, |to| {
        encode_all(fields, to);
        (fields.len()..count).for_each(|_| encode_value(&Value::Null, to));
    });
}

fn encode_all(values: &[Value], to: &mut BytesMut) {
    for value in values {
        encode_value(value, to);
    }
}

fn encode_pairs(map: &Map, to: &mut BytesMut) {
    for (key, value) in map.iter() {
        encode_value(key, to);
        encode_value(value, to);
    }
}

fn variable(short: u8, bytes: &[u8], to: &mut BytesMut) {
    match u8::try_from(bytes.len()) {
        Ok(length) => to.put_slice(&[short, length]),
        Err(_) => {
            to.put_u8(short + 0x10);
            to.put_u32(bytes.len() as u32);
        }
    }
    to.put_slice(bytes);
}

/// Writes the long form with its length; then replaces it by the short form if that fits.
fn compound(long: u8, count: usize, to: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let start = to.len();
    to.put_u8(long);
    to.put_u32(0);
    to.put_u32(count as u32);
    write(to);
    let size = to.len() - start - 5;
    if size - 3 <= 0xff && count <= 0xff {
        to[start] = long - 0x10;
        to[start + 1] = (size - 3) as u8;
        to[start + 2] = count as u8;
        to.copy_within(start + 9.., start + 3);
        to.truncate(to.len() - 6);
    } else {
        to[start + 1..start + 5].copy_from_slice(&(size as u32).to_be_bytes());
    }
}

/// Returns the code of the full-width form, for single values without a shorter form and for array elements.
fn fixed_code(value: &Value) -> u8 {
    match value {
        Value::Null => 0x40,
        Value::Bool(_) => 0x56,
        Value::Ubyte(_) => 0x50,
        Value::Byte(_) => 0x51,
        Value::Ushort(_) => 0x60,
        Value::Short(_) => 0x61,
        Value::Uint(_) => 0x70,
        Value::Int(_) => 0x71,
        Value::Float(_) => 0x72,
        Value::Char(_) => 0x73,
        Value::Decimal32(_) => 0x74,
        Value::Ulong(_) => 0x80,
        Value::Long(_) => 0x81,
        Value::Double(_) => 0x82,
        Value::Timestamp(_) => 0x83,
        Value::Decimal64(_) => 0x84,
        Value::Decimal128(_) => 0x94,
        Value::Uuid(_) => 0x98,
        Value::Binary(_) => 0xb0,
        Value::String(_) => 0xb1,
        Value::Symbol(_) => 0xb3,
        Value::List(_) => 0xd0,
        Value::Map(_) => 0xd1,
        Value::Array(_) => 0xf0,
        Value::Described(described) => fixed_code(&described.1),
    }
}

/// Writes the bytes after [`fixed_code`].
fn body(value: &Value, to: &mut BytesMut) {
    match value {
        Value::Null => {}
        Value::Bool(yes) => to.put_u8(u8::from(*yes)),
        Value::Ubyte(n) => to.put_u8(*n),
        Value::Byte(n) => to.put_i8(*n),
        Value::Ushort(n) => to.put_u16(*n),
        Value::Short(n) => to.put_i16(*n),
        Value::Uint(n) => to.put_u32(*n),
        Value::Int(n) => to.put_i32(*n),
        Value::Float(n) => to.put_f32(*n),
        Value::Char(c) => to.put_u32(u32::from(*c)),
        Value::Decimal32(bytes) => to.put_slice(bytes),
        Value::Ulong(n) => to.put_u64(*n),
        Value::Long(n) | Value::Timestamp(n) => to.put_i64(*n),
        Value::Double(n) => to.put_f64(*n),
        Value::Decimal64(bytes) => to.put_slice(bytes),
        Value::Decimal128(bytes) => to.put_slice(bytes),
        Value::Uuid(uuid) => to.put_slice(uuid.as_bytes()),
        Value::Binary(bytes) => long(bytes, to),
        Value::String(text) | Value::Symbol(text) => long(text.as_bytes(), to),
        Value::List(items) => sized(items.len(), to, |to| encode_all(items, to)),
        Value::Map(map) => sized(map.len() * 2, to, |to| encode_pairs(map, to)),
        Value::Array(items) => sized(items.len(), to, |to| elements(items, to)),
        Value::Described(described) => body(&described.1, to),
    }
}

/// Writes one constructor, that of the first element, and then the bytes of every element.
fn elements(items: &[Value], to: &mut BytesMut) {
    let Some(first) = items.first() else {
        to.put_u8(0x40);
        return;
    };
    if let Value::Described(described) = first {
        to.put_u8(0x00);
        encode_value(&described.0, to);
    }
    to.put_u8(fixed_code(first));
    items.iter().for_each(|item| body(item, to));
}

fn long(bytes: &[u8], to: &mut BytesMut) {
    to.put_u32(bytes.len() as u32);
    to.put_slice(bytes);
}

fn sized(count: usize, to: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let start = to.len();
    to.put_u32(0);
    to.put_u32(count as u32);
    write(to);
    let size = (to.len() - start - 4) as u32;
    to[start..start + 4].copy_from_slice(&size.to_be_bytes());
}
