use std::time::Duration;

use bytes::BytesMut;
use proptest::prelude::*;
use redrive_amqp091 as amqp;
use redrive_core::{Bytes, Timestamp, Value};

use super::*;

/// Every value that can come from a broker.
pub(super) fn values() -> impl Strategy<Value = Value> {
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
        (-1e30_f32..1e30).prop_map(Value::F32),
        (-1e300_f64..1e300).prop_map(Value::F64),
        (any::<u8>(), any::<u32>()).prop_map(|(scale, value)| Value::Decimal { scale, value }),
        any::<u64>().prop_map(|seconds| Value::Timestamp(Timestamp::from_unix_seconds(seconds))),
        ".{0,40}".prop_map(Value::String),
        proptest::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| Value::Bytes(bytes.into())),
        Just(Value::RawString(Bytes::from_static(b"\xff\xfe not UTF-8"))),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::List),
            proptest::collection::btree_map("[a-zA-Zä-]{0,20}", inner, 0..6)
                .prop_map(|entries| Value::Table(entries.into_iter().collect())),
        ]
    })
}

fn texts() -> impl Strategy<Value = Option<String>> {
    proptest::option::of("[ -~äß€]{0,60}")
}

prop_compose! {
    fn all_properties()(
        texts in proptest::collection::vec(texts(), 11),
        priority in any::<Option<u8>>(),
        seconds in any::<Option<u64>>(),
        expiration in any::<Option<u32>>(),
        persistent in any::<Option<bool>>(),
    ) -> Properties {
        let mut properties = Properties::default();
        for ((_, property), text) in properties.texts_mut().zip(texts) {
            *property = text;
        }
        properties.priority = priority;
        properties.timestamp = seconds.map(Timestamp::from_unix_seconds);
        properties.expiration = expiration.map(|millis| Duration::from_millis(millis.into()));
        properties.persistent = persistent;
        properties
    }
}

fn content_header(message: &Message, form: Form) -> Bytes {
    let mut payload = BytesMut::new();
    let body_size = u64::try_from(message.body().len()).unwrap();
    let properties = properties(message, form).unwrap();
    amqp::ContentHeader { body_size, properties }.write(&mut payload);
    payload.freeze()
}

proptest! {
    #[test]
    fn what_is_no_content_header_is_a_message_that_was_not_read_whole(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (message, left_out) = read(&bytes.clone().into(), Bytes::from_static(b"body"));
        prop_assert_eq!(&message.body()[..], b"body");
        prop_assert!(left_out.is_some() || bytes.starts_with(&[0, 60]));
    }

    #[test]
    fn what_goes_out_comes_back(
        properties in all_properties(),
        headers in proptest::collection::btree_map("(redrive-)?[a-z-]{1,20}", values(), 0..8),
        body in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let user = properties.user_id.clone().unwrap_or_default();
        let sent = Message::from_parts(body.into(), headers.into_iter().collect(), properties);
        let prepared = for_publishing(sent.clone(), &user, Form::Copy);
        for form in [Form::Published, Form::Copy, Form::WaitingCopy] {
            let mut expected = sent.clone();
            let persistent = form != Form::Published || sent.properties().persistent != Some(false);
            expected.properties_mut().persistent = Some(persistent);
            let header = content_header(&prepared, form);
            prop_assert_eq!(read(&header, sent.body().clone()), (expected.clone(), None));
            // RabbitMQ up to 3.12 passes on property flags that mean nothing.
            let mut flags = header.to_vec();
            flags[13] |= 0b11;
            prop_assert_eq!(read(&flags.into(), sent.body().clone()), (expected.clone(), None));
            prop_assert_eq!(as_read(&prepared, form).unwrap(), expected);
        }
    }

    /// Another implementation of the same protocol.
    #[test]
    fn the_client_library_reads_it_and_writes_the_same(
        properties in all_properties(),
        headers in proptest::collection::btree_map("(redrive-)?[a-z-]{1,20}", values(), 0..8),
    ) {
        let message = Message::from_parts(Bytes::new(), headers.into_iter().collect(), properties);
        let message = for_publishing(message, "nobody", Form::Copy);
        for form in [Form::Published, Form::Copy, Form::WaitingCopy] {
            let written = content_header(&message, form).split_off(12);
            let (rest, library) = lapin::protocol::basic::parse_properties(&*written).unwrap();
            prop_assert!(rest.is_empty());
            let again = lapin::protocol::basic::gen_properties(&library)(Vec::new().into()).unwrap();
            prop_assert_eq!(&again.into_inner().0, &written);
        }
    }

    #[test]
    fn no_encoding_is_longer_than_it_was_said_to_be(
        properties in all_properties(),
        headers in proptest::collection::btree_map("[a-z-]{1,20}", values(), 0..8),
    ) {
        let message = Message::from_parts(Bytes::new(), headers.into_iter().collect(), properties);
        let message = for_publishing(message, "nobody", Form::Copy);
        let table = super::properties(&message, Form::Copy).unwrap().headers.unwrap_or_default();
        let (length, said) = (4 + table.as_bytes().len(), message.headers().encoded_len());
        prop_assert!(length <= said, "{length} > {said}");
    }

    #[test]
    fn the_client_library_declares_a_queue_with_the_arguments_that_were_named(
        named in proptest::collection::btree_map("[a-z-]{1,20}", values(), 0..8),
    ) {
        let converted = arguments(&named).unwrap();
        let written = lapin::types::generation::gen_field_table(&converted.iter().map(|(name, value)| (name.as_str().into(), value.clone())).collect::<std::collections::BTreeMap<_, _>>().into())(Vec::new().into()).unwrap();
        let table = write::table(named.iter().map(|(name, value)| (&**name, value))).unwrap();
        prop_assert_eq!(&written.into_inner().0[4..], table.as_bytes());
    }
}

#[test]
fn what_the_broker_wrote_is_not_sent_back_to_it() {
    let mut sent = Message::new("x").with_header("kept", 1_i64).with_header("x-custom", 2_i64);
    for name in
        ["x-death", "x-first-death-queue", "x-last-death-reason", "x-delivery-count", "x-acquired-count"]
    {
        sent.headers_mut().insert(name, 3_i64);
    }
    for name in ["CC", "BCC", "x-stream-offset"] {
        sent.headers_mut().insert(name, 3_i64);
    }
    let published = for_publishing(sent, "me", Form::Copy);
    let names: Vec<_> = published.headers().iter().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(names, ["kept", "x-custom"]);
}

#[test]
fn a_foreign_user_id_becomes_a_header_and_the_first_one_stays() {
    let mut sent = Message::new("x");
    sent.properties_mut().user_id = Some("alice".into());
    let copy = for_publishing(sent.clone(), "bob", Form::Copy);
    assert_eq!(copy.properties().user_id, None);
    assert_eq!(copy.headers().get(header_names::USER_ID), Some(&Value::from("alice")));
    assert_eq!(
        for_publishing(sent.clone(), "alice", Form::Copy).properties().user_id.as_deref(),
        Some("alice")
    );
    let carried = for_publishing(sent.with_header(header_names::USER_ID, "carol"), "bob", Form::Copy);
    assert_eq!(carried.headers().get(header_names::USER_ID), Some(&Value::from("carol")));
}

#[test]
fn a_text_that_does_not_fit_is_an_error_and_no_panic() {
    let long_id = Message::new("x").with_id("i".repeat(256));
    let long_name = Message::new("x").with_header("h".repeat(256), 1_i64);
    for message in [long_id, long_name] {
        let error = properties(&message, Form::Copy).unwrap_err();
        assert_eq!(error.kind(), TransportErrorKind::TooLarge);
    }
}

#[test]
fn copies_are_persistent_whatever_the_message_says() {
    let mut message = Message::new("x");
    message.properties_mut().persistent = Some(false);
    let mode = |message: &Message, form| properties(message, form).unwrap().delivery_mode;
    assert_eq!(mode(&message, Form::Copy), Some(2));
    assert_eq!(mode(&message, Form::WaitingCopy), Some(2));
    assert_eq!(mode(&message, Form::Published), Some(1));
    assert_eq!(mode(&Message::new("x"), Form::Published), Some(2));
}
