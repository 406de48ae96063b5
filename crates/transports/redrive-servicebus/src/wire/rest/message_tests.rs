//! Tests of converting messages to HTTP and back.

use super::*;
use crate::convert::Outgoing;

const LOCK: Uuid = Uuid::from_u128(7);

/// Sends a message, and reads it as the service delivers it.
fn carried(message: &redrive_core::Message) -> redrive_core::Message {
    let content = outgoing(convert::outgoing(message, Outgoing::default())).expect("it can be written");
    let mut headers = content.lines;
    headers.push((
        "content-type".to_owned(),
        content.content_type.unwrap_or(format!("{NO_CONTENT_TYPE};charset=utf-8")),
    ));
    headers.push(("location".to_owned(), format!("https://h/q/messages/1/{LOCK}")));
    headers.push(("server".to_owned(), "Microsoft-HTTPAPI/2.0".to_owned()));
    for (name, value) in &headers {
        assert!(value.chars().all(|c| matches!(c, ' '..='~')), "{name}: {value}");
    }
    let answer = Answer { status: 201, headers, body: content.body };
    incoming(answer, SystemTime::now()).expect("it is locked").incoming.message
}

#[test]
fn whatever_no_header_can_have_comes_back_as_it_was() {
    let mut message =
        redrive_core::Message::new(vec![0_u8, 255]).with_id("Grüße 👋").with_content_type("text/ä");
    let properties = message.properties_mut();
    properties.content_encoding = Some("gzip".into());
    properties.user_id = Some("me".into());
    properties.timestamp = Some(Timestamp::from_unix_millis(1_700_000_000_123));
    properties.persistent = Some(true);
    properties.kind = Some("order \"placed\"".into());
    properties.priority = Some(3);
    for (name, value) in [
        ("plain", Value::from("a text")),
        ("with \"quotes\"\\", Value::from("quoted \"text\"\\")),
        ("Upper-Case", Value::from("kept")),
        ("größe-📏", Value::from("L")),
        ("content-type", Value::from("not the message's")),
        ("host", Value::I64(7)),
        ("x-ms-request-id", Value::from("ours")),
        ("line\nbreak", Value::from("a\r\nb\u{7f}")),
        ("empty", Value::from("")),
        ("looks-like-a-number", Value::from("7")),
        ("number", Value::I64(i64::MIN)),
        ("small", Value::U8(7)),
        ("double", Value::F64(-0.1)),
        ("infinite", Value::F64(f64::INFINITY)),
        ("yes", Value::Bool(true)),
        ("null", Value::Null),
        ("bytes", Value::Bytes(bytes::Bytes::from_static(&[0, 255]))),
        ("list", Value::List(vec![Value::I32(1), "two".into()])),
    ] {
        message.headers_mut().insert(name, value);
    }
    assert_eq!(carried(&message), message);
}

#[test]
fn more_properties_than_lines_go_together() {
    let mut message = redrive_core::Message::new("").with_id("a");
    message.properties_mut().persistent = Some(true);
    for n in 0..200 {
        message.headers_mut().insert(format!("header-{n}"), i64::from(n));
    }
    let content = outgoing(convert::outgoing(&message, Outgoing::default())).expect("it can be written");
    assert!(content.lines.len() <= MAX_PROPERTY_LINES + 2, "{}", content.lines.len());
    assert_eq!(carried(&message), message);
}

#[test]
fn what_others_wrote_is_read() {
    let headers = [
        ("priority", "\"High\""),
        ("customer", "12345,ABC"),
        ("count", "12"),
        ("deadletterreason", "\"MaxDeliveryCountExceeded\""),
        ("content-type", "application/atom+xml;type=entry;charset=utf-8"),
        (
            "brokerproperties",
            r#"{"SequenceNumber":1,"LockToken":"00000000-0000-0000-0000-000000000007","TimeToLive":10}"#,
        ),
    ];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let read = incoming(Answer { status: 201, headers, body: "text".into() }, SystemTime::now())
        .expect("it is locked");
    let incoming = read.incoming.read_from("orders/$deadletterqueue");
    let (message, reason) = (incoming.message, incoming.dead_letter_reason);
    assert_eq!(reason.as_deref(), Some("MaxDeliveryCountExceeded"));
    assert_eq!(message.properties().content_type, None, "it had none");
    assert_eq!(message.properties().expiration, Some(Duration::from_secs(10)));
    assert_eq!(message.headers().get("priority"), Some(&"High".into()));
    assert_eq!(message.headers().get("customer"), Some(&"12345,ABC".into()));
    assert_eq!(message.headers().get("count"), Some(&Value::I64(12)));
}

#[test]
fn a_wait_is_never_cut_short_by_whole_seconds() {
    assert_eq!(whole_seconds(1_000).unix_timestamp(), 1);
    assert_eq!(whole_seconds(1_001).unix_timestamp(), 2);
    assert_eq!(whole_seconds(-1).unix_timestamp(), 0);
}

#[test]
fn a_lock_lasts_by_the_brokers_clock() {
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    assert_eq!(lasts(Some(at(160)), at(100)), Duration::from_secs(59));
    assert_eq!(lasts(None, at(100)), ASSUMED_LOCK_DURATION - ROUNDING);
    assert_eq!(lasts(Some(at(100)), at(100)), Duration::from_millis(500));
}

/// Other clients send properties with any name, and their copies have them.
#[test]
fn a_property_with_the_name_of_a_header_of_http_is_kept() {
    let lines = [
        ("brokerproperties", r#"{"SequenceNumber":1}"#),
        ("location", "https://h/q/messages/1/00000000-0000-0000-0000-000000000007"),
        ("content-type", "text/plain"),
        ("content-length", "0"),
        ("date", "Wed, 02 Jul 2014 01:32:27 GMT"),
        ("server", "Microsoft-HTTPAPI/2.0"),
        ("strict-transport-security", "max-age=31536000"),
        ("x-ms-request-id", "6a7f0e0c-3f35-4d3c-8f8e-1c2f4c2f5a11"),
        ("server", r#""db-1""#),
        ("link", r#""https://shop/1""#),
        ("age", "5"),
        ("date", r#""tomorrow""#),
        ("location", r#""Berlin""#),
        ("via", "true"),
        ("x-ms-kind", r#""ours""#),
    ];
    let headers = lines.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let answer = Answer { status: 201, headers, body: bytes::Bytes::new() };
    let message = incoming(answer, SystemTime::now()).expect("it is locked").incoming.message;
    let expected = [
        ("age", Value::I64(5)),
        ("date", "tomorrow".into()),
        ("link", "https://shop/1".into()),
        ("location", "Berlin".into()),
        ("server", "db-1".into()),
        ("via", Value::Bool(true)),
        ("x-ms-kind", "ours".into()),
    ];
    for (name, value) in &expected {
        assert_eq!(message.headers().get(name), Some(value), "{name}");
    }
    assert_eq!(message.headers().iter().count(), expected.len());
    let again = carried(&message);
    assert_eq!(again.headers(), message.headers(), "and a copy of it");
}
