//! The language, with arbitrary texts, filters and messages.

use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use redrive_core::shelves::{EntryHandle, Shelved};
use redrive_core::{Message, Shelf, Value, header_names as names};

use super::condition::{Comparison, Condition, CountField, Term, Test, TextField};
use super::*;
use crate::group::Template;

pub(super) fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

pub(super) fn entry(message: Message) -> Shelved {
    Shelved::new(EntryHandle::new(Shelf::DeadLetter, "1"), message)
}

/// Failed two hours ago.
fn order() -> Shelved {
    let body = r#"{"order": {"id": 42, "total": 1.50, "paid": false, "note": null, "lines": [{"sku": "A1"}, {"sku": "B2"}]}, "a.b": "c"}"#;
    let message = Message::new(body)
        .with_id("order-7")
        .with_kind("order.placed")
        .with_header("tenant", "blue")
        .with_header("shard", 3_i64)
        .with_header("my tenant", "Ünal")
        .with_header(names::REASON, "RetryableError")
        .with_header(names::ERROR, "Request Timed Out")
        .with_header(names::ERROR_TYPE, "shop::Timeout")
        .with_header(names::SOURCE_QUEUE, "orders")
        .with_header(names::ATTEMPT, 3_i64)
        .with_header(names::REDRIVES, 1_i64);
    let mut entry = entry(message);
    entry.shelved_at = Some(now() - Duration::from_secs(2 * 60 * 60));
    entry
}

pub(super) fn matches(filter: &str, entry: &Shelved) -> bool {
    let filter: Filter = filter.parse().unwrap_or_else(|error| panic!("{error}"));
    filter.matches(entry, Template::of(entry).id(), now())
}

#[test]
fn each_term_matches_what_it_says() {
    let entry = order();
    let group = Template::of(&entry).id();
    let holding = [
        "",
        "reason:RetryableError",
        "reason=RetryableError",
        "reason~retryable",
        "type:shop::Timeout",
        r#"error~"timed out""#,
        r#"error:"Request Timed Out""#,
        "source:orders",
        "id:order-7",
        "kind:order.placed",
        "age>1h",
        "age>=2h",
        "age<=2h",
        "age<1day",
        "attempt>=3",
        "attempt=3",
        "attempt:3",
        "redrives>0",
        "redrives<2",
        "header.tenant:blue",
        "header.shard:3",
        r#"header.tenant~"""#,
        r#"header."my tenant"~ünal"#,
        "body.order.id=42",
        "body.order.total:1.5",
        "body.order.total:1.50",
        "body.order.paid:false",
        "body.order.note:null",
        "body.order.lines.sku:B2",
        "body.order.lines.1.sku:B2",
        r#"body."a.b":c"#,
        "\"TIMED out\"",
        "timed",
        "ORDER-7",
        "sku",
        "-reason:Late",
        "reason:Late or age>1h",
        "reason:Late or id:no or source:orders attempt<4",
        "  reason~a \t age>1h\n",
    ];
    for filter in holding {
        assert!(matches(filter, &entry), "{filter}");
    }
    assert!(matches(&format!("group:{group}"), &entry) && matches(&format!("group:g{group}"), &entry));
    assert!(matches(&Filter::group(group).to_string(), &entry));
}

#[test]
fn no_term_matches_anything_else() {
    let entry = order();
    let failing = [
        "reason:retryableerror",
        "reason:Retryable",
        r#"reason:"""#,
        "error:timed",
        "age>2h",
        "age<2h",
        "attempt>3",
        "redrives:0",
        "header.tenant:Blue",
        r#"header.other~"""#,
        r#"header.tenant:"""#,
        "body.order:42",
        "body.order.id:4",
        "body.order.lines.0.sku:B2",
        "body.order.lines.2.sku:B2",
        "body.a.b:c",
        "group:0000000000000000",
        "timed-out",
        "source:orders age>3h",
        "reason:Late or age>3h",
        "-timed",
    ];
    for filter in failing {
        assert!(!matches(filter, &entry), "{filter}");
    }
}

#[test]
fn a_handle_selects_its_entry_and_nothing_that_only_mentions_it() {
    let handle = |number: u32| EntryHandle::new(Shelf::DeadLetter, format!("7920-{number}"));
    let entry = |number| Shelved::new(handle(number), Message::new("see dead-letter/7920-1"));
    let selects = |filter: &str| [1, 2, 3].map(|number| matches(filter, &entry(number)));
    assert_eq!(selects("dead-letter/7920-1"), [true, false, false]);
    assert_eq!(selects("dead-letter/7920-1 dead-letter/7920-3"), [true, false, true]);
    assert_eq!(selects("dead-letter/7920-1 or dead-letter/7920-3"), [true, false, true]);
    assert_eq!(selects("dead-letter/7920-1 age>1h"), [false; 3]);
    assert_eq!(selects("-dead-letter/7920-1 -dead-letter/7920-2"), [false, false, true]);
    assert_eq!(selects("parking/7920-1"), [false; 3]);
    assert_eq!(selects("\"dead-letter/7920-1\""), [true; 3], "a text");
    let filter: Filter = "dead-letter/7920-1 dead-letter/7920-3 or -parking/2".parse().unwrap();
    assert_eq!(filter.handles().collect::<Vec<_>>(), [&handle(1), &handle(3)]);
    assert_eq!(Filter::handles(&Filter::all()).count(), 0);
}

#[test]
fn an_entry_that_tells_little_is_matched_by_little() {
    let mut bare = entry(Message::new(vec![0, 255, 254]));
    assert!(matches(r#"reason:"" -age>0s -age<=9999days attempt:0 -body.a~"" -x"#, &bare));
    bare.shelved_at = Some(now() + Duration::from_secs(60));
    assert!(matches("age<=0s", &bare), "a clock that is ahead makes no age below zero");
    let unreadable = entry(Message::new("").with_header(names::ATTEMPT, "many"));
    assert!(matches("attempt>1000000", &unreadable), "an unreadable count is never small");
}

#[test]
fn the_reason_and_the_text_are_those_of_the_broker_where_redrive_wrote_none() {
    let mut entry = entry(Message::new("body"));
    entry.broker_reason = Some("TTLExpiredException".to_owned());
    entry.broker_description = Some("amqp://shop:hunter2@mq/ expired".to_owned());
    assert!(matches("reason:TTLExpiredException error~expired expired", &entry));
    assert!(!matches("hunter2", &entry), "a secret is not found by trying");
}

#[test]
fn headers_have_a_text_of_every_type() {
    let values = [
        (Value::Bool(true), "true"),
        (Value::U64(u64::MAX), "18446744073709551615"),
        (Value::F64(1.5), "1.5"),
        (Value::Char('ä'), "ä"),
        (Value::Uuid([1; 16]), "01010101-0101-0101-0101-010101010101"),
        (Value::Timestamp(redrive_core::Timestamp::from_unix_seconds(0)), "1970-01-01T00:00:00Z"),
    ];
    for (value, text) in values {
        assert!(
            matches(&format!("header.x:{text}"), &entry(Message::new("").with_header("x", value))),
            "{text}"
        );
    }
    for value in [
        Value::Null,
        Value::List(vec![]),
        Value::Timestamp(redrive_core::Timestamp::from_unix_seconds(300_000_000_000)),
    ] {
        assert!(!matches(r#"header.x~"""#, &entry(Message::new("").with_header("x", value))));
    }
}

#[test]
fn only_a_whole_json_body_has_values() {
    let matching = |body: String, filter| matches(filter, &entry(Message::new(body)));
    assert!(matching(r#" {"a":1} "#.into(), "body.a:1"));
    for body in [r#"{"a":1"#, r#"{"a":1} x"#, r#"a=1"#, ""] {
        assert!(!matching(body.into(), "body.a:1"), "{body}");
    }
    let deep = |depth| "[".repeat(depth) + "1" + &"]".repeat(depth);
    assert!(
        matching(format!(r#"{{"x":{},"a":1}}"#, deep(100_000)), "body.a:1"),
        "what is passed over may be deep"
    );
    assert!(!matching(format!(r#"{{"a":{}}}"#, deep(100_000)), "body.a.b:1"));
    assert!(matching(r#"{"a":18446744073709551615}"#.into(), "body.a:18446744073709551615"));
}

#[test]
fn errors_mark_the_place_and_say_what_would_be_right() {
    let errors = [
        ("resaon:x", 0, "`resaon` is not a field: write one of reason, type,"),
        ("see http://x", 4, "quote the text"),
        ("reason:", 7, r#"for an empty one, write `""`"#),
        ("reason: x", 7, "a value is missing"),
        ("reason>3", 0, "`reason` is a text"),
        ("reason:=x", 7, "two operators"),
        ("body.id!=1", 7, "there is no `!=`"),
        ("header.my.tenant!~blue", 16, "there is no `!=`"),
        ("error~\"timed out", 6, "the quote is not closed"),
        ("error:\"a\\x\"", 8, "unknown escape"),
        ("\"\\u{110000}\"", 1, "unknown escape"),
        ("error:a\"b\"", 6, "quote the whole value"),
        ("a\"b\"", 0, "quote the whole text"),
        ("\"a\"b", 3, "a space is missing"),
        ("\"\"", 0, "the text is empty"),
        ("age>soon", 4, "`soon` is not a duration: write for example `age>1h`"),
        ("age:1h", 0, "an age is compared with"),
        ("age~1h", 0, "an age is compared with"),
        ("attempt>=x", 9, "`x` is not a count"),
        ("attempt>-1", 8, "`-1` is not a count"),
        ("redrives~1", 0, "`redrives` is a number"),
        ("group:g1", 6, "`g1` is not the id of a group"),
        ("group~00", 0, "16 hexadecimal digits"),
        ("header:blue", 0, "the name of the header is missing"),
        ("header.:blue", 7, "a name is missing after the dot"),
        ("header.tenant", 0, "a value is missing"),
        ("body=1", 0, "the path in the body is missing"),
        ("body.a..b:1", 7, "a name is missing after the dot"),
        ("body.a>1", 0, "`body.a` is a text"),
        ("(a or b)", 0, "parentheses are not known"),
        ("--a", 1, "one `-` is enough"),
        ("a - b", 2, "a term is missing after `-`"),
        ("a or", 2, "a term is missing after `or`"),
        ("or a", 0, "a term is missing before `or`"),
        ("a or or b", 5, "a term is missing before `or`"),
        ("a and b", 2, "leave `and` out"),
        ("not a", 0, "negated by `-`"),
    ];
    for (text, position, message) in errors {
        let error = text.parse::<Filter>().expect_err(text);
        assert_eq!(error.position(), position, "{text}: {error}");
        assert!(error.message().contains(message), "{text}: {error}");
        let printed = error.to_string();
        let lines: Vec<_> = printed.lines().collect();
        assert_eq!(lines[1], format!("  {text}"));
        assert_eq!(lines[2].find('^'), Some(2 + position), "{printed}");
        assert!(lines[2].len() <= 2 + text.len().max(position + 1), "{printed}");
    }
}

#[test]
fn a_long_filter_is_refused_and_a_long_line_is_cut() {
    let error = "a ".repeat(4000).parse::<Filter>().unwrap_err();
    assert!(error.message().contains("at most 4096"), "{error}");
    let long = format!("{} age>\u{1b}[2J{}", "a ".repeat(1000), "x".repeat(1000));
    let printed = long.parse::<Filter>().unwrap_err().to_string();
    assert!(
        printed.lines().all(|line| line.chars().count() < 160) && !printed.contains('\u{1b}'),
        "{printed}"
    );
    let path = format!("body{}:1", ".a".repeat(33));
    assert!(path.parse::<Filter>().unwrap_err().message().contains("too long"));
}

fn test() -> impl Strategy<Value = Test> {
    prop_oneof![any::<String>().prop_map(Test::Is), any::<String>().prop_map(Test::Contains)]
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[a-z.:~=<>\"\\\\ ()-]{1,6}",
        prop::sample::select(
            &["or", "OR", "and", "parking/7", "header.x", "body.x", "reason", "reason:x", "-x"][..]
        )
        .prop_map(str::to_owned),
    ]
    .prop_filter("empty", |word| !word.is_empty())
}

fn condition() -> impl Strategy<Value = Condition> {
    let comparison = prop::sample::select(Comparison::ALL);
    prop_oneof![
        (prop::sample::select(TextField::ALL), test()).prop_map(|(field, test)| Condition::Text(field, test)),
        (word(), test()).prop_map(|(name, test)| Condition::Header(name, test)),
        (prop::collection::vec(word(), 1..=parse::MAX_STEPS), test())
            .prop_map(|(path, test)| Condition::Body(path, test)),
        (prop::sample::select(CountField::ALL), comparison.clone(), any::<u32>())
            .prop_map(|(field, comparison, count)| Condition::Count(field, comparison, count)),
        (comparison.prop_filter("equal", |it| *it != Comparison::Equal), any::<Duration>())
            .prop_map(|(comparison, age)| Condition::Age(comparison, age)),
        any::<[String; 3]>().prop_map(|[a, b, c]| Condition::Group(Template::new(&a, &b, &c).id())),
        prop::collection::vec(("[0-9a-f]{1,8}(-[a-z:=]{1,4})?", any::<bool>()), 1..3).prop_map(|handles| {
            let handle = |(entry, parked): (String, bool)| {
                EntryHandle::new(if parked { Shelf::Parking } else { Shelf::DeadLetter }, entry)
            };
            Condition::Entries(handles.into_iter().map(handle).collect())
        }),
        word().prop_map(Condition::Anywhere),
    ]
}

fn filter() -> impl Strategy<Value = Filter> {
    let term = (any::<bool>(), condition()).prop_map(|(negated, condition)| Term { negated, condition });
    // The parser makes one term of handles next to each other.
    let has_one_of_handles = |terms: &Vec<Term>| {
        let of_handles = |term: &&Term| matches!(term.condition, Condition::Entries(_));
        terms.iter().filter(of_handles).count() < 2
    };
    let terms = prop::collection::vec(term, 1..4).prop_filter("handles twice", has_one_of_handles);
    let terms = prop::collection::vec(terms, 1..4);
    prop_oneof![
        1 => Just(Filter::all()),
        20 => terms.prop_map(|alternatives| Filter { alternatives }),
    ]
}

/// Texts that are nearly filters.
fn nearly() -> impl Strategy<Value = String> {
    const PARTS: &[&str] = &[
        "reason", "error", "age", "attempt", "group", "parking/", "header", "body", ".", ":", "=", "~", ">",
        ">=", "\"", "\\", "-", " ", " or ", "(", "1h", "3", "a", "ä", "\u{1b}", "\u{202e}", "\\u{", "}",
        "1b",
    ];
    let part = prop_oneof![9 => prop::sample::select(PARTS).prop_map(str::to_owned), 1 => any::<String>()];
    prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

fn check_text(text: &str) -> Result<(), TestCaseError> {
    match text.parse::<Filter>() {
        Ok(filter) => {
            let printed = filter.to_string();
            prop_assert_eq!(
                printed.parse::<Filter>().map_err(|error| TestCaseError::fail(error.to_string()))?,
                filter
            );
            prop_assert!(!printed.contains(|c: char| c.is_control() || c == '\u{202e}'), "{printed:?}");
        }
        Err(error) => {
            prop_assert!(error.position() <= text.len());
            let printed = error.to_string();
            prop_assert_eq!(printed.lines().count(), 3, "{}", printed);
            prop_assert!(
                !printed.contains(|c: char| c.is_control() && c != '\n' || c == '\u{202e}'),
                "{printed:?}"
            );
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_printed_filter_is_parsed_as_the_same(filter in filter()) {
        let printed = filter.to_string();
        prop_assume!(printed.len() <= 4096);
        prop_assert_eq!(printed.parse::<Filter>().map_err(|error| TestCaseError::fail(error.to_string()))?, filter);
    }

    #[test]
    fn any_text_is_a_filter_or_an_error(text in any::<String>(), nearly in nearly()) {
        check_text(&text)?;
        check_text(&nearly)?;
    }

    #[test]
    fn any_message_is_matched_or_not(filter in filter(), body in any::<Vec<u8>>(), error in any::<String>(), seconds in any::<u32>()) {
        let mut entry = entry(Message::new(body).with_header(names::REASON, "x").with_header(names::ERROR, error));
        entry.shelved_at = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.into()));
        let group = Template::of(&entry).id();
        for terms in &filter.alternatives {
            let alone = |term: &Term, negated| {
                let term = Term { negated, ..term.clone() };
                Filter { alternatives: vec![vec![term]] }.matches(&entry, group, now())
            };
            prop_assert!(terms.iter().all(|term| alone(term, true) != alone(term, false)));
        }
        let _ = filter.matches(&entry, group, now());
    }

    #[test]
    fn a_path_finds_what_a_tree_has(tree in tree(), path in prop::collection::vec(prop::sample::select(&["a", "b", "0", "1"][..]), 1..4)) {
        let path: Vec<_> = path.into_iter().map(str::to_owned).collect();
        let test = Test::Is("1".to_owned());
        let body = serde_json::to_string(&tree).unwrap();
        prop_assert_eq!(json::any(&body, &path, &test), Ok(any_in(&tree, &path)));
        prop_assert!(json::any(&body[..body.len() - 1], &path, &test) != Ok(true) || body.len() == 1);
    }
}

fn tree() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::Value as Json;
    let leaf = prop_oneof![
        Just(Json::Null),
        Just(Json::from(1)),
        Just(Json::from(1.0)),
        Just(Json::from("1")),
        Just(Json::from(2))
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        let names = prop::sample::select(&["a", "b", "0"][..]).prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::btree_map(names, inner, 0..4)
                .prop_map(|map| Json::Object(map.into_iter().collect())),
        ]
    })
}

/// The same over a tree, by the words of the documentation.
fn any_in(tree: &serde_json::Value, path: &[String]) -> bool {
    use serde_json::Value as Json;
    match (tree, path) {
        (Json::Number(number), []) => number.as_f64() == Some(1.0),
        (Json::String(text), []) => text == "1",
        (Json::Object(map), [step, rest @ ..]) => map.get(step).is_some_and(|below| any_in(below, rest)),
        (Json::Array(elements), [step, rest @ ..]) => match step.parse::<usize>() {
            Ok(index) => elements.get(index).is_some_and(|below| any_in(below, rest)),
            Err(_) => elements.iter().any(|below| any_in(below, path)),
        },
        _ => false,
    }
}
