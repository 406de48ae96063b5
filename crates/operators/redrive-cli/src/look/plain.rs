//! Headers and properties as plain JSON: for programs of jq, and for people. An export keeps their types instead. Pure.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use redrive::{Properties, Timestamp, Value, redact, rfc3339};
use serde_json::json;

/// Returns a header without its type, as a text of JSON: a number is a number whatever its width, with the digits that it has, bytes
/// are base64, times RFC 3339.
pub(crate) fn value(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::F32(number) => float(&number.to_string()),
        Value::F64(number) => float(&number.to_string()),
        Value::Decimal { scale, value } => decimal(*scale, *value),
        Value::Char(c) => text(&c.to_string()),
        Value::Timestamp(at) => time(*at),
        Value::Uuid(bytes) => {
            let hex = format!("{:032x}", u128::from_be_bytes(*bytes));
            text(&[&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
        }
        Value::String(string) => text(string),
        Value::RawString(bytes) | Value::Bytes(bytes) => text(&BASE64.encode(bytes)),
        Value::List(values) => {
            format!("[{}]", values.iter().map(self::value).collect::<Vec<_>>().join(","))
        }
        Value::Table(table) => {
            let entries = table.iter().map(|(name, value)| format!("{}:{}", text(name), self::value(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
        }
        other => other.as_integer().map_or_else(|| "null".to_owned(), |number| number.to_string()),
    }
}

fn text(text: &str) -> String {
    json!(text).to_string()
}

/// Returns the number of this text. JSON has no infinities and no NaN: these stay texts.
fn float(number: &str) -> String {
    if number.ends_with(|last: char| last.is_ascii_digit()) { number.to_owned() } else { text(number) }
}

/// Returns a decimal with all its digits: `1.50`.
fn decimal(scale: u8, value: u32) -> String {
    let scale = usize::from(scale);
    let digits = format!("{value:0>width$}", width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    if fraction.is_empty() { whole.to_owned() } else { format!("{whole}.{fraction}") }
}

/// Returns a time; milliseconds since 1970 where RFC 3339 has no form for it.
fn time(at: Timestamp) -> String {
    if let Some(time) = at.to_system_time().and_then(rfc3339) {
        return text(&time);
    }
    let millis = at.unix_millis();
    match Timestamp::from_unix_millis(millis) == at {
        true => millis.to_string(),
        false => format!("{}000", at.unix_seconds()),
    }
}

/// Returns the properties that are set, under the names of an export, each as a text of JSON.
pub(crate) fn properties(properties: &Properties) -> impl Iterator<Item = (String, String)> {
    let texts = properties.texts().filter_map(|(name, value)| Some((name.replace('-', "_"), text(value?))));
    let others = [
        ("priority", properties.priority.map(|priority| priority.to_string())),
        ("timestamp", properties.timestamp.map(time)),
        ("expiration", properties.expiration.map(|wait| text(&seconds(wait)))),
        ("persistent", properties.persistent.map(|flag| flag.to_string())),
    ];
    texts.chain(others.into_iter().filter_map(|(name, json)| Some((name.to_owned(), json?))))
}

/// Returns seconds with the decimals that are needed, as an export has them: `1.5s`.
fn seconds(wait: Duration) -> String {
    let text = format!("{}.{:09}", wait.as_secs(), wait.subsec_nanos());
    format!("{}s", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Returns a value for a person. Secrets are masked as in the difference of an edit, which begins a line so: `header authorization`.
pub(crate) fn masked(part: &str, json: &str) -> String {
    let begins = format!("{part}: ");
    let line = redact(&format!("{begins}{json}"));
    let Some(shown) = line.strip_prefix(&begins) else { return "***".to_owned() };
    serde_json::from_str::<String>(shown).unwrap_or_else(|_| shown.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use redrive::ops::ExportedEntry;
    use redrive::shelves::{EntryHandle, Shelved};
    use redrive::{Bytes, Headers, Message, Shelf};
    use serde_json::Value as Json;

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
            assert_eq!(value(&header), expected.to_string(), "{header:?}");
        }
        for (header, expected) in [
            (Value::Decimal { scale: 2, value: 150 }, "1.50"),
            (Value::Decimal { scale: 0, value: 7 }, "7"),
            (Value::Decimal { scale: 3, value: 7 }, "0.007"),
            (Value::Timestamp(Timestamp::from_unix_seconds(u64::MAX)), "18446744073709551615000"),
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
        let plain = properties(entry.message.properties());
        let plain: Json =
            plain.map(|(name, json)| (name, serde_json::from_str::<Json>(&json).unwrap())).collect();
        assert_eq!(plain, exported);
        assert_eq!(exported.as_object().unwrap().len(), 15, "all of them are set");
    }

    #[test]
    fn a_secret_is_masked_as_in_the_difference_of_an_edit() {
        assert_eq!(masked("header authorization", "\"Bearer abcdef123456\""), "Bearer ***");
        assert_eq!(masked("header x-password", "\"correct horse\""), "***");
        assert!(!masked("header auth", r#"{"api_key":"abcdef123456"}"#).contains("abcdef"));
        assert_eq!(masked("header tenant", r#""blue \"1\"""#), "blue \"1\"");
        assert_eq!(masked("header n", r#"[1,"a"]"#), r#"[1,"a"]"#);
    }
}
