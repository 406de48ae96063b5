use super::*;

#[test]
fn a_clone_is_not_changed_by_its_twin() {
    let mut first = Headers::from_iter([("a", 1_i64)]);
    let second = first.clone();
    first.insert("a", 2_i64);
    assert_eq!(second.get("a"), Some(&Value::I64(1)));
}

#[test]
fn headers_that_were_all_taken_out_are_none() {
    let mut headers = Headers::from_iter([("a", 1_i64)]);
    headers.remove("a");
    assert_eq!((headers.is_empty(), headers.iter().count()), (true, 0));
    assert_eq!(headers, Headers::new());
    assert_eq!(headers.encoded_len(), Headers::new().encoded_len());
}

#[test]
fn headers_are_ordered_by_name_and_the_last_of_a_name_counts() {
    let entries = [("b", 1_i64), ("c", 2), ("a", 3), ("b", 4), ("b", 5)];
    let mut headers = Headers::from_iter(entries);
    let mut one_by_one = Headers::new();
    for (name, value) in entries {
        one_by_one.insert(name, value);
    }
    assert_eq!(headers, one_by_one);
    let shown = |headers: &Headers| headers.iter().map(|(name, _)| name.to_owned()).collect::<String>();
    assert_eq!((shown(&headers), headers.get("b")), ("abc".to_owned(), Some(&Value::I64(5))));
    assert_eq!(headers.insert("ab", 6_i64), None);
    assert_eq!(headers.insert("a", 7_i64), Some(Value::I64(3)));
    assert_eq!(headers.remove("b"), Some(Value::I64(5)));
    assert_eq!(headers.remove("b"), None);
    assert_eq!((shown(&headers), headers.contains("ab")), ("aabc".to_owned(), true));
}

#[test]
fn integers_are_read_from_every_width_and_from_text() {
    for value in [Value::I8(5), Value::U64(5), Value::F64(5.0), Value::String(" 5 ".into())] {
        assert_eq!(value.to_integer(), Some(5), "{value:?}");
    }
    for value in [Value::F64(5.5), Value::F64(f64::NAN), Value::String("five".into()), Value::Null] {
        assert_eq!(value.to_integer(), None, "{value:?}");
    }
}

#[test]
fn timestamps_survive_their_extremes() {
    assert_eq!(Timestamp::from_unix_seconds(u64::MAX).unix_seconds(), u64::MAX);
    assert_eq!(Timestamp::from_unix_millis(i64::MIN).unix_millis(), i64::MIN);
    assert_eq!(Timestamp::from_unix_seconds(u64::MAX).unix_millis(), i64::MAX);
}
