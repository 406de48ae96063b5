//! Converts the values of headers to application properties and back. Application properties cannot hold lists or tables: those
//! are written as text with a type prefix.

use fe2o3_amqp_types::primitives::SimpleValue;
use redrive_core::{Headers, Timestamp, Value};
use redrive_transport::text::{typed_text, typed_value};
use serde_amqp::Value as Amqp;

/// The only key of a table that holds an AMQP value of a type that redrive lacks.
const OPAQUE: &str = "x-servicebus-amqp";

/// Converts the value of a header to an application property.
pub(crate) fn to_property(value: &Value) -> SimpleValue {
    match value {
        Value::Null => SimpleValue::Null,
        Value::Bool(n) => SimpleValue::Bool(*n),
        Value::I8(n) => SimpleValue::Byte(*n),
        Value::U8(n) => SimpleValue::Ubyte(*n),
        Value::I16(n) => SimpleValue::Short(*n),
        Value::U16(n) => SimpleValue::Ushort(*n),
        Value::I32(n) => SimpleValue::Int(*n),
        Value::U32(n) => SimpleValue::Uint(*n),
        Value::I64(n) => SimpleValue::Long(*n),
        Value::U64(n) => SimpleValue::Ulong(*n),
        Value::F32(n) => SimpleValue::Float((*n).into()),
        Value::F64(n) => SimpleValue::Double((*n).into()),
        Value::Char(c) => SimpleValue::Char(*c),
        Value::Timestamp(time) => SimpleValue::Timestamp(time.unix_millis().into()),
        Value::Uuid(bytes) => SimpleValue::Uuid((*bytes).into()),
        Value::String(text) => SimpleValue::String(text.clone()),
        Value::Bytes(bytes) => SimpleValue::Binary(bytes.to_vec().into()),
        Value::Table(table) => {
            opaque(table).and_then(|value| value.try_into().ok()).unwrap_or_else(|| as_json(value))
        }
        _ => as_json(value),
    }
}

/// Converts an application property to the value of a header.
pub(crate) fn from_property(value: SimpleValue) -> Value {
    match value {
        SimpleValue::String(text) => match typed_value(&text) {
            Some(value) => value,
            None => Value::String(text),
        },
        other => from_amqp(other.into()),
    }
}

/// Converts an AMQP value to the value of a header, so that [`to_amqp`] returns the same AMQP value.
pub(crate) fn from_amqp_exactly(value: &Amqp) -> Value {
    let read = from_amqp(value.clone());
    if to_amqp(&read) == *value { read } else { as_opaque(value) }
}

/// Converts the value of a header to an AMQP value.
pub(crate) fn to_amqp(value: &Value) -> Amqp {
    match value {
        Value::Table(table) => opaque(table).unwrap_or_else(|| as_json(value).into()),
        value => to_property(value).into(),
    }
}

/// Decodes all of the bytes as one AMQP value. Returns `None` if bytes are left over.
pub(crate) fn decode_all(bytes: &[u8]) -> Option<Amqp> {
    let mut rest = bytes;
    let value = serde_amqp::from_reader(&mut rest).ok()?;
    rest.is_empty().then_some(value)
}

/// Converts an AMQP value to the value of a header.
fn from_amqp(value: Amqp) -> Value {
    match value {
        Amqp::Null => Value::Null,
        Amqp::Bool(n) => Value::Bool(n),
        Amqp::Byte(n) => Value::I8(n),
        Amqp::Ubyte(n) => Value::U8(n),
        Amqp::Short(n) => Value::I16(n),
        Amqp::Ushort(n) => Value::U16(n),
        Amqp::Int(n) => Value::I32(n),
        Amqp::Uint(n) => Value::U32(n),
        Amqp::Long(n) => Value::I64(n),
        Amqp::Ulong(n) => Value::U64(n),
        Amqp::Float(n) => Value::F32(n.into()),
        Amqp::Double(n) => Value::F64(n.into()),
        Amqp::Char(c) => Value::Char(c),
        Amqp::Timestamp(time) => Value::Timestamp(Timestamp::from_unix_millis(time.milliseconds())),
        Amqp::Uuid(uuid) => Value::Uuid(uuid.into_inner()),
        Amqp::Binary(bytes) => Value::Bytes(bytes.into_vec().into()),
        Amqp::String(text) => Value::String(text),
        Amqp::Symbol(symbol) => Value::String(symbol.into_inner()),
        // Decimals, arrays, and the described types of Microsoft (durations, URIs) are kept unchanged.
        other => as_opaque(&other),
    }
}

fn as_opaque(value: &Amqp) -> Value {
    match serde_amqp::to_vec(value) {
        Ok(encoded) => Value::Table(Headers::from_iter([(OPAQUE, Value::Bytes(encoded.into()))])),
        Err(_) => Value::Null,
    }
}

fn opaque(table: &Headers) -> Option<Amqp> {
    match table.get(OPAQUE) {
        Some(Value::Bytes(encoded)) if table.len() == 1 => decode_all(encoded),
        _ => None,
    }
}

fn as_json(value: &Value) -> SimpleValue {
    SimpleValue::String(typed_text(value))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn carried(value: &Value) -> Value {
        from_property(to_property(value))
    }

    #[test]
    fn every_value_comes_back_with_its_type() {
        let table = Headers::from_iter([
            ("list", Value::List(vec![Value::I64(i64::MIN), "two".into(), Value::List(vec![])])),
            ("empty", Value::Table(Headers::new())),
        ]);
        let all = [
            Value::Null,
            Value::Bool(true),
            Value::I8(i8::MIN),
            Value::U8(u8::MAX),
            Value::I16(i16::MIN),
            Value::U16(u16::MAX),
            Value::I32(i32::MIN),
            Value::U32(u32::MAX),
            Value::I64(i64::MIN),
            Value::U64(u64::MAX),
            Value::F32(1.5),
            Value::F64(-0.1),
            Value::Decimal { scale: 2, value: 4711 },
            Value::Char('ä'),
            Value::Timestamp(Timestamp::from_unix_millis(-1)),
            Value::Uuid(*b"0123456789abcdef"),
            "Grüße 👋".into(),
            Value::RawString(Bytes::from_static(b"caf\xe9")),
            Value::Bytes(Bytes::from_static(&[0, 255])),
            Value::Table(table),
        ];
        for value in &all {
            assert_eq!(&carried(value), value);
        }
        let nested = Value::List(all.to_vec());
        assert_eq!(carried(&nested), nested);
    }

    #[test]
    fn numbers_that_json_lacks_survive_in_lists() {
        let list = Value::List(vec![Value::F64(f64::NEG_INFINITY), Value::F32(f32::MIN_POSITIVE)]);
        assert_eq!(carried(&list), list);
    }

    #[test]
    fn what_only_looks_like_ours_stays_text() {
        // The tests of `typed_value` cover which texts look like ours.
        let text = Value::from("redrive+json:{\"u8\":256}");
        assert_eq!(carried(&text), text);
    }

    #[test]
    fn a_value_is_all_of_its_bytes_or_none() {
        assert_eq!(decode_all(b"@"), Some(Amqp::Null));
        assert_eq!(decode_all(b"@lost body text"), None);
        assert_eq!(decode_all(b"@@"), None);
        assert_eq!(decode_all(b""), None);
    }

    #[test]
    fn amqp_values_without_a_type_here_are_carried_on() {
        let decimal = SimpleValue::Decimal64([7; 8].into());
        let value = from_property(decimal.clone());
        assert!(value.as_table().is_some_and(|table| table.contains(OPAQUE)));
        assert_eq!(to_property(&value), decimal);
    }
}
