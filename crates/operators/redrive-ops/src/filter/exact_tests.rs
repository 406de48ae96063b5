//! Numbers, packed bodies, and times that are not plausible.

use std::time::{Duration, SystemTime};

use redrive_core::{Message, Value};

use super::tests::{entry, matches, now};
use super::*;
use crate::group::Template;

#[test]
fn a_number_is_compared_digit_by_digit() {
    let body = r#"{"id": 12345678901234567890123, "price": 1.10, "count": 1e2, "far": 1e400, "zero": -0.0, "text": "1.10", "a": [1e999, {"b": 7}]}"#;
    let with_headers = Message::new(body)
        .with_header("half", Value::F64(0.5))
        .with_header("price", Value::Decimal { scale: 2, value: 150 })
        .with_header("text", "1.10");
    let entry = entry(with_headers);
    for filter in [
        "body.id=12345678901234567890123",
        "body.id=12345678901234567890123.0",
        "body.price:1.1",
        "body.price:1.10",
        "body.price~1.10",
        "body.count:100",
        "body.count:1e2",
        "body.far:10e399",
        "body.zero:0",
        "body.text:1.10",
        "body.a.b:7",
        "header.half:0.50",
        "header.price:1.5",
        "header.text:1.10",
        "-body.id=12345678901234567890124",
    ] {
        assert!(matches(filter, &entry), "{filter}");
    }
    for filter in [
        "body.id=12345678901234567890124",
        "body.id=1.2345678901234568e22",
        "body.price:1.1000000000000000001",
        "body.far:1e401",
        "body.far:inf",
        "body.text:1.1",
        "header.text:1.1",
        "header.half:0.50000000000000000001",
    ] {
        assert!(!matches(filter, &entry), "{filter}");
    }
}

#[test]
fn a_packed_or_marked_body_is_looked_into() {
    let json = r#"{"order": {"id": 42}}"#;
    let mut packed = Message::new(crate::body::tests::gzip(json.as_bytes()));
    packed.properties_mut().content_encoding = Some("gzip".to_owned());
    for message in [packed, Message::new(format!("\u{feff}{json}"))] {
        let entry = entry(message);
        assert!(matches("body.order.id=42", &entry) && matches("order", &entry));
        assert!(!matches("body.order.id=43", &entry) && matches("-body.order.id=43", &entry));
    }
}

#[test]
fn what_hangs_on_a_body_that_nobody_can_look_into_selects_nothing() {
    let mut packed = Message::new(vec![0xff; 9]).with_header("tenant", "blue").with_id("order-7");
    packed.properties_mut().content_encoding = Some("br".to_owned());
    let entry = entry(packed);
    let judge = |filter: &str| {
        let filter: Filter = filter.parse().unwrap();
        filter.judge(&entry, Template::of(&entry).id(), now())
    };
    for filter in
        ["body.a:1", "-body.a:1", "late", "-late", "header.tenant:blue -body.a:1", "id:x or body.a:1"]
    {
        assert_eq!(judge(filter), Verdict::Unknown, "{filter}");
    }
    for filter in ["", "header.tenant:blue", "order-7", "header.tenant:blue or body.a:1"] {
        assert_eq!(judge(filter), Verdict::Matches, "{filter}");
    }
    for filter in ["header.tenant:green body.a:1", "body.a:1 -id:order-7"] {
        assert_eq!(judge(filter), Verdict::Differs, "{filter}");
    }
}

#[test]
fn a_time_beyond_reason_is_no_age() {
    let mut entry = entry(Message::new(""));
    for time in [SystemTime::UNIX_EPOCH, now() + Duration::from_secs(1 << 40)] {
        entry.shelved_at = Some(time);
        assert!(!matches("age>0s", &entry) && !matches("age<=9999days", &entry));
    }
}
