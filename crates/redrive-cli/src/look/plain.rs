//! Headers and properties as plain JSON: for programs of jq, and for people. An export keeps their types instead. Pure.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use redrive::{Properties, Timestamp, Value, redact};
use serde_json::{Map, Value as Json, json};

/// Returns a header without its type: a number is a number whatever its width, bytes are base64, times RFC 3339.
pub(crate) fn value(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(flag) => json!(flag),
        Value::F32(number) => float(&number.to_string()),
        Value::F64(number) => float(&number.to_string()),
        Value::Decimal { scale, value } => float(&format!("{value}e-{scale}")),
        Value::Char(c) => json!(c),
        Value::Timestamp(at) => time(*at),
        Value::Uuid(bytes) => {
            let hex = format!("{:032x}", u128::from_be_bytes(*bytes));
            json!([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
        }
        Value::String(text) => json!(text),
        Value::RawString(bytes) | Value::Bytes(bytes) => json!(BASE64.encode(bytes)),
        Value::List(values) => values.iter().map(self::value).collect(),
        Value::Table(table) => table
            .iter()
            .map(|(name, value)| (name.to_owned(), self::value(value)))
            .collect::<Map<_, _>>()
            .into(),
        Value::U64(number) => json!(number),
        other => other.as_integer().map_or(Json::Null, |number| json!(number)),
    }
}

/// Returns the number of this text. JSON has no infinities and no NaN: these stay texts.
fn float(text: &str) -> Json {
    let number = text.parse().ok().and_then(serde_json::Number::from_f64);
    number.map_or_else(|| json!(text), Json::Number)
}

/// Returns a time; milliseconds since 1970 where RFC 3339 has no form for it.
fn time(at: Timestamp) -> Json {
    let latest = UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    match at.to_system_time().filter(|time| (UNIX_EPOCH..=latest).contains(time)) {
        Some(time) => json!(rfc3339(time)),
        None => json!(at.unix_millis()),
    }
}

fn rfc3339(time: SystemTime) -> String {
    let is_whole = time.duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos() == 0;
    match is_whole {
        true => humantime::format_rfc3339_seconds(time).to_string(),
        false => humantime::format_rfc3339_millis(time).to_string(),
    }
}

/// Returns the properties that are set, under the names of an export.
pub(crate) fn properties(properties: &Properties) -> impl Iterator<Item = (String, Json)> {
    let texts = properties.texts().filter_map(|(name, text)| Some((name.replace('-', "_"), json!(text?))));
    let others = [
        ("priority", properties.priority.map(|priority| json!(priority))),
        ("timestamp", properties.timestamp.map(time)),
        ("expiration", properties.expiration.map(|wait| json!(seconds(wait)))),
        ("persistent", properties.persistent.map(|flag| json!(flag))),
    ];
    texts.chain(others.into_iter().filter_map(|(name, json)| Some((name.to_owned(), json?))))
}

/// Returns seconds with the decimals that are needed, as an export has them: `1.5s`.
fn seconds(wait: Duration) -> String {
    let text = format!("{}.{:09}", wait.as_secs(), wait.subsec_nanos());
    format!("{}s", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Returns a value for a person. Secrets are masked as in the difference of an edit, which begins a line so: `header authorization`.
pub(crate) fn masked(part: &str, json: &Json) -> String {
    let begins = format!("{part}: ");
    let line = redact(&format!("{begins}{json}"));
    let Some(shown) = line.strip_prefix(&begins) else { return "***".to_owned() };
    match serde_json::from_str(shown) {
        Ok(Json::String(text)) => text,
        _ => shown.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use redrive::ops::ExportedEntry;
    use redrive::{Bytes, EntryHandle, Headers, Message, Shelf, Shelved};

    use super::*;

    #[test]
    fn a_header_of_each_type_is_plain_json() {
        let millis = Timestamp::from_unix_millis;
        for (header, expected) in [
            (Value::Null, json!(null)),
            (Value::Bool(true), json!(true)),
            (Value::I8(-1), json!(-1)),
            (Value::U32(7), json!(7)),
            (Value::U64(u64::MAX), json!(u64::MAX)),
            (Value::F32(0.1), json!(0.1)),
            (Value::F64(f64::NAN), json!("NaN")),
            (Value::Decimal { scale: 2, value: 150 }, json!(1.5)),
            (Value::Char('ä'), json!("ä")),
            (Value::Timestamp(millis(1_800_000_000_000)), json!("2027-01-15T08:00:00Z")),
            (Value::Timestamp(millis(1_800_000_000_500)), json!("2027-01-15T08:00:00.500Z")),
            (Value::Timestamp(millis(-1)), json!(-1)),
            (Value::Uuid([0xab; 16]), json!("abababab-abab-abab-abab-abababababab")),
            (Value::from("text"), json!("text")),
            (Value::Bytes(Bytes::from_static(&[0, 255])), json!("AP8=")),
            (Value::RawString(Bytes::from_static(&[255])), json!("/w==")),
            (Value::List(vec![Value::I32(1), Value::from("a")]), json!([1, "a"])),
            (Value::Table(Headers::from_iter([("n", Value::U8(1))])), json!({ "n": 1 })),
        ] {
            assert_eq!(value(&header), expected, "{header:?}");
        }
    }

    #[test]
    fn properties_have_the_names_of_an_export() {
        let mut message = Message::new("").with_id("1").with_kind("order.placed");
        let set = message.properties_mut();
        for (_, text) in set.texts_mut() {
            text.get_or_insert_with(|| "x".into());
        }
        set.priority = Some(4);
        set.timestamp = Some(Timestamp::from_unix_seconds(1_800_000_000));
        set.expiration = Some(Duration::from_millis(1500));
        set.persistent = Some(true);
        let entry = Shelved::new(EntryHandle::new(Shelf::DeadLetter, "1"), message);
        let line = ExportedEntry::new("orders", &entry, UNIX_EPOCH).to_line().unwrap();
        let mut exported = serde_json::from_str::<Json>(&line).unwrap()["properties"].take();
        exported["timestamp"] = json!("2027-01-15T08:00:00Z");
        let plain: Map<_, _> = properties(entry.message.properties()).collect();
        assert_eq!(Json::Object(plain), exported);
        assert_eq!(exported.as_object().unwrap().len(), 15, "all of them are set");
    }

    #[test]
    fn a_secret_is_masked_as_in_the_difference_of_an_edit() {
        assert_eq!(masked("header authorization", &json!("Bearer abcdef123456")), "Bearer ***");
        assert_eq!(masked("header x-password", &json!("correct horse")), "***");
        assert!(!masked("header auth", &json!({ "api_key": "abcdef123456" })).contains("abcdef"));
        assert_eq!(masked("header tenant", &json!("blue \"1\"")), "blue \"1\"");
        assert_eq!(masked("header n", &json!([1, "a"])), r#"[1,"a"]"#);
    }
}
