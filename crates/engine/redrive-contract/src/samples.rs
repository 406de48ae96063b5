//! Messages that use every feature, and the comparison of two messages.

use redrive_core::transport::Settlement;
use redrive_core::{Bytes, Delivery, Headers, Message, Timestamp, Value};

use crate::harness::Harness;

/// Returns a message with a binary body, all properties that every broker carries, and headers of every type that this broker
/// carries.
pub(crate) fn full<H: Harness>(harness: &H) -> Message {
    let mut message = Message::new(vec![0_u8, 159, 146, 150, 255, 10, 13, 0])
        .with_id("full")
        .with_correlation_id("conversation-7")
        .with_content_type("application/octet-stream");
    let properties = message.properties_mut();
    properties.content_encoding = Some("identity".into());
    properties.reply_to = Some("answers".into());
    properties.kind = Some("order.placed".into());
    properties.app_id = Some("shop".into());
    properties.priority = Some(3);
    properties.timestamp = Some(Timestamp::from_unix_seconds(1_700_000_000));
    properties.persistent = Some(true);
    for (name, value) in every_header(harness) {
        message.headers_mut().insert(name, value);
    }
    message
}

/// Returns a header of every type that the broker carries, with extreme values, and tables and arrays of them.
pub(crate) fn every_header<H: Harness>(harness: &H) -> Vec<(&'static str, Value)> {
    let nested = Headers::from_iter([("deeper", Value::List(vec![Value::I64(1), "two".into()]))]);
    let all = [
        ("null", Value::Null),
        ("bool", Value::Bool(true)),
        ("i8", Value::I8(i8::MIN)),
        ("u8", Value::U8(u8::MAX)),
        ("i16", Value::I16(i16::MIN)),
        ("u16", Value::U16(u16::MAX)),
        ("i32", Value::I32(i32::MIN)),
        ("u32", Value::U32(u32::MAX)),
        ("i64", Value::I64(i64::MIN)),
        ("u64", Value::U64(u64::MAX)),
        ("f32", Value::F32(1.5)),
        ("f64", Value::F64(-0.1)),
        ("decimal", Value::Decimal { scale: 2, value: 4711 }),
        ("char", Value::Char('ä')),
        ("timestamp", Value::Timestamp(Timestamp::from_unix_seconds(1_600_000_000))),
        ("uuid", Value::Uuid(*b"0123456789abcdef")),
        ("string", Value::String("Grüße 👋".into())),
        ("empty-string", Value::String(String::new())),
        ("raw-string", Value::RawString(Bytes::from_static(b"caf\xe9"))),
        ("bytes", Value::Bytes(Bytes::from_static(&[0, 255, 128]))),
        ("list", Value::List(vec![Value::Bool(false), Value::I32(7), "x".into(), Value::List(vec![])])),
        ("table", Value::Table(nested)),
        ("empty-table", Value::Table(Headers::new())),
    ];
    all.into_iter().filter(|(_, value)| harness.carries(value)).collect()
}

/// Checks that the first arrival of [`full`] has everything that was published.
pub(crate) fn assert_arrived<H: Harness>(harness: &H, arrived: &Message) {
    assert_same(arrived, &harness.as_published(full(harness)));
}

/// Checks that body, properties and headers are the same. A broker may add headers of its own (`x-…`), and makes every copy
/// persistent.
pub(crate) fn assert_same(arrived: &Message, sent: &Message) {
    assert!(arrived.body() == sent.body(), "the body changed");
    let mut properties = arrived.properties().clone();
    properties.persistent = sent.properties().persistent;
    assert_eq!(&properties, sent.properties(), "the properties changed");
    for (name, value) in sent.headers().iter().filter(|(name, _)| !is_written_by_a_broker(name)) {
        assert_eq!(arrived.headers().get(name), Some(value), "header `{name}` changed");
    }
    for (name, value) in arrived.headers().iter() {
        let known = sent.headers().contains(name) || name.starts_with("x-");
        assert!(known, "header `{name}` was added: {value:?}");
    }
}

/// Returns true for a header that RabbitMQ writes when it moves a message: it describes one hop, and is replaced or gone on the
/// next.
fn is_written_by_a_broker(name: &str) -> bool {
    let prefixes = ["x-first-death-", "x-last-death-"];
    ["x-death", "x-delivery-count", "x-acquired-count"].contains(&name)
        || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns the message that a settlement sends on: its copy, or the message itself if it is held back in place.
pub(crate) fn sent_on(settlement: &Settlement, delivery: &Delivery) -> Message {
    match settlement {
        Settlement::Reschedule { copy, .. } | Settlement::Shelve { copy, .. } => copy.clone(),
        Settlement::RetryInPlace { .. } => delivery.message().clone(),
        other => panic!("`{}` sends nothing on", other.name()),
    }
}
