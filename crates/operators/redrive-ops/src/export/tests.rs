use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use redrive_core::shelves::Owner;
use redrive_core::{Bytes, Headers, Properties, Timestamp, Value};

use super::*;
use crate::printable::steers_a_terminal;

fn time() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        any::<i64>().prop_map(Timestamp::from_unix_millis),
        any::<u64>().prop_map(Timestamp::from_unix_seconds),
    ]
}

fn bytes() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..12).prop_map(Bytes::from)
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[a-z]{0,8}", "[\\x00-\\x9f\"\\\\{}\u{202e}]{0,8}"]
}

/// Names that look like tags too.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![text(), Just("$table".to_owned()), Just("$u8".to_owned()), Just("$".to_owned())]
}

fn table(value: impl Strategy<Value = Value>, most: usize) -> impl Strategy<Value = Headers> {
    prop::collection::vec((name(), value), 0..most).prop_map(Headers::from_iter)
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i8>().prop_map(Value::I8),
        any::<u8>().prop_map(Value::U8),
        any::<i16>().prop_map(Value::I16),
        any::<u16>().prop_map(Value::U16),
        any::<i32>().prop_map(Value::I32),
        any::<u32>().prop_map(Value::U32),
        any::<i64>().prop_map(Value::I64),
        any::<u64>().prop_map(Value::U64),
        // A NaN is no equal of itself: it has a test of its own.
        any::<u32>().prop_map(f32::from_bits).prop_filter("NaN", |n| !n.is_nan()).prop_map(Value::F32),
        any::<u64>().prop_map(f64::from_bits).prop_filter("NaN", |n| !n.is_nan()).prop_map(Value::F64),
        (any::<u8>(), any::<u32>()).prop_map(|(scale, value)| Value::Decimal { scale, value }),
        any::<char>().prop_map(Value::Char),
        time().prop_map(Value::Timestamp),
        any::<[u8; 16]>().prop_map(Value::Uuid),
        text().prop_map(Value::String),
        bytes().prop_map(Value::RawString),
        bytes().prop_map(Value::Bytes),
    ];
    leaf.prop_recursive(4, 24, 4, |inside| {
        prop_oneof![
            prop::collection::vec(inside.clone(), 0..4).prop_map(Value::List),
            table(inside, 3).prop_map(Value::Table),
        ]
    })
}

fn properties() -> impl Strategy<Value = Properties> {
    let texts = prop::collection::vec(prop::option::of(text()), 11);
    let numbers = (
        any::<Option<u8>>(),
        prop::option::of(time()),
        prop::option::of((any::<u64>(), 0..1_000_000_000_u32)),
        any::<Option<bool>>(),
    );
    (texts, numbers).prop_map(|(texts, (priority, timestamp, expiration, persistent))| {
        let mut texts = texts.into_iter();
        let mut next = || texts.next().flatten();
        let mut properties = Properties::default();
        properties.id = next();
        properties.correlation_id = next();
        properties.content_type = next();
        properties.content_encoding = next();
        properties.reply_to = next();
        properties.kind = next();
        properties.to = next();
        properties.user_id = next();
        properties.app_id = next();
        properties.cluster_id = next();
        properties.session_id = next();
        properties.priority = priority;
        properties.timestamp = timestamp;
        properties.expiration = expiration.map(|(secs, nanos)| Duration::new(secs, nanos));
        properties.persistent = persistent;
        properties
    })
}

/// Any message that a broker can deliver.
pub(crate) fn message() -> impl Strategy<Value = Message> {
    let body = prop_oneof![bytes(), text().prop_map(Bytes::from)];
    (body, table(value(), 5), properties())
        .prop_map(|(body, headers, properties)| Message::from_parts(body, headers, properties))
}

fn entry() -> impl Strategy<Value = ExportedEntry> {
    let shelf = prop_oneof![Just(Shelf::DeadLetter), Just(Shelf::Parking)];
    let handle = (shelf, ".{1,8}").prop_map(|(shelf, key)| EntryHandle::new(shelf, key));
    let time =
        || (0..253_402_300_800_u64, 0..1_000_000_000_u32).prop_map(|(s, n)| UNIX_EPOCH + Duration::new(s, n));
    let reason = || prop::option::of(text());
    let owner = prop_oneof![Just(Owner::This), Just(Owner::Listed), Just(Owner::Other)];
    let failed = (reason(), owner);
    (text(), handle, time(), prop::option::of(time()), reason(), reason(), failed, message()).prop_map(
        |(queue, handle, exported_at, shelved_at, broker_reason, broker_description, failed, message)| {
            let (failed_in, owner) = failed;
            ExportedEntry {
                queue,
                handle,
                exported_at,
                shelved_at,
                broker_reason,
                broker_description,
                failed_in,
                owner,
                message,
            }
        },
    )
}

proptest! {
    #[test]
    fn any_entry_comes_back_from_its_line_as_it_was(entry in entry()) {
        let line = entry.to_line().unwrap();
        prop_assert!(!line.chars().any(steers_a_terminal), "{line:?}");
        prop_assert_eq!(ExportedEntry::from_line(&line).unwrap(), entry);
    }

    #[test]
    fn no_line_makes_it_panic(text in any::<String>(), cut in any::<prop::sample::Index>(), entry in entry()) {
        let _ = ExportedEntry::from_line(&text);
        let line = entry.to_line().unwrap();
        let mut end = cut.index(line.len());
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        ExportedEntry::from_line(&line[..end]).expect_err("a torn line");
    }
}

fn plain() -> ExportedEntry {
    let message = Message::new("2 books").with_id("order-7");
    ExportedEntry::new(
        "orders",
        &Shelved::new(EntryHandle::new(Shelf::DeadLetter, "17"), message),
        UNIX_EPOCH,
    )
}

#[test]
fn the_story_is_written_and_the_headers_are_read() {
    let mut entry = plain();
    entry.message.headers_mut().insert(header_names::ATTEMPT, 3_i64);
    entry.message.headers_mut().insert(header_names::REASON, "OutOfStock");
    let line = entry.to_line().unwrap();
    assert!(line.contains(r#""story":{"attempt":3,"redrives":0,"reason":"OutOfStock"}"#), "{line}");
    let forged = line.replace(r#""story":{"attempt":3"#, r#""story":{"attempt":0"#);
    assert_eq!(ExportedEntry::from_line(&forged), Ok(entry));
}

#[test]
fn other_versions_and_fields_are_refused() {
    let line = plain().to_line().unwrap();
    let later = line.replace(r#""v":1"#, r#""v":2,"other":true"#);
    assert_eq!(ExportedEntry::from_line(&later), Err(ParseLineError::UnknownVersion(2)));
    for (from, to, said) in [
        (r#""v":1,"#, "", "missing field `v`"),
        (r#""v":1,"#, r#""v":1,"other":1,"#, "unknown field `other`"),
        (r#""properties":{"#, r#""properties":{"other":1,"#, "unknown field `other`"),
        (r#""body":"#, r#""body_base64":"","body":"#, "one of `body`"),
        (r#","body":"2 books""#, "", "one of `body`"),
        (r#""shelf":"dead-letter""#, r#""shelf":"parking""#, "no entry of the shelf"),
        ("dead-letter/17", "17", "not the handle"),
    ] {
        let error = ExportedEntry::from_line(&line.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn an_error_names_its_line() {
    let line = plain().to_line().unwrap();
    let file = format!("\u{feff}{line}\n\n{line}\r\n{{\n{line}\n");
    let read: Vec<_> = ExportLines::new(file.as_bytes()).collect();
    assert_eq!(read.len(), 3, "it ends after the first error");
    assert!(read[..2].iter().all(|read| read.as_ref().is_ok_and(|read| *read == plain())));
    assert!(read[2].as_ref().unwrap_err().to_string().starts_with("line 4: "), "{:?}", read[2]);
}

#[test]
fn an_expiration_does_not_remove_what_was_brought_back() {
    let mut entry = plain();
    entry.message.properties_mut().expiration = Some(Duration::from_secs(2));
    let message = entry.for_shelf();
    assert_eq!(message.properties().expiration, None);
    assert_eq!(message.headers().get(header_names::EXPIRATION), Some(&Value::I64(2000)));
    assert_eq!(plain().for_shelf(), plain().message);
}

#[test]
fn an_absurd_time_is_left_out() {
    let mut entry = plain();
    entry.shelved_at = UNIX_EPOCH.checked_sub(Duration::from_secs(1));
    assert_eq!(ExportedEntry::from_line(&entry.to_line().unwrap()), Ok(plain()));
    entry.shelved_at = UNIX_EPOCH.checked_add(Duration::from_secs(253_402_300_800));
    assert_eq!(ExportedEntry::from_line(&entry.to_line().unwrap()), Ok(plain()));
}
