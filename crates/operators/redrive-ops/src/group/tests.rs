//! Properties of every text.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::mask::mask;

const MAX: usize = 512;

fn masked(text: &str) -> String {
    mask(text, MAX)
}

#[test]
fn each_form_has_its_placeholder() {
    for (text, expected) in [
        ("order 17 of 1,234.56", "order <number> of <number>"),
        ("at -1.5e-7 or x=-3", "at <number> or x=<number>"),
        ("item17b, v2 and utf8", "item<number>b, v<number> and utf<number>"),
        ("rows [1, 2, 3] and [4]", "rows [<number>] and [<number>]"),
        ("line 1, column 2", "line <number>, column <number>"),
        ("after 30.123s, 250ms, 1h30m or 5µs.", "after <duration>, <duration>, <duration> or <duration>."),
        ("5 months", "<number> months"),
        ("2026-01-02T03:04:05.678Z", "<time>"),
        ("2026-01-02 03:04:05 +0100: bad", "<time>: bad"),
        ("2026-01-02 03:04:05,123 bad", "<time> bad"),
        ("on 2026-01-02 or 2026/01/02", "on <time> or <time>"),
        ("[02/Jan/2026:03:04:05 +0000] x", "[<time>] x"),
        ("Fri, 2 Jan 2026 03:04:05 GMT", "<time>"),
        ("Fri Jan  2 03:04:05 2026", "<time>"),
        ("Jan 2 03:04:05 host", "<time> host"),
        ("20260102T030405Z", "<time>"),
        ("03:04:05.678 it broke", "<time> it broke"),
        ("in May 5 failed", "in May <number> failed"),
        ("id 67e55044-10b1-426f-9247-bb680e5fe0c8.", "id <uuid>."),
        ("at 0x7f3a, commit 9fceb02d0ae598e9", "at <hex>, commit <hex>"),
        ("deadbeef is a word", "deadbeef is a word"),
        ("request 01HV5Z3K9QW8XJ2M4N6P7R8S9T", "request <id>"),
        ("10.0.0.7:5432 refused", "<ip>:<number> refused"),
        ("[fe80::1:2]:5672 refused", "[<ip>]:<number> refused"),
        ("std::io::Error, add::feed", "std::io::Error, add::feed"),
        ("mail to ann.b+c@example.org.", "mail to <email>."),
        (
            "https://a.example/v1/orders/AB-17/x?page=2&q=a) ok",
            "https://a.example/v<number>/orders/<id>/x?<query>) ok",
        ),
        ("really? yes", "really? yes"),
        ("missing field `price` at 'x' in \"a b\"", "missing field `price` at '<text>' in \"<text>\""),
        ("one of `a`, `b`, `c`", "one of `a`, `b`, `c`"),
        ("one of `a 1`, `b`, `c`", "one of `<text>`"),
        ("column \"price\" does not exist", "column \"price\" does not exist"),
        ("'price' is a required property", "'price' is a required property"),
        ("no user \"ann\", key 'id17'", "no user \"<text>\", key '<text>'"),
        ("the bank answered 402", "the bank answered 402"),
        ("the bank answered 402 Payment Required", "the bank answered 402 Payment Required"),
        ("got 503 from 10.0.0.7", "got 503 from <ip>"),
        ("got 503 rows, returned 17", "got <number> rows, returned <number>"),
        ("returned 402, 403", "returned <number>"),
        ("status code: 503, after 17", "status code: 503, after <number>"),
        ("{status=503, took=17}", "{status=503, took=<number>}"),
        ("HTTP/1.1 503 Service Unavailable", "HTTP/1.1 503 Service Unavailable"),
        ("HTTP 404 for order 17", "HTTP 404 for order <number>"),
        ("Connection refused (os error 111)", "Connection refused (os error 111)"),
        ("exit code 137, postal code 12345", "exit code 137, postal code <number>"),
        ("(code 23505)", "(code 23505)"),
        ("SQLSTATE 40P01 SQLSTATE[23505]", "SQLSTATE 40P01 SQLSTATE[23505]"),
        ("ORA-00942: no table", "ORA-00942: no table"),
        ("E11000 duplicate key", "E11000 duplicate key"),
        ("AADSTS50076 E17 ORDER-42", "AADSTS50076 E<number> ORDER-<number>"),
        ("status 503.5 or status 123456", "status <number> or status <number>"),
        (r#"body "{\"id\": \"a\"}" it"#, "body \"<text>\" it"),
        (r#"{\"id\": \"a\"}"#, r#"{\"<text>\": \"<text>\"}"#),
        ("can't read the users' data", "can't read the users' data"),
        ("an \"open quote", "an \"open quote"),
        ("two\n\t lines\u{1b}[K", "two lines [K"),
        ("größe 5 für Zoë", "größe <number> für Zoë"),
        ("", ""),
    ] {
        assert_eq!(masked(text), expected, "{text}");
    }
}

#[test]
fn a_long_text_is_cut_and_stays_so() {
    let text = "no answer from 17 ".repeat(1000);
    let once = masked(&text);
    assert!(once.len() <= MAX && once.ends_with('…'), "{once}");
    assert_eq!(masked(&once), once);
}

/// A part of a placeholder is no word: the text before it would be masked differently the second time.
#[test]
fn a_cut_splits_no_placeholder() {
    for after in ["7", "<number>", "<number"] {
        let text = format!("see aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa{after} and more");
        for max in 3..70 {
            let once = mask(&text, max);
            assert_eq!(mask(&once, max), once, "{max}");
        }
    }
}

/// Texts that are made to be searched again and again. All together take two seconds; with quadratic time, one of them alone takes
/// minutes. The limit only distinguishes these two.
#[test]
fn the_time_is_linear() {
    const LENGTH: usize = 1 << 17;
    const LIMIT: Duration = Duration::from_secs(60);
    let began = Instant::now();
    for part in [
        "a-", "a.b@", "\"", " 'a", "\\\"", "\\", "1m", "1,", "1, ", "/1", "://?", "a:", "1:", "<", "Jan ",
        "é", "1e", "<text>'",
    ] {
        // Without a limit, so that the whole text is masked.
        let text = part.repeat(LENGTH / part.len());
        mask(&text, usize::MAX);
        assert!(began.elapsed() < LIMIT, "{part:?}");
    }
}

/// Generates pieces of forms, so that random texts come close to them.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[0-9]{1,13}",
        "[a-fA-F0-9]{1,12}",
        "[-:./,@?&=+<>()\\[\\]{}\"'`\\\\ _%#…é]",
        prop::sample::select(vec![
            "://",
            "http://",
            "<number>",
            "<text>",
            "<id>",
            "Jan",
            "Fri, ",
            "ms",
            "s",
            "T",
            "Z",
            " GMT",
            "::",
            "0x",
            "\\\"",
            "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa",
            "2026-01-02",
            "status ",
            "answered 402",
            "HTTP/1.1 503",
            "ORA-00942",
            "field `price`",
            "10.0.0.7",
            "a@b.c",
            ", ",
            "can't",
            "v1",
            "\n",
        ])
        .prop_map(str::to_owned),
        any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn without_codes(text: String) -> String {
    ["status ", "answered 402", "HTTP/1.1 503", "ORA-00942"]
        .iter()
        .fold(text, |text, code| text.replace(code, "~"))
}

/// What stands before and behind a number counts only if it stands in the masked text, too.
#[test]
fn codes_are_the_same_in_the_masked_text() {
    for (text, once) in [
        ("://HTTP/1.1 503{", "://HTTP/<id> <number>{"),
        ("http://x/a?status 503", "http://x/a?<query> <number>"),
        ("http://x/a?b=1 status 503", "http://x/a?<query> status 503"),
        ("17 code 3", "<number> code 3"),
        ("answered 402,-00", "answered <number>,<number>"),
        ("answered 402, deadbeef1", "answered 402, <hex>"),
    ] {
        assert_eq!(masked(text), once);
        assert_eq!(masked(once), once);
    }
}

proptest! {
    #[test]
    fn masking_twice_is_masking_once(text in pieces(), max in 8_usize..200) {
        for max in [max, usize::MAX] {
            let once = mask(&text, max);
            prop_assert!(once.len() <= max);
            prop_assert_eq!(mask(&once, max), once.clone(), "{:?}", text);
        }
    }

    #[test]
    fn no_digit_is_left_but_of_codes(text in pieces()) {
        let text = without_codes(text);
        prop_assert!(!mask(&text, usize::MAX).bytes().any(|byte| byte.is_ascii_digit()));
    }

    /// `0x` is a prefix, not a number.
    #[test]
    fn the_values_of_digits_do_not_count_but_in_codes(text in pieces(), seed in any::<u64>()) {
        let (text, mut seed) = (without_codes(text), seed);
        let mut other = |c: char| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if matches!(c, '1'..='9') { char::from(b'1' + (seed >> 60) as u8 % 9) } else { c }
        };
        let changed: String = text.chars().map(&mut other).collect();
        prop_assert_eq!(masked(&changed), masked(&text), "{:?} {:?}", text, changed);
    }

    #[test]
    fn numbers_never_split_a_group(
        words in prop::collection::vec("z[a-z]{0,8}", 4),
        between in prop::collection::vec(prop::sample::select(vec![" ", "=", ": ", " (", " [", "#", "_"]), 3),
        numbers in prop::collection::vec(number(), 6),
    ) {
        let text = |numbers: &[String]| {
            let mut text = words[0].clone();
            for index in 0..3 {
                text += &[between[index], &numbers[index], " ", &words[index + 1]].concat();
            }
            masked(&text)
        };
        prop_assert_eq!(text(&numbers[..3]), text(&numbers[3..]));
    }
}

/// Generates a number as programs print it.
fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<u8>().prop_map(|number| number.to_string()),
        any::<u64>().prop_map(|number| number.to_string()),
        any::<u128>().prop_map(|number| number.to_string()),
        (-1e9..1e9).prop_map(|number: f64| number.abs().to_string()),
    ]
}
