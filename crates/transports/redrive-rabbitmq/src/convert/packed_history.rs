//! The failure history of a copy that waits, packed into one header: what a copy costs, here and in RabbitMQ, is the number of its headers more than
//! their bytes. It is packed where the copy is written, and unpacked where any message is read. redrive packs nothing that it puts
//! onto a shelf.

use redrive_core::{Headers, Value, header_names as names};
use serde_json::Value as Json;
use tracing::warn;

use super::Form;

/// The header with all others, as JSON: their names without the prefix.
const STORY: &str = names::STORY;
/// What people look for on a message that waits stays in headers of its own.
const READABLE: [&str; 3] = [names::ATTEMPT, names::DUE_AT, names::NOT_BEFORE];
/// The key of the version, which comes first.
const VERSION_KEY: &str = "v";
const VERSION: i64 = 1;
/// The longest name that AMQP 0-9-1 carries. A longer one never came from a broker, and no copy could carry it.
const LONGEST_NAME: usize = 255;
/// A story of one failure or two.
const USUAL_BYTES: usize = 1024;

/// The headers of a copy as they are written: those that stay, and the story of the others.
pub(super) struct Packed<'a> {
    kept: Vec<(&'a str, &'a Value)>,
    story: Value,
}

impl Packed<'_> {
    /// Iterates over all headers, ordered by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        let (before, after) = self.kept.split_at(self.kept.partition_point(|(name, _)| *name < STORY));
        before.iter().copied().chain([(STORY, &self.story)]).chain(after.iter().copied())
    }
}

/// Packs the story that is on a copy that waits; `None` if the headers are written as they are.
pub(super) fn packed(headers: &Headers, form: Form) -> Option<Packed<'_>> {
    (form == Form::WaitingCopy).then(|| pack(headers)).flatten()
}

/// A header that JSON cannot say exactly stays: redrive did not write it.
fn pack(headers: &Headers) -> Option<Packed<'_>> {
    // One that could not be unpacked: it would be lost behind a second one.
    if headers.contains(STORY) {
        return None;
    }
    let mut json = Vec::with_capacity(USUAL_BYTES);
    json.extend_from_slice(format!("{{\"{VERSION_KEY}\":{VERSION}").as_bytes());
    let mut plain = 0;
    let mut pack = |name: &str, value: &Value| {
        let Some(key) = name.strip_prefix(names::PREFIX) else { return false };
        if READABLE.contains(&name) || key == VERSION_KEY {
            return false;
        }
        let before = json.len();
        if !write_member(key, value, &mut json) {
            json.truncate(before);
            return false;
        }
        plain += 1 + name.len() + value.encoded_len();
        true
    };
    let kept = headers.iter().filter(|(name, value)| !pack(name, value)).collect();
    json.push(b'}');
    let story = String::from_utf8(json).ok()?;
    // Control characters take six bytes each: what was within its limits must stay there.
    let is_shorter = 1 + STORY.len() + 5 + story.len() <= plain;
    is_shorter.then_some(Packed { kept, story: Value::String(story) })
}

/// Unpacks the story of a message. If it cannot be read, it stays: no handler sees such a message.
pub(crate) fn unpack(headers: &mut Headers) {
    let members = match headers.get(STORY) {
        None => return,
        Some(Value::String(story)) => read(story),
        Some(_) => Err("it is no text".to_owned()),
    };
    match members {
        Ok(members) => {
            headers.remove(STORY);
            for (name, value) in members {
                if !headers.contains(&name) {
                    headers.insert(name, value);
                }
            }
        }
        Err(why) => warn!("the header `{STORY}` of a message cannot be read: {why}"),
    }
}

fn read(story: &str) -> Result<Vec<(String, Value)>, String> {
    let mut members: serde_json::Map<_, _> =
        serde_json::from_str(story).map_err(|error| error.to_string())?;
    match members.remove(VERSION_KEY) {
        Some(version) if version == VERSION => {}
        Some(version) => {
            return Err(format!("its version is {version}, and this program reads version {VERSION}"));
        }
        None => return Err("it has no version".to_owned()),
    }
    let header = |(key, json)| match value_from(json) {
        Some(value) => Ok((name(format!("{}{key}", names::PREFIX)).ok_or("a name is too long")?, value)),
        None => Err(format!("`{key}` is of a kind that no version writes")),
    };
    members.into_iter().map(header).collect()
}

fn name(name: String) -> Option<String> {
    (name.len() <= LONGEST_NAME).then_some(name)
}

fn value_from(json: Json) -> Option<Value> {
    Some(match json {
        Json::String(text) => Value::String(text),
        Json::Number(number) => Value::I64(number.as_i64()?),
        Json::Array(items) => Value::List(items.into_iter().map(value_from).collect::<Option<_>>()?),
        Json::Object(members) => {
            let entry = |(key, json)| Some((name(key)?, value_from(json)?));
            Value::Table(Headers::from_iter(members.into_iter().map(entry).collect::<Option<Vec<_>>>()?))
        }
        Json::Null | Json::Bool(_) => return None,
    })
}

/// Returns false if JSON cannot say the value exactly.
fn write_value(value: &Value, out: &mut Vec<u8>) -> bool {
    match value {
        Value::String(text) => write_text(text, out),
        Value::I64(number) => serde_json::to_writer(out, number).is_ok(),
        Value::List(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                if !write_value(item, out) {
                    return false;
                }
            }
            out.push(b']');
            true
        }
        Value::Table(table) => {
            out.push(b'{');
            for (index, (key, value)) in table.iter().enumerate() {
                let written = match index {
                    0 => write_key(key, out) && write_value(value, out),
                    _ => write_member(key, value, out),
                };
                if !written {
                    return false;
                }
            }
            out.push(b'}');
            true
        }
        _ => false,
    }
}

fn write_member(key: &str, value: &Value, out: &mut Vec<u8>) -> bool {
    out.push(b',');
    write_key(key, out) && write_value(value, out)
}

fn write_key(key: &str, out: &mut Vec<u8>) -> bool {
    let written = write_text(key, out);
    out.push(b':');
    written
}

/// Most texts need no escape: then one look at all bytes costs a fraction of what the library takes for each of them.
fn write_text(text: &str, out: &mut Vec<u8>) -> bool {
    let is_escaped = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    if text.bytes().fold(false, |any, byte| any | is_escaped(byte)) {
        return serde_json::to_writer(out, text).is_ok();
    }
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn copy() -> Headers {
        let failure =
            [("attempt", Value::I64(1)), ("error", "no \"answer\"\n".into()), ("wait-ms", Value::I64(1000))];
        Headers::from_iter([
            (names::ATTEMPT, Value::I64(1)),
            (names::DUE_AT, "2026-11-26T10:00:01.000Z".into()),
            (names::HOP, Value::I64(3)),
            (names::ERROR, "no \"answer\"\nfrom the stock".into()),
            (names::FIRST_FAILED_AT, "2026-11-26T10:00:00.000Z".into()),
            (names::HISTORY, Value::List(vec![Value::Table(Headers::from_iter(failure))])),
            ("tenant", "blue".into()),
        ])
    }

    /// The headers as they arrive.
    fn written(headers: &Headers) -> Headers {
        match pack(headers) {
            Some(packed) => packed.iter().map(|(name, value)| (name, value.clone())).collect(),
            None => headers.clone(),
        }
    }

    #[test]
    fn what_people_look_for_stays_and_the_rest_is_one_header() {
        let mut packed = written(&copy());
        let names: Vec<_> = packed.iter().map(|(name, _)| name).collect();
        assert_eq!(names, [names::ATTEMPT, names::DUE_AT, STORY, "tenant"]);
        assert_eq!(
            packed.get(STORY).and_then(Value::as_str),
            Some(
                r#"{"v":1,"error":"no \"answer\"\nfrom the stock","first-failed-at":"2026-11-26T10:00:00.000Z","#
                    .to_owned()
                    + r#""history":[{"attempt":1,"error":"no \"answer\"\n","wait-ms":1000}],"hop":3}"#
            )
            .as_deref()
        );
        unpack(&mut packed);
        assert_eq!(packed, copy());
    }

    #[test]
    fn what_was_set_since_stays() {
        let mut packed = written(&copy());
        packed.insert(names::HOP, 7_i64);
        unpack(&mut packed);
        assert_eq!(packed.get(names::HOP), Some(&Value::I64(7)));
    }

    #[test]
    fn a_story_that_is_not_readable_is_never_left_out_silently() {
        for (story, why) in [
            (Value::from(r#"{"v":2,"hop":3}"#), "its version is 2"),
            (r#"{"hop":3}"#.into(), "it has no version"),
            (r#"{"v":1,"hop":3"#.into(), "EOF"),
            (r#"{"v":1,"hop":3.5}"#.into(), "`hop` is of a kind"),
            ("[]".into(), "invalid type"),
            (format!(r#"{{"v":1,"{}":1}}"#, "k".repeat(248)).into(), "a name is too long"),
            (
                format!(r#"{{"v":1,"history":[{{"{}":1}}]}}"#, "k".repeat(256)).into(),
                "`history` is of a kind",
            ),
            (Value::I64(1), ""),
        ] {
            let mut headers = Headers::from_iter([(STORY, story.clone())]);
            unpack(&mut headers);
            assert_eq!(headers.get(STORY), Some(&story));
            if let Value::String(story) = story {
                let said = read(&story).expect_err("not readable");
                assert!(said.contains(why), "{said}");
            }
        }
    }

    #[test]
    fn a_story_that_could_not_be_unpacked_is_packed_into_no_other() {
        let mut headers = copy();
        headers.insert(STORY, r#"{"v":2}"#);
        assert!(pack(&headers).is_none());
    }

    #[test]
    fn control_characters_do_not_make_it_longer_than_it_was() {
        let headers = Headers::from_iter([(names::ERROR, Value::from("\u{1}".repeat(1000)))]);
        assert!(pack(&headers).is_none());
    }

    proptest! {
        #[test]
        fn whatever_is_packed_comes_back_and_takes_no_more_bytes(
            headers in proptest::collection::btree_map("(redrive-)?[a-z-]{1,12}", super::super::tests::values(), 0..12),
        ) {
            let plain: Headers = headers.into_iter().filter(|(name, _)| name != STORY).collect();
            let mut packed = written(&plain);
            prop_assert!(packed.encoded_len() <= plain.encoded_len());
            unpack(&mut packed);
            prop_assert_eq!(packed, plain);
        }

        #[test]
        fn no_text_is_a_panic(story in ".{0,60}") {
            unpack(&mut Headers::from_iter([(STORY, Value::from(story))]));
        }
    }
}
