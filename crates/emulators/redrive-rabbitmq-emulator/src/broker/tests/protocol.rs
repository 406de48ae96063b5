use redrive_amqp091::{basic, connection, exchange, queue};

use super::*;
use crate::broker::access::{Pattern, Permission};

#[test]
fn a_wrong_password_is_refused() {
    let mut world = World::new(Version::V4_3);
    let who = world.connect("guest", "wrong", true);
    let text = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile.";
    assert_eq!(world.closed(who), Some((403, text.to_owned())));
    world.send(who, 0, connection::CloseOk {});
    assert!(world.broker.is_over(world.id(who)));
    // Without the capability the connection just ends.
    let who = world.connect("guest", "wrong", false);
    assert_eq!(world.names(who), ["connection.Start"]);
    assert!(world.broker.is_over(world.id(who)));
}

#[test]
fn amqplain_logs_in_too() {
    let mut world = World::new(Version::V4_3);
    let id = world.broker.connect("test".to_owned(), world.now);
    let mut decoder = Decoder::new(1 << 20);
    let mut commands = Vec::new();
    let mut bytes = BytesMut::from(&PROTOCOL_HEADER[..]);
    let response = Table::new().with("LOGIN", "guest").with("PASSWORD", "guest").encode();
    Method::from(connection::StartOk {
        mechanism: short("AMQPLAIN"),
        response: bytes::Bytes::copy_from_slice(response.as_bytes()),
        ..Default::default()
    })
    .write_frame(0, &mut bytes);
    decoder.decode(&mut bytes, &mut commands);
    world.broker.handle(id, commands, world.now);
    assert!(!world.broker.is_over(id));
}

#[test]
fn another_protocol_hears_the_right_header() {
    for header in [&b"AMQP\x00\x01\x00\x00"[..], b"AMQP\x03\x01\x00\x00", b"GET / HTTP/1.1\r\n"] {
        let mut world = World::new(Version::V4_3);
        let id = world.broker.connect("test".to_owned(), world.now);
        let mut commands = Vec::new();
        Decoder::new(1 << 20).decode(&mut BytesMut::from(header), &mut commands);
        world.broker.handle(id, commands, world.now);
        assert_eq!(&world.broker.take_output(id, world.now)[..], PROTOCOL_HEADER);
        assert!(world.broker.is_over(id));
    }
}

#[test]
fn refusals_have_rabbitmqs_codes_and_texts() {
    for version in BOTH {
        let cases: Vec<(Method, u16, &str)> = vec![
            (
                queue::Declare { passive: true, ..declaration("no", Table::new()) }.into(),
                404,
                "NOT_FOUND - no queue 'no' in vhost '/'",
            ),
            (
                queue::Declare { durable: false, ..declaration("q", Table::new()) }.into(),
                406,
                "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/': received 'false' but current is 'true'",
            ),
            (
                declaration("q", Table::new().with("x-message-ttl", 1_i32)).into(),
                406,
                "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received the value '1' of type 'signedint' but current is none",
            ),
            (
                queue::Declare { exclusive: true, ..declaration("q", Table::new()) }.into(),
                405,
                "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in vhost '/'. It could be originally declared on another connection or the exclusive property value does not match that of the original declaration.",
            ),
            (
                declaration("amq.q", Table::new()).into(),
                403,
                "ACCESS_REFUSED - queue name 'amq.q' contains reserved prefix 'amq.*'",
            ),
            (
                declaration("z", Table::new().with("x-dead-letter-routing-key", "k")).into(),
                406,
                "PRECONDITION_FAILED - invalid arg 'x-dead-letter-routing-key' for queue 'z' in vhost '/': routing_key_but_no_dlx_defined",
            ),
            (
                declaration("z", Table::new().with("x-queue-type", "stream")).into(),
                540,
                "NOT_IMPLEMENTED - queue 'z' in vhost '/': the emulator has no streams; use x-queue-type classic or quorum",
            ),
            (
                queue::Declare { durable: false, ..declaration("z", of(QueueKind::Quorum)) }.into(),
                406,
                "PRECONDITION_FAILED - invalid property 'non-durable' for queue 'z' in vhost '/'",
            ),
            (
                queue::Delete { queue: short("full"), if_empty: true, ..Default::default() }.into(),
                406,
                "PRECONDITION_FAILED - queue 'full' in vhost '/' not empty",
            ),
            (
                exchange::Delete { exchange: short("amq.direct"), ..Default::default() }.into(),
                403,
                "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '/' not allowed",
            ),
            (
                exchange::Declare {
                    exchange: short("amq.direct"),
                    kind: short("fanout"),
                    durable: true,
                    ..Default::default()
                }
                .into(),
                406,
                "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'amq.direct' in vhost '/': received 'fanout' but current is 'direct'",
            ),
            (
                queue::Bind { queue: short("q"), exchange: short("no"), ..Default::default() }.into(),
                404,
                "NOT_FOUND - no exchange 'no' in vhost '/'",
            ),
            (
                basic::Ack { delivery_tag: 7, multiple: false }.into(),
                406,
                "PRECONDITION_FAILED - unknown delivery tag 7",
            ),
            (
                basic::Qos { prefetch_size: 3, ..Default::default() }.into(),
                540,
                "NOT_IMPLEMENTED - prefetch_size!=0 (3)",
            ),
            (basic::Recover { requeue: false }.into(), 540, "NOT_IMPLEMENTED - requeue=false"),
            (
                redrive_amqp091::channel::Open::default().into(),
                504,
                "CHANNEL_ERROR - second 'channel.open' seen",
            ),
        ];
        for (method, code, text) in cases {
            let mut world = World::new(version);
            let who = world.client();
            world.declare(who, "q", of(QueueKind::Classic));
            world.declare(who, "full", of(QueueKind::Classic));
            world.publish(who, "full", "x");
            world.send(who, 1, method);
            assert_eq!(world.closed(who), Some((code, text.to_owned())));
        }
    }
}

#[test]
fn an_unknown_exchange_type_closes_the_connection_on_3_10_and_the_channel_on_4_3() {
    for (version, closing) in [(Version::V3_10, "connection.Close"), (Version::V4_3, "channel.Close")] {
        let mut world = World::new(version);
        let who = world.client();
        world.send(
            who,
            1,
            exchange::Declare { exchange: short("x"), kind: short("odd"), ..Default::default() },
        );
        assert_eq!(world.names(who), [closing]);
    }
}

#[test]
fn a_closed_channel_ignores_everything_until_the_client_knows() {
    let mut world = World::new(Version::V4_3);
    let who = world.client();
    world.open_channel(who, 2);
    world.declare(who, "q", of(QueueKind::Classic));
    world.publish_with(who, "missing", "q", "x", Properties::default());
    assert_eq!(world.closed(who).map(|(code, _)| code), Some(404));
    world.publish(who, "q", "ignored");
    world.send(who, 1, queue::Delete { queue: short("q"), ..Default::default() });
    assert_eq!((world.names(who).len(), world.ready("q")), (0, 0));
    world.send(who, 2, basic::Qos::default());
    assert_eq!(world.names(who), ["basic.QosOk"], "other channels live on");
    world.send(who, 1, redrive_amqp091::channel::CloseOk {});
    world.open_channel(who, 1);
    world.publish(who, "q", "x");
    assert_eq!(world.ready("q"), 1);
}

#[test]
fn confirms_follow_returns_and_count_every_publish() {
    for (version, kind) in combinations() {
        let mut world = World::new(version);
        let who = world.client();
        world.declare(who, "q", of(kind));
        world.confirms(who);
        let publish =
            |key: &str| basic::Publish { routing_key: short(key), mandatory: true, ..Default::default() };
        world.publish_as(who, 1, publish("q"), "1", &Properties::default());
        world.publish_as(who, 1, publish("nowhere"), "2", &Properties::default());
        let heard = world.heard(who);
        let expected = [
            Heard::Method(1, basic::Ack { delivery_tag: 1, multiple: false }.into()),
            Heard::Message(
                1,
                basic::Return {
                    reply_code: 312,
                    reply_text: short("NO_ROUTE"),
                    exchange: short(""),
                    routing_key: short("nowhere"),
                }
                .into(),
                Got { key: "nowhere".to_owned(), body: "2".to_owned(), ..Got::default() },
            ),
            Heard::Method(1, basic::Ack { delivery_tag: 2, multiple: false }.into()),
        ];
        assert_eq!(heard, expected);
    }
}

#[test]
fn publishes_of_one_read_are_confirmed_together() {
    let mut world = World::new(Version::V4_3);
    let who = world.client();
    world.declare(who, "q", of(QueueKind::Classic));
    world.confirms(who);
    let mut bytes = BytesMut::new();
    for _ in 0..3 {
        Method::from(basic::Publish { routing_key: short("q"), ..Default::default() })
            .write_frame(1, &mut bytes);
        write_content(1, &Properties::default().encode(), b"x", 131_072, &mut bytes);
    }
    world.send_bytes(who, &bytes);
    assert_eq!(world.methods(who), [basic::Ack { delivery_tag: 3, multiple: true }.into()]);
}

#[test]
fn an_unroutable_message_without_mandatory_is_confirmed_and_dropped() {
    let mut world = World::new(Version::V4_3);
    let who = world.client();
    world.confirms(who);
    world.publish(who, "nowhere", "x");
    assert_eq!(world.names(who), ["basic.Ack"]);
    assert_eq!(world.dropped(), [(String::new(), DropReason::Unroutable)]);
}

#[test]
fn immediate_is_refused() {
    let mut world = World::new(Version::V4_3);
    let who = world.client();
    world.publish_as(
        who,
        1,
        basic::Publish { immediate: true, ..Default::default() },
        "x",
        &Properties::default(),
    );
    assert_eq!(world.closed(who), Some((540, "NOT_IMPLEMENTED - immediate=true".to_owned())));
}

#[test]
fn a_message_that_is_too_large_closes_its_channel() {
    for version in BOTH {
        let mut options = Options::new(version);
        options.max_message_size = 10;
        let mut world = World::with(options);
        let who = world.client();
        world.declare(who, "q", of(QueueKind::Classic));
        world.publish(who, "q", "0123456789");
        world.publish(who, "q", "0123456789x");
        let text = "PRECONDITION_FAILED - message size 11 is larger than configured max size 10";
        assert_eq!(world.closed(who), Some((406, text.to_owned())));
        assert_eq!(world.ready("q"), 1);
    }
}

#[test]
fn another_users_id_is_refused() {
    let mut world = World::new(Version::V4_3);
    let who = world.client();
    world.declare(who, "q", of(QueueKind::Classic));
    let from = |user: &str| Properties { user_id: Some(short(user)), ..Properties::default() };
    world.publish_with(who, "", "q", "x", from("guest"));
    world.publish_with(who, "", "q", "x", from("bob"));
    let text = "PRECONDITION_FAILED - user_id property set to 'bob' but authenticated user was 'guest'";
    assert_eq!(world.closed(who), Some((406, text.to_owned())));
}

#[test]
fn permissions_name_what_was_refused() {
    for (version, text) in [
        (
            Version::V3_10,
            "ACCESS_REFUSED - access to exchange 'amq.default' in vhost '/' refused for user 'bob'",
        ),
        (
            Version::V4_3,
            "ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for user 'bob'",
        ),
    ] {
        let mut world = World::new(version);
        let none = || Pattern::parse("").unwrap();
        world.user("bob", Permission { configure: none(), write: none(), read: none() });
        let who = world.connect("bob", "bob", true);
        world.open_channel(who, 1);
        world.publish(who, "q", "x");
        assert_eq!(world.closed(who), Some((403, text.to_owned())));
    }
}

#[test]
fn settling_several_at_once() {
    for (version, kind) in combinations() {
        let mut world = World::new(version);
        let who = world.client();
        world.declare(who, "q", of(kind));
        for number in 0..4 {
            world.publish(who, "q", &number.to_string());
        }
        world.consume(who, "q", "c");
        let tags: Vec<u64> = world.deliveries(who).iter().map(|got| got.tag).collect();
        world.send(who, 1, basic::Ack { delivery_tag: tags[1], multiple: true });
        assert_eq!(world.counts("q").unacked, 2);
        world.send(who, 1, basic::Nack { delivery_tag: 0, multiple: true, requeue: true });
        assert_eq!(world.bodies(who), ["2", "3"]);
        world.send(who, 1, basic::Ack { delivery_tag: 0, multiple: true });
        world.send(who, 1, basic::Ack { delivery_tag: 0, multiple: true });
        assert_eq!(world.closed(who), None, "nothing is outstanding: no harm");
        world.send(who, 1, basic::Ack { delivery_tag: 99, multiple: true });
        assert_eq!(world.closed(who).map(|(code, _)| code), Some(406));
    }
}

#[test]
fn a_wrong_tag_gives_everything_else_back() {
    for (version, kind) in combinations() {
        let mut world = World::new(version);
        let who = world.client();
        world.declare(who, "q", of(kind));
        world.publish(who, "q", "x");
        let got = world.get(who, "q").expect("a message");
        world.ack(who, got.tag + 1);
        assert_eq!((world.ready("q"), world.counts("q").unacked), (1, 0));
    }
}

#[test]
fn limits_are_negotiated() {
    for (version, frame_max, accepted) in [
        (Version::V3_10, 4096, true),
        (Version::V3_10, 4095, false),
        (Version::V4_3, 4096, false),
        (Version::V4_3, 8192, true),
        (Version::V4_3, 131_073, false),
        (Version::V4_3, 0, false),
    ] {
        let mut world = World::new(version);
        let id = world.broker.connect("test".to_owned(), world.now);
        let mut decoder = Decoder::new(1 << 20);
        let (mut commands, mut bytes) = (Vec::new(), BytesMut::from(&PROTOCOL_HEADER[..]));
        let response = bytes::Bytes::from_static(b"\0guest\0guest");
        Method::from(connection::StartOk { mechanism: short("PLAIN"), response, ..Default::default() })
            .write_frame(0, &mut bytes);
        Method::from(connection::TuneOk { channel_max: 10, frame_max, heartbeat: 0 })
            .write_frame(0, &mut bytes);
        Method::from(connection::Open { virtual_host: short("/"), ..Default::default() })
            .write_frame(0, &mut bytes);
        decoder.decode(&mut bytes, &mut commands);
        world.broker.handle(id, commands, world.now);
        assert_eq!(world.broker.is_open(id), accepted, "{version} {frame_max}");
    }
}

#[test]
fn frames_out_of_order_close_the_connection() {
    let body_first = |bytes: &mut BytesMut| redrive_amqp091::write_frame(FrameKind::Body, 1, b"x", bytes);
    let method_instead = |bytes: &mut BytesMut| {
        Method::from(basic::Publish::default()).write_frame(1, bytes);
        Method::from(basic::Qos::default()).write_frame(1, bytes);
    };
    let garbage = |bytes: &mut BytesMut| bytes.extend_from_slice(&[1, 0, 1, 0, 0, 0, 1, 0, 0]);
    let unknown =
        |bytes: &mut BytesMut| redrive_amqp091::write_frame(FrameKind::Method, 1, &[0, 99, 0, 1], bytes);
    type Write = fn(&mut BytesMut);
    let cases: [(Write, u16); 4] = [(body_first, 505), (method_instead, 505), (garbage, 501), (unknown, 503)];
    for (write, code) in cases {
        let mut world = World::new(Version::V4_3);
        let who = world.client();
        let mut bytes = BytesMut::new();
        write(&mut bytes);
        world.send_bytes(who, &bytes);
        assert_eq!(world.closed(who).map(|(code, _)| code), Some(code));
    }
}

#[test]
fn a_body_of_many_frames_is_put_together() {
    let mut world = World::new(Version::V4_3);
    let who = world.client();
    world.declare(who, "q", of(QueueKind::Quorum));
    let body = "0123456789".repeat(50_000);
    world.publish(who, "q", &body);
    assert_eq!(world.take(who, "q").expect("it").body, body);
}

#[test]
fn a_missing_virtual_host_is_refused() {
    let mut world = World::new(Version::V4_3);
    let id = world.broker.connect("test".to_owned(), world.now);
    let mut decoder = Decoder::new(1 << 20);
    let (mut commands, mut bytes) = (Vec::new(), BytesMut::from(&PROTOCOL_HEADER[..]));
    let response = bytes::Bytes::from_static(b"\0guest\0guest");
    Method::from(connection::StartOk { mechanism: short("PLAIN"), response, ..Default::default() })
        .write_frame(0, &mut bytes);
    Method::from(connection::TuneOk { channel_max: 10, frame_max: 131_072, heartbeat: 0 })
        .write_frame(0, &mut bytes);
    Method::from(connection::Open { virtual_host: short("no"), ..Default::default() })
        .write_frame(0, &mut bytes);
    decoder.decode(&mut bytes, &mut commands);
    world.broker.handle(id, commands, world.now);
    let output = world.broker.take_output(id, world.now);
    assert!(String::from_utf8_lossy(&output).contains("NOT_ALLOWED - vhost no not found"));
}
