//! Header values in JSON, without loss of their types.
//!
//! Null, booleans, 64-bit signed integers, texts, arrays and tables are written as JSON has them. Any other type is an object with
//! one key, its tag: `{"$u8":7}`. A table that would look like that is `{"$table":{…}}`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use redrive_core::{Bytes, Headers, Timestamp, Value};
use serde_json::{Map, Value as Json, json};

/// Maximum depth of JSON in a value. The parser refuses documents that are deeper than 128. Transports read values of at most 64
/// levels; other levels are left for tags and for the line itself.
const DEEPEST: usize = 100;

/// A header value cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnwritableValue {
    /// Its tables and arrays are nested too deeply.
    #[error("the header `{0}` is nested too deeply to be written")]
    TooDeep(String),
    /// It has a type that this version does not know.
    #[error("the header `{0}` has a type that this version of redrive-ops cannot write")]
    UnknownType(String),
}

/// Why a value cannot be written; the caller knows the name of the header.
enum Why {
    TooDeep,
    UnknownType,
}

/// Writes headers as a JSON object.
pub(crate) fn headers_to_json(headers: &Headers) -> Result<Map<String, Json>, UnwritableValue> {
    let entry = |(name, value): (&str, &Value)| match to_json(value, DEEPEST) {
        Ok(json) => Ok((name.to_owned(), json)),
        Err(Why::TooDeep) => Err(UnwritableValue::TooDeep(name.to_owned())),
        Err(Why::UnknownType) => Err(UnwritableValue::UnknownType(name.to_owned())),
    };
    headers.iter().map(entry).collect()
}

/// Reads headers from a JSON object. The error names the header.
pub(crate) fn headers_from_json(map: Map<String, Json>) -> Result<Headers, String> {
    let entry = |(name, json): (String, Json)| match from_json(json) {
        Ok(value) => Ok((name, value)),
        Err(error) => Err(format!("header `{name}`: {error}")),
    };
    map.into_iter().map(entry).collect::<Result<Headers, _>>()
}

fn to_json(value: &Value, levels: usize) -> Result<Json, Why> {
    let inside = || levels.checked_sub(1).ok_or(Why::TooDeep);
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(flag) => Json::Bool(*flag),
        Value::I64(n) => json!(n),
        Value::String(text) => Json::String(text.clone()),
        Value::List(items) => {
            let levels = inside()?;
            Json::Array(items.iter().map(|item| to_json(item, levels)).collect::<Result<_, _>>()?)
        }
        Value::Table(table) => table_to_json(table, inside()?)?,
        Value::I8(n) => json!({ "$i8": n }),
        Value::U8(n) => json!({ "$u8": n }),
        Value::I16(n) => json!({ "$i16": n }),
        Value::U16(n) => json!({ "$u16": n }),
        Value::I32(n) => json!({ "$i32": n }),
        Value::U32(n) => json!({ "$u32": n }),
        Value::U64(n) => json!({ "$u64": n }),
        // As texts: JSON has no infinities, and its readers round.
        Value::F32(n) if n.is_nan() => json!({ "$f32": format!("{:#x}", n.to_bits()) }),
        Value::F64(n) if n.is_nan() => json!({ "$f64": format!("{:#x}", n.to_bits()) }),
        Value::F32(n) => json!({ "$f32": format!("{n:?}") }),
        Value::F64(n) => json!({ "$f64": format!("{n:?}") }),
        Value::Decimal { scale, value } => json!({ "$decimal": { "scale": scale, "value": value } }),
        Value::Char(c) => json!({ "$char": c }),
        Value::Timestamp(time) => timestamp_to_json(*time),
        Value::Uuid(bytes) => json!({ "$uuid": format!("{:032x}", u128::from_be_bytes(*bytes)) }),
        Value::RawString(bytes) => json!({ "$raw_string": BASE64.encode(bytes) }),
        Value::Bytes(bytes) => json!({ "$bytes": BASE64.encode(bytes) }),
        _ => return Err(Why::UnknownType),
    })
}

fn table_to_json(table: &Headers, levels: usize) -> Result<Json, Why> {
    let looks_tagged = table.len() == 1 && table.iter().any(|(name, _)| name.starts_with('$'));
    let levels = if looks_tagged { levels.checked_sub(1).ok_or(Why::TooDeep)? } else { levels };
    let entry = |(name, value): (&str, &Value)| Ok((name.to_owned(), to_json(value, levels)?));
    let map = Json::Object(table.iter().map(entry).collect::<Result<_, _>>()?);
    Ok(if looks_tagged { json!({ "$table": map }) } else { map })
}

/// AMQP 0-9-1 counts seconds and AMQP 1.0 milliseconds: each reaches times that the other does not.
pub(super) fn timestamp_to_json(time: Timestamp) -> Json {
    let millis = time.unix_millis();
    match Timestamp::from_unix_millis(millis) == time {
        true => json!({ "$timestamp": millis }),
        false => json!({ "$timestamp_seconds": time.unix_seconds() }),
    }
}

pub(super) fn from_json(json: Json) -> Result<Value, String> {
    Ok(match json {
        Json::Null => Value::Null,
        Json::Bool(flag) => Value::Bool(flag),
        Json::Number(n) => Value::I64(n.as_i64().ok_or_else(|| {
            format!("`{n}` is no 64-bit signed integer: write {{\"$f64\":\"{n}\"}} or {{\"$u64\":{n}}}")
        })?),
        Json::String(text) => Value::String(text),
        Json::Array(items) => Value::List(items.into_iter().map(from_json).collect::<Result<_, _>>()?),
        Json::Object(map) => match tag(&map) {
            Some(tag) => tagged(&tag, map.into_iter().next().map(|(_, json)| json).unwrap_or_default())?,
            None => Value::Table(table(map)?),
        },
    })
}

fn tag(map: &Map<String, Json>) -> Option<String> {
    let only = map.keys().next().filter(|_| map.len() == 1)?;
    only.strip_prefix('$').map(str::to_owned)
}

fn table(map: Map<String, Json>) -> Result<Headers, String> {
    map.into_iter().map(|(name, json)| Ok((name, from_json(json)?))).collect::<Result<Headers, String>>()
}

fn tagged(tag: &str, json: Json) -> Result<Value, String> {
    fn read<T: serde::de::DeserializeOwned>(tag: &str, json: Json) -> Result<T, String> {
        serde_json::from_value(json).map_err(|error| format!("the value of `${tag}`: {error}"))
    }
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Decimal {
        scale: u8,
        value: u32,
    }
    let bytes = |json| -> Result<Bytes, String> {
        let text: String = read(tag, json)?;
        BASE64.decode(text).map(Bytes::from).map_err(|error| format!("the value of `${tag}`: {error}"))
    };
    Ok(match tag {
        "i8" => Value::I8(read(tag, json)?),
        "u8" => Value::U8(read(tag, json)?),
        "i16" => Value::I16(read(tag, json)?),
        "u16" => Value::U16(read(tag, json)?),
        "i32" => Value::I32(read(tag, json)?),
        "u32" => Value::U32(read(tag, json)?),
        "u64" => Value::U64(read(tag, json)?),
        "f32" => {
            let text: String = read(tag, json)?;
            let bits = text.strip_prefix("0x").map(|bits| u32::from_str_radix(bits, 16).map(f32::from_bits));
            let number = bits.map_or_else(|| text.parse().ok(), Result::ok);
            Value::F32(number.ok_or_else(|| format!("`{text}` is no number"))?)
        }
        "f64" => {
            let text: String = read(tag, json)?;
            let bits = text.strip_prefix("0x").map(|bits| u64::from_str_radix(bits, 16).map(f64::from_bits));
            let number = bits.map_or_else(|| text.parse().ok(), Result::ok);
            Value::F64(number.ok_or_else(|| format!("`{text}` is no number"))?)
        }
        "decimal" => {
            let Decimal { scale, value } = read(tag, json)?;
            Value::Decimal { scale, value }
        }
        "char" => Value::Char(read(tag, json)?),
        "timestamp" | "timestamp_seconds" => Value::Timestamp(timestamp(tag, &json)?),
        "uuid" => {
            let text: String = read(tag, json)?;
            let number = u128::from_str_radix(&text, 16).ok().filter(|_| text.len() == 32);
            let number = number.ok_or_else(|| format!("`{text}` is no UUID of 32 hexadecimal digits"))?;
            Value::Uuid(number.to_be_bytes())
        }
        "raw_string" => Value::RawString(bytes(json)?),
        "bytes" => Value::Bytes(bytes(json)?),
        "table" => match json {
            Json::Object(map) => Value::Table(table(map)?),
            _ => return Err("the value of `$table` is no object".to_owned()),
        },
        _ => return Err(format!("`${tag}` is no type of a header")),
    })
}

fn timestamp(tag: &str, json: &Json) -> Result<Timestamp, String> {
    let time = match tag {
        "timestamp" => json.as_i64().map(Timestamp::from_unix_millis),
        _ => json.as_u64().map(Timestamp::from_unix_seconds),
    };
    time.ok_or_else(|| format!("the value of `${tag}` is no integer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_json_has_are_written_as_they_are() {
        let headers = Headers::from_iter([
            ("tenant", Value::from("blue")),
            ("count", 3_i64.into()),
            ("deaths", Value::List(vec![Headers::from_iter([("queue", "orders")]).into()])),
            ("priority", 3_u8.into()),
            ("half", 0.5_f64.into()),
        ]);
        let json = headers_to_json(&headers).unwrap();
        let expected = json!({
            "tenant": "blue", "count": 3, "deaths": [{ "queue": "orders" }], "priority": { "$u8": 3 }, "half": { "$f64": "0.5" }
        });
        assert_eq!(Json::Object(json.clone()), expected);
        assert_eq!(headers_from_json(json), Ok(headers));
    }

    #[test]
    fn a_nan_keeps_its_bits() {
        let (half, whole) = (f32::from_bits(0x7fa0_0001), f64::from_bits(0xfff4_0000_0000_0001));
        let headers = Headers::from_iter([("f32", Value::F32(half)), ("f64", Value::F64(whole))]);
        let read = headers_from_json(headers_to_json(&headers).unwrap()).unwrap();
        let Some(Value::F32(read_half)) = read.get("f32") else { panic!("{read:?}") };
        let Some(Value::F64(read_whole)) = read.get("f64") else { panic!("{read:?}") };
        assert_eq!((read_half.to_bits(), read_whole.to_bits()), (half.to_bits(), whole.to_bits()));
    }

    #[test]
    fn what_is_nested_too_deeply_is_refused_and_64_levels_are_not() {
        let nested = |levels| (0..levels).fold(Value::Null, |value, _| Value::List(vec![value]));
        let headers = |levels| Headers::from_iter([("deep", nested(levels))]);
        let json = headers_to_json(&headers(64)).unwrap();
        let text = serde_json::to_string(&json!([[[json]]])).unwrap();
        let _: Json = serde_json::from_str(&text).unwrap();
        assert_eq!(headers_to_json(&headers(500)), Err(UnwritableValue::TooDeep("deep".into())));
    }

    #[test]
    fn what_is_no_value_is_refused_and_named() {
        for (json, said) in [
            (json!({ "h": 1.5 }), "`1.5` is no 64-bit signed integer"),
            (json!({ "h": { "$u8": 256 } }), "`$u8`"),
            (json!({ "h": { "$bytes": "?" } }), "`$bytes`"),
            (json!({ "h": { "$f64": "one" } }), "`one` is no number"),
            (json!({ "h": { "$uuid": "12" } }), "no UUID"),
            (json!({ "h": { "$timestamp": "now" } }), "no integer"),
            (json!({ "h": { "$table": 1 } }), "no object"),
            (json!({ "h": [{ "$other": 1 }] }), "`$other` is no type"),
        ] {
            let Json::Object(map) = json else { unreachable!() };
            let error = headers_from_json(map).unwrap_err();
            assert!(error.contains(said) && error.contains("header `h`"), "{error}");
        }
    }
}
