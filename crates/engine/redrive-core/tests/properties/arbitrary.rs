//! Messages as the worst publisher makes them.

use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use redrive_core::{Bytes, Headers, Message, Timestamp, Value, header_names as names};

/// Text: any, long, or what redrive itself could have written.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => ".{0,40}",
        1 => (0..3000_usize).prop_map(|length| "ä".repeat(length)),
        1 => any::<i64>().prop_map(|n| n.to_string()),
        1 => (0..3000_usize).prop_map(|zeros| format!("{}7", "0".repeat(zeros))),
        1 => Just("2026-11-21T10:00:00.000Z".to_owned()),
        1 => Just("orders".to_owned()),
    ]
}

pub(crate) fn value() -> impl Strategy<Value = Value> {
    let integer = prop_oneof![
        any::<i8>().prop_map(Value::I8),
        any::<u8>().prop_map(Value::U8),
        any::<i16>().prop_map(Value::I16),
        any::<u16>().prop_map(Value::U16),
        any::<i32>().prop_map(Value::I32),
        any::<u32>().prop_map(Value::U32),
        any::<i64>().prop_map(Value::I64),
        any::<u64>().prop_map(Value::U64),
        (0..10_i64).prop_map(Value::I64),
        Just(Value::I64(i64::from(u32::MAX))),
    ];
    let leaf = prop_oneof![
        4 => integer,
        3 => text().prop_map(Value::String),
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::Bool),
        1 => any::<f32>().prop_map(Value::F32),
        1 => any::<f64>().prop_map(Value::F64),
        1 => any::<(u8, u32)>().prop_map(|(scale, value)| Value::Decimal { scale, value }),
        1 => any::<char>().prop_map(Value::Char),
        1 => any::<i64>().prop_map(|millis| Timestamp::from_unix_millis(millis).into()),
        1 => any::<u64>().prop_map(|seconds| Timestamp::from_unix_seconds(seconds).into()),
        1 => any::<[u8; 16]>().prop_map(Value::Uuid),
        1 => any::<Vec<u8>>().prop_map(|bytes| Value::RawString(bytes.into())),
        1 => any::<Vec<u8>>().prop_map(|bytes| Value::Bytes(bytes.into())),
    ];
    leaf.prop_recursive(3, 32, 8, |inner| {
        let key = prop_oneof![
            Just(names::history::ATTEMPT.to_owned()),
            Just(names::history::AT.to_owned()),
            Just(names::history::REASON.to_owned()),
            Just(names::history::ERROR.to_owned()),
            Just(names::history::WAIT.to_owned()),
            ".{0,8}",
        ];
        let table = proptest::collection::vec((key, inner.clone()), 0..6);
        prop_oneof![
            proptest::collection::vec(inner, 0..12).prop_map(Value::List),
            table.prop_map(|entries| Value::Table(Headers::from_iter(entries))),
        ]
    })
}

/// Headers of redrive with anything in them, and headers of others.
pub(crate) fn headers() -> impl Strategy<Value = Headers> {
    let known = [names::ALL, &["redrive-of-the-future"]].concat();
    let own = proptest::collection::vec((proptest::sample::select(known), value()), 0..12);
    let foreign = proptest::collection::vec(("x-[a-z]{1,8}", value()), 0..4);
    (own, foreign).prop_map(|(own, foreign)| {
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
        Headers::from_iter(own.chain(foreign))
    })
}

prop_compose! {
    pub(crate) fn message()(
        body in any::<Vec<u8>>(), headers in headers(), id in proptest::option::of(".{1,20}"),
        expiration in proptest::option::of(any::<u64>().prop_map(Duration::from_millis)),
    ) -> Message {
        let mut message = Message::from_parts(Bytes::from(body), headers, redrive_core::Properties::default());
        message.properties_mut().id = id;
        message.properties_mut().expiration = expiration;
        message
    }
}

pub(crate) fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}
