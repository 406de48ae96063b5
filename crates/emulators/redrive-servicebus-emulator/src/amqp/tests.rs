use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<u8>().prop_map(Value::Ubyte),
        any::<u16>().prop_map(Value::Ushort),
        any::<u32>().prop_map(Value::Uint),
        (0..300u64).prop_map(Value::Ulong),
        any::<i8>().prop_map(Value::Byte),
        any::<i16>().prop_map(Value::Short),
        (-300..300i32).prop_map(Value::Int),
        any::<i64>().prop_map(Value::Long),
        (-1e9..1e9f32).prop_map(Value::Float),
        (-1e9..1e9f64).prop_map(Value::Double),
        any::<[u8; 4]>().prop_map(Value::Decimal32),
        any::<[u8; 8]>().prop_map(Value::Decimal64),
        any::<[u8; 16]>().prop_map(Value::Decimal128),
        any::<char>().prop_map(Value::Char),
        any::<i64>().prop_map(Value::Timestamp),
        any::<[u8; 16]>().prop_map(|bytes| Value::Uuid(Uuid::from_bytes(bytes))),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| Value::Binary(bytes.into())),
        ".{0,90}".prop_map(Value::String),
        "[a-z:.-]{0,90}".prop_map(Value::Symbol),
        prop::collection::vec(any::<u64>(), 1..40)
            .prop_map(|all| Value::Array(all.into_iter().map(Value::Ulong).collect())),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::List),
            prop::collection::vec((inner.clone(), inner.clone()), 0..4)
                .prop_map(|pairs| Value::Map(Map(pairs))),
            ("[a-z]{1,9}", inner).prop_map(|(name, value)| Value::described(Value::Symbol(name), value)),
        ]
    })
}

proptest! {
    #[test]
    fn a_value_comes_back_as_it_was(value in value()) {
        let mut bytes = BytesMut::new();
        encode_value(&value, &mut bytes);
        let mut reader = Reader::new(&bytes);
        prop_assert_eq!(reader.value(), Ok(value));
        prop_assert!(reader.is_empty());
        let mut reader = Reader::new(&bytes);
        prop_assert_eq!(reader.skip(), Ok(()));
        prop_assert!(reader.is_empty());
    }

    #[test]
    fn whatever_the_bytes_are_reading_ends(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Reader::new(&bytes).value();
        let _ = Reader::new(&bytes).skip();
        let _ = Message::decode(&bytes);
    }

    #[test]
    fn a_value_cut_off_anywhere_is_an_error(value in value(), cut in any::<prop::sample::Index>()) {
        let mut bytes = BytesMut::new();
        encode_value(&value, &mut bytes);
        let cut = cut.index(bytes.len());
        prop_assert!(Reader::new(&bytes[..cut]).value().is_err());
    }

    #[test]
    fn a_message_comes_back_as_it_was(
        id in value(), text in prop::option::of(".{0,300}"), key in ".{1,20}", property in value(), data in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut message = Message::with_data(data);
        message.header.ttl = Some(1000);
        message.header.delivery_count = 3;
        message.properties.message_id = id;
        message.properties.group_id = text;
        message.application_properties.insert(&key, property);
        message.message_annotations.insert_symbol("x-opt-sequence-number", Value::Long(7));
        prop_assert_eq!(Message::decode(&message.to_bytes()), Ok(message));
    }
}

#[test]
fn nesting_is_bounded_in_every_way_to_nest() {
    for nest in [&[0x00, 0x43][..], &[0x00][..], &[0xc0, 0xff, 0xff][..], &[0xe0, 0xff, 0x01, 0xe0][..]] {
        let bytes = nest.repeat(100_000);
        assert!(Reader::new(&bytes).value().is_err(), "{nest:x?}");
        let _ = Reader::new(&bytes).skip();
    }
}

#[test]
fn an_array_of_elements_without_bytes_cannot_be_made_long() {
    let bytes = [0xf0, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, 0x40];
    assert_eq!(Reader::new(&bytes).value(), Err(DecodeError::BadLength));
}

#[test]
fn a_body_goes_through_untouched_and_is_read_as_data_or_as_a_value() {
    let batch = [&[0x00, 0x53, 0x75, 0xa0, 1, 7][..], &[0x00, 0x53, 0x75, 0xb0, 0, 0, 0, 1, 8][..]].concat();
    let message = Message::decode(&batch).unwrap();
    assert_eq!(message.body, batch);
    assert_eq!(message.data(), Ok(vec![Bytes::from_static(&[7]), Bytes::from_static(&[8])]));
    assert_eq!(message.value(), None);
    assert_eq!(Message::with_value(&Value::Int(5)).value(), Some(Value::Int(5)));
}

#[test]
fn an_empty_array_is_readable() {
    let mut bytes = BytesMut::new();
    encode_value(&Value::Array(Vec::new()), &mut bytes);
    assert_eq!(Reader::new(&bytes).value(), Ok(Value::Array(Vec::new())));
}
