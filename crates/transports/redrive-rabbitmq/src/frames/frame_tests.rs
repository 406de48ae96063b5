use lapin::types::parsing::parse_field_table;
use proptest::prelude::*;

use super::*;

/// Creates a content header with the given headers and message id.
fn header(headers: &[u8], message_id: &[u8]) -> Vec<u8> {
    let mut payload = vec![0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    payload.extend(((1_u16 << 13) | (1 << 12) | (1 << 7) | (1 << 6)).to_be_bytes());
    payload.extend(long(headers));
    payload.push(2);
    payload.extend(short(message_id));
    payload.extend([0; 8]);
    payload
}

fn short(text: &[u8]) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()], text].concat()
}

fn long(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
}

fn entry(name: &[u8], field_type: u8, value: &[u8]) -> Vec<u8> {
    [&short(name), &[field_type][..], value].concat()
}

/// Creates arrays nested `depth` times.
fn nested(depth: usize) -> Vec<u8> {
    let mut value = long(b"");
    for _ in 1..depth {
        value = long(&[b"A", &value[..]].concat());
    }
    entry(b"nested", b'A', &value)
}

#[test]
fn what_is_readable_stays_as_it_is() {
    let headers = [
        entry("grüße".as_bytes(), b'S', &long(&[0xff, 0xfe])),
        entry(b"count", b'l', &[7; 8]),
        entry(b"table", b'F', &long(&entry(b"inner", b't', &[1]))),
        nested(DEEPEST - 1),
    ]
    .concat();
    let before = header(&headers, "größe-1".as_bytes());
    let mut after = before.clone();
    assert_eq!(make_readable(HEADER, &mut after), Changed::default());
    assert_eq!(after, before);
}

#[test]
fn text_that_is_not_utf_8_becomes_readable_wherever_it_stands() {
    let latin_1 = b"Gr\xfc\xdfe";
    let changed = |mut payload: Vec<u8>, frame_type| (make_readable(frame_type, &mut payload), payload);
    let text = Changed { text: true, depth: false };
    assert_eq!(changed(header(b"", latin_1), HEADER), (text, header(b"", b"Gr??e")));
    let named = |name: &[u8]| header(&entry(b"a", b'F', &long(&entry(name, b'V', b""))), b"m");
    assert_eq!(changed(named(latin_1), HEADER), (text, named(b"Gr??e")));
    let deliver =
        |key: &[u8]| [&[0, 60, 0, 60][..], &short(b"ctag"), &[0; 9], &short(b""), &short(key)].concat();
    assert_eq!(changed(deliver(latin_1), METHOD), (text, deliver(b"Gr??e")));
    // RabbitMQ cuts long reasons by bytes.
    let close = |reason: &[u8]| [&[0, 20, 0, 40, 1, 148][..], &short(reason), &[0; 4]].concat();
    assert_eq!(changed(close(b"no queue '\xc3"), METHOD), (text, close(b"no queue '?")));
}

#[test]
fn what_is_nested_too_deeply_becomes_bytes() {
    for depth in [DEEPEST, DEEPEST + 1, 5000] {
        let mut payload = header(&nested(depth), b"m");
        let length = payload.len();
        assert_eq!(make_readable(HEADER, &mut payload), Changed { text: false, depth: true }, "{depth}");
        assert_eq!(payload.len(), length);
        assert!(parse_field_table::<&[u8]>(&payload[14..]).is_ok());
        assert!(!make_readable(HEADER, &mut payload).anything(), "readable is readable");
    }
}

fn value(depth: u32) -> BoxedStrategy<Vec<u8>> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..12);
    let leaf = prop_oneof![
        bytes.clone().prop_map(|bytes| [b"S", &long(&bytes)[..]].concat()),
        bytes.prop_map(|bytes| [b"x", &long(&bytes)[..]].concat()),
        any::<[u8; 8]>().prop_map(|bytes| [b"l", &bytes[..]].concat()),
        any::<[u8; 5]>().prop_map(|bytes| [b"D", &bytes[..]].concat()),
        Just(b"V".to_vec()),
    ];
    leaf.prop_recursive(depth, 64, 4, |inner| {
        let name = proptest::collection::vec(any::<u8>(), 0..12);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(|values| [
                b"A",
                &long(&values.concat())[..]
            ]
            .concat()),
            proptest::collection::vec((name, inner), 0..4).prop_map(|entries| {
                let entries: Vec<_> =
                    entries.iter().map(|(name, value)| [&short(name)[..], value].concat()).collect();
                [b"F", &long(&entries.concat())[..]].concat()
            }),
        ]
    })
    .boxed()
}

proptest! {
    #[test]
    fn the_library_reads_whatever_headers_there_are(values in proptest::collection::vec(value(6), 0..5)) {
        let headers: Vec<_> = values.iter().map(|value| [&short(b"\xfcber")[..], value].concat()).collect();
        let mut payload = header(&headers.concat(), b"m");
        make_readable(HEADER, &mut payload);
        prop_assert!(parse_field_table::<&[u8]>(&payload[14..]).is_ok());
        prop_assert!(!make_readable(HEADER, &mut payload).anything());
    }

    #[test]
    fn no_frame_makes_it_panic(frame_type in 0..9_u8, mut payload in proptest::collection::vec(any::<u8>(), 0..200)) {
        let length = payload.len();
        make_readable(frame_type, &mut payload);
        prop_assert_eq!(payload.len(), length);
    }

    #[test]
    fn no_header_cut_short_makes_it_panic(values in proptest::collection::vec(value(4), 0..5), keep in 0.0..1.0) {
        let headers: Vec<_> = values.iter().map(|value| [&short(b"n")[..], value].concat()).collect();
        let mut payload = header(&headers.concat(), b"m");
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        payload.truncate((payload.len() as f64 * keep) as usize);
        make_readable(HEADER, &mut payload);
    }
}
