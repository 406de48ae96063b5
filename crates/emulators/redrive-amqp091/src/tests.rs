//! Round trips of everything, and arbitrary bytes.

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::*;

const MAX_PAYLOAD: usize = 1 << 17;

fn short() -> impl Strategy<Value = ShortStr> {
    vec(any::<u8>(), 0..40).prop_map(|bytes| ShortStr::new(bytes).expect("less than 256 bytes"))
}

fn long() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..300).prop_map(Bytes::from)
}

/// Floats that compare equal to themselves.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::Bool),
        any::<i8>().prop_map(Value::I8),
        any::<u8>().prop_map(Value::U8),
        any::<i16>().prop_map(Value::I16),
        any::<u16>().prop_map(Value::U16),
        any::<i32>().prop_map(Value::I32),
        any::<u32>().prop_map(Value::U32),
        any::<i64>().prop_map(Value::I64),
        any::<u64>().prop_map(Value::U64),
        (-1e6_f32..1e6).prop_map(Value::F32),
        (-1e9_f64..1e9).prop_map(Value::F64),
        (any::<u8>(), any::<i32>()).prop_map(|(scale, value)| Value::Decimal(Decimal { scale, value })),
        long().prop_map(Value::LongStr),
        long().prop_map(Value::Binary),
        any::<u64>().prop_map(Value::Timestamp),
        Just(Value::Void),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::Array),
            vec((short(), inner), 0..5).prop_map(|entries| Value::Table(entries.into_iter().collect())),
        ]
    })
}

fn table() -> impl Strategy<Value = Table> {
    vec((short(), value()), 0..6).prop_map(|entries| entries.into_iter().collect())
}

prop_compose! {
    fn properties()(
        texts in proptest::array::uniform9(proptest::option::of(short())),
        kind in proptest::option::of(short()),
        headers in proptest::option::of(table()),
        delivery_mode in any::<Option<u8>>(),
        priority in any::<Option<u8>>(),
        timestamp in any::<Option<u64>>(),
    ) -> Properties {
        let [content_type, content_encoding, correlation_id, reply_to, expiration, message_id, user_id, app_id, cluster_id] = texts;
        Properties {
            content_type, content_encoding, headers: headers.map(RawTable::from), delivery_mode, priority, correlation_id,
            reply_to, expiration, message_id, timestamp, kind, user_id, app_id, cluster_id,
        }
    }
}

fn methods() -> impl Strategy<Value = Method> {
    let bits = proptest::array::uniform6(any::<bool>());
    (short(), short(), short(), long(), table(), bits, any::<(u8, u16, u32, u64)>()).prop_flat_map(
        |(a, b, c, text, table, bits, (byte, small, number, tag))| {
            let arguments = table.encode();
            proptest::sample::select(vec![
                connection::Start {
                    version_major: byte,
                    version_minor: byte,
                    server_properties: arguments.clone(),
                    mechanisms: text.clone(),
                    locales: text.clone(),
                }
                .into(),
                connection::StartOk {
                    client_properties: arguments.clone(),
                    mechanism: a.clone(),
                    response: text.clone(),
                    locale: b.clone(),
                }
                .into(),
                connection::Secure { challenge: text.clone() }.into(),
                connection::SecureOk { response: text.clone() }.into(),
                connection::Tune { channel_max: small, frame_max: number, heartbeat: small }.into(),
                connection::TuneOk { channel_max: small, frame_max: number, heartbeat: small }.into(),
                connection::Open { virtual_host: a.clone(), capabilities: b.clone(), insist: bits[0] }.into(),
                connection::OpenOk { known_hosts: a.clone() }.into(),
                connection::Close {
                    reply_code: small,
                    reply_text: a.clone(),
                    class_id: small,
                    method_id: small,
                }
                .into(),
                connection::CloseOk {}.into(),
                connection::Blocked { reason: a.clone() }.into(),
                connection::Unblocked {}.into(),
                connection::UpdateSecret { new_secret: text.clone(), reason: a.clone() }.into(),
                connection::UpdateSecretOk {}.into(),
                channel::Open { out_of_band: a.clone() }.into(),
                channel::OpenOk { channel_id: text.clone() }.into(),
                channel::Flow { active: bits[0] }.into(),
                channel::FlowOk { active: bits[0] }.into(),
                channel::Close {
                    reply_code: small,
                    reply_text: a.clone(),
                    class_id: small,
                    method_id: small,
                }
                .into(),
                channel::CloseOk {}.into(),
                access::Request {
                    realm: a.clone(),
                    exclusive: bits[0],
                    passive: bits[1],
                    active: bits[2],
                    write: bits[3],
                    read: bits[4],
                }
                .into(),
                access::RequestOk { ticket: small }.into(),
                exchange::Declare {
                    ticket: small,
                    exchange: a.clone(),
                    kind: b.clone(),
                    passive: bits[0],
                    durable: bits[1],
                    auto_delete: bits[2],
                    internal: bits[3],
                    no_wait: bits[4],
                    arguments: arguments.clone(),
                }
                .into(),
                exchange::DeclareOk {}.into(),
                exchange::Delete { ticket: small, exchange: a.clone(), if_unused: bits[0], no_wait: bits[1] }
                    .into(),
                exchange::DeleteOk {}.into(),
                exchange::Bind {
                    ticket: small,
                    destination: a.clone(),
                    source: b.clone(),
                    routing_key: c.clone(),
                    no_wait: bits[0],
                    arguments: arguments.clone(),
                }
                .into(),
                exchange::BindOk {}.into(),
                exchange::Unbind {
                    ticket: small,
                    destination: a.clone(),
                    source: b.clone(),
                    routing_key: c.clone(),
                    no_wait: bits[0],
                    arguments: arguments.clone(),
                }
                .into(),
                exchange::UnbindOk {}.into(),
                queue::Declare {
                    ticket: small,
                    queue: a.clone(),
                    passive: bits[0],
                    durable: bits[1],
                    exclusive: bits[2],
                    auto_delete: bits[3],
                    no_wait: bits[4],
                    arguments: arguments.clone(),
                }
                .into(),
                queue::DeclareOk { queue: a.clone(), message_count: number, consumer_count: number }.into(),
                queue::Bind {
                    ticket: small,
                    queue: a.clone(),
                    exchange: b.clone(),
                    routing_key: c.clone(),
                    no_wait: bits[0],
                    arguments: arguments.clone(),
                }
                .into(),
                queue::BindOk {}.into(),
                queue::Purge { ticket: small, queue: a.clone(), no_wait: bits[0] }.into(),
                queue::PurgeOk { message_count: number }.into(),
                queue::Delete {
                    ticket: small,
                    queue: a.clone(),
                    if_unused: bits[0],
                    if_empty: bits[1],
                    no_wait: bits[2],
                }
                .into(),
                queue::DeleteOk { message_count: number }.into(),
                queue::Unbind {
                    ticket: small,
                    queue: a.clone(),
                    exchange: b.clone(),
                    routing_key: c.clone(),
                    arguments: arguments.clone(),
                }
                .into(),
                queue::UnbindOk {}.into(),
                basic::Qos { prefetch_size: number, prefetch_count: small, global: bits[0] }.into(),
                basic::QosOk {}.into(),
                basic::Consume {
                    ticket: small,
                    queue: a.clone(),
                    consumer_tag: b.clone(),
                    no_local: bits[0],
                    no_ack: bits[1],
                    exclusive: bits[2],
                    no_wait: bits[3],
                    arguments,
                }
                .into(),
                basic::ConsumeOk { consumer_tag: a.clone() }.into(),
                basic::Cancel { consumer_tag: a.clone(), no_wait: bits[0] }.into(),
                basic::CancelOk { consumer_tag: a.clone() }.into(),
                basic::Publish {
                    ticket: small,
                    exchange: a.clone(),
                    routing_key: b.clone(),
                    mandatory: bits[0],
                    immediate: bits[1],
                }
                .into(),
                basic::Return {
                    reply_code: small,
                    reply_text: a.clone(),
                    exchange: b.clone(),
                    routing_key: c.clone(),
                }
                .into(),
                basic::Deliver {
                    consumer_tag: a.clone(),
                    delivery_tag: tag,
                    redelivered: bits[0],
                    exchange: b.clone(),
                    routing_key: c.clone(),
                }
                .into(),
                basic::Get { ticket: small, queue: a.clone(), no_ack: bits[0] }.into(),
                basic::GetOk {
                    delivery_tag: tag,
                    redelivered: bits[0],
                    exchange: b,
                    routing_key: c,
                    message_count: number,
                }
                .into(),
                basic::GetEmpty { cluster_id: a }.into(),
                basic::Ack { delivery_tag: tag, multiple: bits[0] }.into(),
                basic::Reject { delivery_tag: tag, requeue: bits[0] }.into(),
                basic::RecoverAsync { requeue: bits[0] }.into(),
                basic::Recover { requeue: bits[0] }.into(),
                basic::RecoverOk {}.into(),
                basic::Nack { delivery_tag: tag, multiple: bits[0], requeue: bits[1] }.into(),
                tx::Select {}.into(),
                tx::SelectOk {}.into(),
                tx::Commit {}.into(),
                tx::CommitOk {}.into(),
                tx::Rollback {}.into(),
                tx::RollbackOk {}.into(),
                confirm::Select { no_wait: bits[0] }.into(),
                confirm::SelectOk {}.into(),
            ])
        },
    )
}

proptest! {
    // Several thousand values, most of them nested: enough for a few seconds.
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_method_is_read_as_it_was_written(method in methods(), channel in any::<u16>()) {
        let mut wire = BytesMut::new();
        method.write_frame(channel, &mut wire);
        let frame = Frame::take(&mut wire, MAX_PAYLOAD).unwrap().unwrap();
        prop_assert!(wire.is_empty());
        prop_assert_eq!((frame.kind, frame.channel), (FrameKind::Method, channel));
        prop_assert_eq!(Method::decode(&frame.payload).unwrap(), method);
    }

    #[test]
    fn a_method_that_was_cut_is_an_error(method in methods(), cut in any::<proptest::sample::Index>()) {
        let mut payload = BytesMut::new();
        method.write(&mut payload);
        let payload = payload.freeze();
        prop_assert!(Method::decode(&payload.slice(..cut.index(payload.len()))).is_err());
    }

    #[test]
    fn a_table_is_read_as_it_was_written(table in table()) {
        let raw = RawTable::checked(Bytes::copy_from_slice(table.encode().as_bytes())).unwrap();
        prop_assert_eq!(&raw.decode(), &table);
        let entries: Table = raw.entries().collect();
        prop_assert_eq!(&entries, &table);
        for (key, _) in table.iter() {
            if let Ok(key) = std::str::from_utf8(key.as_bytes()) {
                prop_assert_eq!(raw.get(key), table.get(key).cloned());
                prop_assert!(raw.contains(key));
            }
        }
    }

    #[test]
    fn properties_are_read_as_they_were_written(properties in properties()) {
        prop_assert_eq!(Properties::decode(&properties.encode()).unwrap(), properties);
    }

    #[test]
    fn content_is_split_by_the_largest_frame(
        properties in properties(), body in vec(any::<u8>(), 0..5_000), frame_max in 100_usize..2_000
    ) {
        let mut wire = BytesMut::new();
        write_content(3, &properties.encode(), &body, frame_max, &mut wire);
        let header = Frame::take(&mut wire, MAX_PAYLOAD).unwrap().unwrap();
        let decoded = ContentHeader::decode(&header.payload).unwrap();
        prop_assert_eq!(decoded, ContentHeader { body_size: body.len() as u64, properties });
        let mut received = Vec::new();
        while let Some(frame) = Frame::take(&mut wire, frame_max - FRAME_OVERHEAD).unwrap() {
            prop_assert_eq!((frame.kind, frame.channel), (FrameKind::Body, 3));
            received.extend_from_slice(&frame.payload);
        }
        prop_assert_eq!(received, body);
    }

    #[test]
    fn frames_arrive_in_pieces(
        payloads in vec(vec(any::<u8>(), 0..50), 1..5), piece in 1_usize..20
    ) {
        let mut whole = BytesMut::new();
        for payload in &payloads {
            write_frame(FrameKind::Body, 1, payload, &mut whole);
        }
        let (mut wire, mut received) = (BytesMut::new(), Vec::new());
        for part in whole.chunks(piece) {
            wire.extend_from_slice(part);
            while let Some(frame) = Frame::take(&mut wire, MAX_PAYLOAD).unwrap() {
                received.push(frame.payload.to_vec());
            }
        }
        prop_assert_eq!(received, payloads);
    }

    #[test]
    fn arbitrary_bytes_are_a_value_or_an_error(bytes in vec(any::<u8>(), 0..400)) {
        everything(&bytes);
    }

    #[test]
    fn damaged_methods_are_a_value_or_an_error(
        method in methods(), at in any::<proptest::sample::Index>(), byte in any::<u8>()
    ) {
        let mut payload = BytesMut::new();
        method.write(&mut payload);
        let at = at.index(payload.len());
        payload[at] = byte;
        everything(&payload);
    }

    #[test]
    fn a_checked_table_is_one_that_can_be_decoded(bytes in vec(any::<u8>(), 0..60)) {
        let bytes = Bytes::from(bytes);
        let checked = RawTable::checked(bytes.clone());
        let decoded = Table::read_entries(&bytes, Table::MAX_DEPTH - 1);
        prop_assert_eq!(checked.is_ok(), decoded.is_ok());
    }
}

/// Decodes bytes as everything.
fn everything(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    let _ = Frame::take(&mut BytesMut::from(&bytes[..]), MAX_PAYLOAD);
    let _ = Method::decode(&bytes);
    let _ = ContentHeader::decode(&bytes);
    if let Ok(properties) = Properties::decode(&bytes) {
        let _ = properties.headers.map(|headers| headers.decode());
    }
    if let Ok(table) = RawTable::checked(bytes) {
        let _ = table.decode();
    }
}

#[test]
fn tables_nested_too_deep_are_refused() {
    let nested = |depth: usize| {
        let mut table = Table::new();
        for _ in 1..depth {
            table = Table::new().with("t", table);
        }
        table.encode()
    };
    let checked = |depth| RawTable::checked(Bytes::copy_from_slice(nested(depth).as_bytes()));
    assert!(checked(Table::MAX_DEPTH).is_ok());
    assert_eq!(checked(Table::MAX_DEPTH + 1), Err(DecodeError::TooDeep));
    assert_eq!(nested(Table::MAX_DEPTH).decode(), checked(Table::MAX_DEPTH).unwrap().decode());
}

#[test]
fn a_wrong_frame_is_found_before_it_is_whole() {
    let take = |bytes: &[u8]| Frame::take(&mut BytesMut::from(bytes), 100);
    assert_eq!(take(b"G"), Err(DecodeError::UnknownFrame(b'G')));
    assert_eq!(take(&[1, 0, 0, 0, 0, 0, 101]), Err(DecodeError::FrameTooLarge { size: 101, limit: 100 }));
    assert_eq!(take(&[1, 0, 0, 0, 0, 0, 0, 0]), Err(DecodeError::FrameEnd(0)));
    assert_eq!(take(&[1, 0, 0]), Ok(None));
    let heartbeat = take(&HEARTBEAT).unwrap().unwrap();
    assert_eq!((heartbeat.kind, heartbeat.channel, heartbeat.payload.len()), (FrameKind::Heartbeat, 0, 0));
}

#[test]
fn bits_share_a_byte() {
    let mut wire = BytesMut::new();
    Method::from(basic::Nack { delivery_tag: 1, multiple: true, requeue: true }).write(&mut wire);
    assert_eq!(&wire[..], [0, 60, 0, 120, 0, 0, 0, 0, 0, 0, 0, 1, 0b11]);
}

/// As a Java client sends it: the specification's example of every type in one header.
#[test]
fn the_bytes_are_those_of_the_specification() {
    let table = Table::new().with("a", 1_i32).with("b", "x").with("c", Value::Void).with("d", true);
    assert_eq!(table.encode().as_bytes(), b"\x01aI\x00\x00\x00\x01\x01bS\x00\x00\x00\x01x\x01cV\x01dt\x01");
    let properties = Properties {
        content_type: ShortStr::try_from("text").ok(),
        delivery_mode: Some(2),
        ..Properties::default()
    };
    assert_eq!(&properties.encode()[..], b"\x90\x00\x04text\x02");
}

#[test]
fn texts_and_bodies_share_the_received_bytes() {
    let mut wire = BytesMut::new();
    let deliver = basic::Deliver { routing_key: ShortStr::from_static("orders"), ..Default::default() };
    Method::from(deliver).write_frame(1, &mut wire);
    let frame = Frame::take(&mut wire, MAX_PAYLOAD).unwrap().unwrap();
    let Method::Basic(Basic::Deliver(deliver)) = Method::decode(&frame.payload).unwrap() else { panic!() };
    let range = frame.payload.as_ptr_range();
    assert!(range.contains(&deliver.routing_key.as_bytes().as_ptr()));
}

#[test]
fn a_key_that_occurs_twice_counts_once() {
    let mut table = Table::new();
    table.push(ShortStr::from_static("k"), 1_i32);
    table.push(ShortStr::from_static("k"), 2_i32);
    assert_eq!(table.get("k"), Some(&Value::I32(1)));
    assert_eq!(table.encode().get("k"), Some(Value::I32(1)));
    assert_eq!(table.remove("k"), Some(Value::I32(1)));
    assert!(table.is_empty());
}

#[test]
fn a_long_text_is_cut_between_characters() {
    let text = "ä".repeat(200);
    let cut = ShortStr::truncated(&text);
    assert_eq!((cut.len(), cut.to_str().chars().count()), (254, 127));
    assert_eq!(ShortStr::truncated("short"), "short");
    assert_eq!(ShortStr::try_from(text), Err(TooLong(400)));
}
