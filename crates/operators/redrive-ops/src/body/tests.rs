use std::io::Write as _;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use proptest::prelude::*;

use super::*;

const TEXT: &str = r#"{"price": 1.10}"#;

pub(crate) fn gzip(text: &[u8]) -> Vec<u8> {
    let mut to = GzEncoder::new(Vec::new(), Compression::best());
    to.write_all(text).unwrap();
    to.finish().unwrap()
}

fn zlib(text: &[u8]) -> Vec<u8> {
    let mut to = ZlibEncoder::new(Vec::new(), Compression::fast());
    to.write_all(text).unwrap();
    to.finish().unwrap()
}

fn bare(text: &[u8]) -> Vec<u8> {
    let mut to = DeflateEncoder::new(Vec::new(), Compression::fast());
    to.write_all(text).unwrap();
    to.finish().unwrap()
}

fn encoded(encoding: &str, body: Vec<u8>) -> Message {
    let mut message = Message::new(body);
    message.properties_mut().content_encoding = Some(encoding.to_owned());
    message
}

#[test]
fn a_packed_body_is_looked_into() {
    let twice = zlib(&gzip(TEXT.as_bytes()));
    for (encoding, body) in [
        ("gzip", gzip(TEXT.as_bytes())),
        ("GZIP", [gzip(b"{\"price\""), gzip(b": 1.10}")].concat()),
        ("x-gzip", gzip(format!("\u{feff}{TEXT}").as_bytes())),
        ("deflate", zlib(TEXT.as_bytes())),
        ("deflate", bare(TEXT.as_bytes())),
        ("gzip, deflate", twice),
        ("utf-8", TEXT.into()),
        ("gzip", TEXT.into()),
        ("identity", TEXT.into()),
        ("", TEXT.into()),
    ] {
        let message = encoded(encoding, body);
        let view = BodyView::of(&message);
        assert_eq!((view.json(), view.problem()), (Some(TEXT), None), "{encoding}");
    }
}

#[test]
fn what_cannot_be_looked_into_says_why() {
    let whole = gzip(TEXT.as_bytes());
    let bomb = gzip(&vec![b' '; MOST_UNPACKED + 1]);
    assert!(bomb.len() < 10_000);
    for (encoding, body, why) in [
        ("gzip", whole[..whole.len() - 6].to_vec(), "no whole gzip"),
        ("gzip", vec![0xff; 9], "no whole gzip"),
        ("br", vec![0xff; 9], "`br` is not known"),
        ("gzip", bomb, "more than 4 MiB"),
    ] {
        let message = encoded(encoding, body);
        let view = BodyView::of(&message);
        assert!(view.problem().is_some_and(|problem| problem.contains(why)), "{:?}", view.problem());
    }
}

#[test]
fn a_value_of_amqp_1_0_is_unwrapped() {
    let sections = |bytes: &[u8]| {
        let message = Message::new(bytes.to_vec()).with_kind("amqp-1.0");
        let view = BodyView::of(&message);
        (view.text().map(str::to_owned), view.problem().is_some())
    };
    let text = |text: &str| (Some(text.to_owned()), false);
    assert_eq!(sections(b"\0\x53\x77\xa1\x05hello"), text("hello"));
    assert_eq!(sections(b"\0\x53\x77\xb1\0\0\0\x07{\"a\":1}"), text(r#"{"a":1}"#));
    assert_eq!(sections(b"\0\x53\x75\xa0\x02he\0\x53\x75\xa0\x03llo"), text("hello"));
    assert_eq!(
        sections(b"\0\x80\0\0\0\0\0\0\0\x77\x81\x7f\xff\xff\xff\xff\xff\xff\xff"),
        text("9223372036854775807")
    );
    assert_eq!(
        sections(b"\0\x53\x77\xc1\x12\x04\xa1\x02id\x54\x2a\xa1\x03sub\xc0\x04\x03\x41\x40\x44"),
        text(r#"{"id":42,"sub":[true,null,0]}"#)
    );
    assert_eq!(
        sections(b"\0\x53\x76\xc0\x03\x01\x54\x01\0\x53\x76\xc0\x04\x01\xa1\x01]"),
        text(r#"[1,"]"]"#)
    );
    assert_eq!(sections(b"\0\x53\x77\xe0\x04\x02\x50\x01\x02"), text("[1,2]"));
    for broken in [&b""[..], b"hello", b"\0\x53\x77\xa1\x09hello", b"\0\x53\x77\x40\x40", b"\0\x53\x70\x40"] {
        assert!(sections(broken).1, "{broken:?}");
    }
    // An array of four thousand million nulls.
    assert!(sections(b"\0\x53\x77\xf0\0\0\0\x05\xff\xff\xff\xff\x40").1);
    assert_eq!(
        BodyView::of(&Message::new("\0\x53\x77\x40")).text(),
        Some("\0\x53\x77\x40"),
        "of no such type"
    );
}

proptest! {
    #[test]
    fn no_body_makes_it_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        codes in prop::collection::vec(
            prop::sample::select(&b"\0\x01\x02\x03\x40\x45\x53\x54\x75\x76\x77\x83\xa1\xc0\xc1\xe0\xf0"[..]), 0..60,
        ),
        encoding in "(gzip|deflate|br|,| ){0,3}",
    ) {
        for body in [bytes.clone(), [&b"\0\x53\x77"[..], &codes].concat(), [&b"\0\x53\x76"[..], &bytes].concat()] {
            let message = encoded(&encoding, body).with_kind("amqp-1.0");
            let view = BodyView::of(&message);
            let _ = (view.text(), view.json(), view.pretty());
        }
    }
}
