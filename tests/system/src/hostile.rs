//! Messages as only somebody else, or somebody bad, publishes them.

use lapin::BasicProperties;
use lapin::types::{AMQPValue, ByteArray, FieldArray, FieldTable, LongString, ShortString};
use redrive::header_names as names;

/// What the handler can read.
pub const GOOD_BODY: &[u8] = br#"{"order":1}"#;
/// What it cannot.
pub const BAD_BODY: &[u8] = b"{\"order\":";

/// A message as it is published.
#[derive(Clone, Debug)]
pub struct Hostile {
    /// Its id.
    pub id: String,
    /// Everything but the body.
    pub properties: BasicProperties,
    /// The body.
    pub body: Vec<u8>,
}

impl Hostile {
    fn new(id: String, properties: BasicProperties, body: impl Into<Vec<u8>>) -> Self {
        let properties = properties.with_message_id(id.as_str().into()).with_delivery_mode(2);
        Self { id, properties, body: body.into() }
    }

    fn with_header(id: String, name: &str, value: AMQPValue, body: &[u8]) -> Self {
        Self::new(id, BasicProperties::default().with_headers(table([(name, value)])), body)
    }
}

/// Bodies that no handler of JSON can read; `largest` bytes are the largest.
#[must_use]
pub fn bodies(largest: usize) -> Vec<Hostile> {
    let bodies: [(&str, Vec<u8>); 6] = [
        ("empty", Vec::new()),
        ("cut", BAD_BODY.to_vec()),
        ("not-utf-8", vec![0xff, 0xfe, 0x00, 0xc3, 0x28]),
        ("nested", vec![b'['; 100_000]),
        ("another-type", b"\"an order\"".to_vec()),
        ("huge", vec![b'x'; largest]),
    ];
    let named = |(name, body)| Hostile::new(format!("body-{name}"), BasicProperties::default(), body);
    bodies.into_iter().map(named).collect()
}

/// Headers up to what fits a frame, on bodies that cannot be handled: each has to go somewhere.
#[must_use]
pub fn large_headers() -> Vec<Hostile> {
    [50, 100, 110, 112, 115, 125]
        .into_iter()
        .map(|kilobytes| {
            let text = AMQPValue::LongString("h".repeat(kilobytes * 1000).into());
            Hostile::with_header(format!("large-{kilobytes}-kB"), "large", text, BAD_BODY)
        })
        .collect()
}

/// Every header that redrive or the broker writes, with values that neither ever writes, on bodies that can be handled.
#[must_use]
pub fn wrong_types() -> Vec<Hostile> {
    let of_the_broker =
        ["x-death", "x-delivery-count", "x-acquired-count", "x-first-death-queue", "traceparent"];
    let of = |name: &'static str| {
        wrong_values().into_iter().flat_map(move |(kind, value)| {
            // With a body that can be handled, and with one that makes redrive write its headers beside these.
            [("good", GOOD_BODY), ("bad", BAD_BODY)].map(|(word, body)| {
                Hostile::with_header(format!("type-{word}-{name}-{kind}"), name, value.clone(), body)
            })
        })
    };
    names::ALL.iter().copied().chain(of_the_broker).flat_map(of).collect()
}

/// Whether a count, or a packed history, cannot be read from the header of this message, one of [`wrong_types`].
#[must_use]
pub fn is_unreadable(id: &str) -> bool {
    let counts = [names::ATTEMPT, names::REDRIVES].iter().any(|name| id.contains(name));
    counts && !id.ends_with("-highest") || id.contains(names::STORY)
}

/// Whether the message, one of [`wrong_types`], says of itself that it was handed out more often than any is allowed.
#[must_use]
pub fn claims_to_be_poison(id: &str) -> bool {
    id.ends_with(&format!("{}-highest", names::HANDED_OUT))
}

fn wrong_values() -> Vec<(&'static str, AMQPValue)> {
    let table = table([("count", AMQPValue::LongString("many".into()))]);
    vec![
        ("void", AMQPValue::Void),
        ("flag", AMQPValue::Boolean(true)),
        ("negative", AMQPValue::LongLongInt(-1)),
        ("highest", AMQPValue::LongLongInt(i64::MAX)),
        ("words", AMQPValue::LongString("what you like".into())),
        ("not-utf-8", AMQPValue::LongString(LongString::from(vec![0xff, 0xfe]))),
        ("fraction", AMQPValue::Double(-0.5)),
        ("array", AMQPValue::FieldArray(FieldArray::from(vec![AMQPValue::FieldTable(table.clone())]))),
        ("table", AMQPValue::FieldTable(table)),
        ("bytes", AMQPValue::ByteArray(ByteArray::from(vec![0_u8; 3]))),
        ("late", AMQPValue::Timestamp(u64::MAX)),
    ]
}

/// Headers and properties that are allowed and that nobody expects, on bodies that cannot be handled.
#[must_use]
pub fn oddities() -> Vec<Hostile> {
    let plain = BasicProperties::default;
    let longest = || ShortString::from("l".repeat(255));
    let odd =
        |name: &str, properties: BasicProperties| Hostile::new(format!("odd-{name}"), properties, BAD_BODY);
    let raw = AMQPValue::LongString(LongString::from(vec![0xc3, 0x28, 0x00, 0xff]));
    vec![
        odd("raw-text", plain().with_headers(table([("raw", raw)]))),
        odd("nested", plain().with_headers(table([("nested", nested(60))]))),
        odd("names", plain().with_headers(table([("", AMQPValue::Void), ("\0\r\n", AMQPValue::Void)]))),
        odd("priority", plain().with_priority(255)),
        odd("timestamp", plain().with_timestamp(u64::MAX)),
        odd("encoding", plain().with_content_encoding("no such encoding".into())),
        odd("type", plain().with_content_type("\u{1F980}/\0".into()).with_type(longest())),
        odd("long", plain().with_correlation_id(longest()).with_reply_to(longest()).with_app_id(longest())),
        odd("cluster", plain().with_cluster_id("another".into())),
        odd("reserved", plain().with_headers(table([("BCC", AMQPValue::FieldArray(FieldArray::default()))]))),
    ]
}

fn nested(depth: usize) -> AMQPValue {
    (0..depth).fold(AMQPValue::Void, |inner, level| match level % 2 {
        0 => AMQPValue::FieldTable(table([("inner", inner)])),
        _ => AMQPValue::FieldArray(FieldArray::from(vec![inner])),
    })
}

fn table<'a>(entries: impl IntoIterator<Item = (&'a str, AMQPValue)>) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in entries {
        table.insert(name.into(), value);
    }
    table
}
