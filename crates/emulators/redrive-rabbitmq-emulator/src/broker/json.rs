//! Tables as JSON, as RabbitMQ's management shows and exports them.

use bytes::Bytes;
use redrive_amqp091::{ShortStr, Table, Value};
use serde_json::{Map, Number, Value as Json};

/// Converts a table.
pub(crate) fn to_json(table: &Table) -> Json {
    Json::Object(table.iter().map(|(key, value)| (key.to_string(), value_to_json(value))).collect())
}

fn value_to_json(value: &Value) -> Json {
    match value {
        Value::Bool(value) => Json::Bool(*value),
        Value::F32(number) => Number::from_f64(f64::from(*number)).map_or(Json::Null, Json::Number),
        Value::F64(number) => Number::from_f64(*number).map_or(Json::Null, Json::Number),
        Value::Decimal(number) => {
            let value = f64::from(number.value) / 10_f64.powi(i32::from(number.scale));
            Number::from_f64(value).map_or(Json::Null, Json::Number)
        }
        Value::LongStr(bytes) | Value::Binary(bytes) => {
            Json::String(String::from_utf8_lossy(bytes).into_owned())
        }
        Value::Timestamp(seconds) => Json::Number((*seconds).into()),
        Value::U64(number) => Json::Number((*number).into()),
        Value::Array(values) => Json::Array(values.iter().map(value_to_json).collect()),
        Value::Table(table) => to_json(table),
        Value::Void => Json::Null,
        other => other.as_i64().map_or(Json::Null, |number| Json::Number(number.into())),
    }
}

/// Converts an object; keys that are too long are cut.
pub(crate) fn to_table(object: &Map<String, Json>) -> Table {
    object.iter().map(|(key, value)| (ShortStr::truncated(key), json_to_value(value))).collect()
}

fn json_to_value(json: &Json) -> Value {
    match json {
        Json::Null => Value::Void,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match number.as_i64() {
            Some(number) => Value::I64(number),
            None => Value::F64(number.as_f64().unwrap_or_default()),
        },
        Json::String(text) => Value::LongStr(Bytes::copy_from_slice(text.as_bytes())),
        Json::Array(values) => Value::Array(values.iter().map(json_to_value).collect()),
        Json::Object(object) => Value::Table(to_table(object)),
    }
}
