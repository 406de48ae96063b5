use proptest::prelude::*;
use redrive_core::{Bytes, Value, header_names as names};

use super::*;
use crate::export::tests::message;
use crate::printable::steers_a_terminal;

fn order() -> Message {
    let mut message = Message::new(r#"{"order":7,"address":""}"#)
        .with_id("order-7")
        .with_kind("order.placed")
        .with_header("tenant", "blue")
        .with_header("priority", 3_u8)
        .with_header("traceparent", "00-1-2-01")
        .with_header("x-death", Value::List(Vec::new()))
        .with_header(names::ATTEMPT, 3_i64);
    message.properties_mut().persistent = Some(true);
    message
}

fn header(name: &str) -> MessagePart {
    MessagePart::Header(name.to_owned())
}

fn text(message: &Message) -> String {
    EditText::of(message).unwrap().as_str().to_owned()
}

fn parsed(text: &str) -> Message {
    EditText::parse(text, &order()).unwrap()
}

/// Compares what is edited: NaN is no equal of itself.
fn is_unchanged(message: &Message, edited: Message) -> bool {
    Edit::between(message, edited, SensitiveEdits::Refuse) == Ok(None)
}

proptest! {
    #[test]
    fn a_text_that_was_not_edited_is_no_edit(message in message()) {
        let text = text(&message);
        let read = EditText::parse(&text, &message).unwrap();
        prop_assert_eq!(&read, &message);
        prop_assert!(is_unchanged(&message, read));
        let has_controls = text.chars().any(|c| steers_a_terminal(c) && !"\r\n\t".contains(c));
        prop_assert!(!has_controls, "{text:?}");
        // Editors may add the last line feed and no other.
        prop_assert_eq!(EditText::parse(text.strip_suffix('\n').unwrap(), &message).is_ok(), true);
    }

    #[test]
    fn no_text_makes_it_panic(text in any::<String>(), head in "[{}\"a-z:,# \n]{0,40}") {
        let _ = EditText::parse(&text, &order());
        let _ = EditText::parse(&format!("{head}\n---\n{text}"), &order());
    }

    #[test]
    fn a_diff_is_empty_only_if_nothing_changed(one in message(), other in message()) {
        let shown = diff(&one, &other);
        prop_assert_eq!(shown.is_empty(), changed(&one, &other).is_empty());
        prop_assert!(!shown.chars().any(|c| steers_a_terminal(c) && !"\n\t".contains(c)), "{shown:?}");
        prop_assert_eq!(diff(&one, &one), "");
    }

    #[test]
    fn only_white_space_is_added_to_json(text in "[\\[\\]{}\",:\\\\ a1\n]{0,24}") {
        if let Some(pretty) = crate::json::pretty(&text) {
            let value = |text: &str| serde_json::from_str::<Json>(text).ok();
            prop_assert_eq!(value(&pretty), value(&text));
        }
    }
}

#[test]
fn a_text_shows_what_may_be_edited() {
    let expected = r#"# Edit, save and close. If nothing has changed, nothing is done.
# Above the line `---`: properties and headers. Below it: the body.
# Fixed, and not shown: property persistent, header redrive-attempt, header x-death
# Change with care: property id, property kind, header traceparent
{
  "properties": {
    "id": "order-7",
    "kind": "order.placed"
  },
  "headers": {
    "priority": {
      "$u8": 3
    },
    "tenant": "blue",
    "traceparent": "00-1-2-01"
  },
  "body": "text"
}
---
{"order":7,"address":""}
"#;
    assert_eq!(text(&order()), expected);
}

#[test]
fn what_was_edited_is_read() {
    let edited =
        text(&order()).replace("\"blue\"", "\"green\"").replace(r#"address":"""#, r#"address":"here""#);
    let edit = Edit::between(&order(), parsed(&edited), SensitiveEdits::Refuse).unwrap().unwrap();
    assert_eq!(edit.changed(), [MessagePart::Body, header("tenant")]);
    let message = edit.into_message();
    assert_eq!(message.body().as_ref(), br#"{"order":7,"address":"here"}"#);
    assert_eq!(message.headers().get("tenant"), Some(&"green".into()));
    assert_eq!(message.headers().get("priority"), Some(&Value::U8(3)));
    assert_eq!(message.headers().get(names::ATTEMPT), Some(&Value::I64(3)), "locked parts stay");
    assert_eq!(message.properties().persistent, Some(true), "locked parts stay");
}

#[test]
fn a_binary_body_is_edited_as_base64() {
    let bodies: [&[u8]; 6] =
        [b"\xff\xfe", b"a\x1b[2J", b"a\rb", b"a\r\nb\nc", "a\u{202e}b".as_bytes(), &[0; 200]];
    for body in bodies {
        let message = Message::new(Bytes::copy_from_slice(body));
        let text = text(&message);
        assert!(
            text.contains("\"body\": \"base64\"") && text.lines().all(|line| line.len() <= 120),
            "{text}"
        );
        assert_eq!(EditText::parse(&text.replace('\n', "\r\n"), &message).unwrap(), message);
    }
    let edited = text(&Message::new(&b"\xff"[..])).replace("/w==", "/v8=");
    assert_eq!(EditText::parse(&edited, &Message::new("")).unwrap().body().as_ref(), b"\xfe\xff");
}

#[test]
fn a_body_keeps_its_last_line_feed_or_none() {
    for body in ["", "a", "a\n", "a\n\n", "\n", "---\n", "a\r\nb\r\n"] {
        let message = Message::new(body);
        assert!(text(&message).contains("\"text\""));
        assert_eq!(EditText::parse(&text(&message), &message).unwrap(), message, "{body:?}");
    }
}

#[test]
fn errors_of_a_text_name_the_line() {
    let text = text(&order());
    for (from, to, line, said) in [
        ("---", "--", None, "`---` before the body is missing"),
        ("\"blue\"", "blue", Some(14), "expected value"),
        ("{ \"$u8\": 3 }", "{ \"$u8\": 300 }", None, "header `priority`"),
        ("\"kind\"", "\"kynd\"", Some(8), "unknown field `kynd`"),
        ("\"text\"", "\"base64\"", None, "no base64"),
    ] {
        let text = text.replace("{\n      \"$u8\": 3\n    }", "{ \"$u8\": 3 }").replace(from, to);
        let error = EditText::parse(&text, &order()).unwrap_err();
        assert!(error.why.contains(said), "{error}");
        assert_eq!(error.line.is_some(), line.is_some(), "{error}");
        assert_eq!(error.to_string().contains(", line "), line.is_some());
    }
}

#[test]
fn parts_are_refused_by_their_class() {
    let locked =
        [names::ATTEMPT, "x-death", "x-first-death-queue", "CC", "x-opt-sequence-number", "DeadLetterReason"];
    for name in locked {
        let edited = order().with_header(name, "forged");
        for sensitive in [SensitiveEdits::Refuse, SensitiveEdits::Allow] {
            let error = Edit::between(&order(), edited.clone(), sensitive).unwrap_err();
            assert_eq!(error, EditError::Locked(vec![header(name)]));
        }
    }
    let mut edited = order().with_id("other").with_header("traceparent", "other");
    edited.properties_mut().reply_to = Some("elsewhere".into());
    let parts = vec![
        MessagePart::Property("id".into()),
        MessagePart::Property("reply_to".into()),
        header("traceparent"),
    ];
    let error = Edit::between(&order(), edited.clone(), SensitiveEdits::Refuse).unwrap_err();
    assert_eq!(error, EditError::Sensitive(parts.clone()));
    assert!(
        error.to_string().contains("property id, property reply_to, header traceparent decide"),
        "{error}"
    );
    let edit = Edit::between(&order(), edited, SensitiveEdits::Allow).unwrap().unwrap();
    assert_eq!(edit.changed(), parts);

    let mut fixed = order();
    fixed.properties_mut().user_id = Some("root".into());
    fixed.headers_mut().remove(names::ATTEMPT);
    let parts = vec![MessagePart::Property("user_id".into()), header(names::ATTEMPT)];
    assert_eq!(Edit::between(&order(), fixed, SensitiveEdits::Allow), Err(EditError::Locked(parts)));
}

#[test]
fn a_locked_header_in_the_text_is_refused() {
    let edited = text(&order()).replace("\"tenant\"", "\"redrive-attempt\": 0,\n    \"tenant\"");
    let error = Edit::between(&order(), parsed(&edited), SensitiveEdits::Allow).unwrap_err();
    assert_eq!(error, EditError::Locked(vec![header(names::ATTEMPT)]));
}

#[test]
fn a_nan_that_was_not_edited_is_no_edit() {
    let message = Message::new("").with_header("nan", f64::NAN);
    assert!(is_unchanged(&message, EditText::parse(&text(&message), &message).unwrap()));
    assert!(!is_unchanged(&message, Message::new("").with_header("nan", 1.0)));
}

#[test]
fn a_diff_shows_json_by_values_and_what_is_around() {
    let edited = order().with_body(r#"{"order":7,"address":"here"}"#).with_header("tenant", "green");
    let expected = r#"--- original
+++ edited
@@ -3,11 +3,11 @@
 property persistent: true
 header priority: {"$u8":3}
 header redrive-attempt: 3
-header tenant: "blue"
+header tenant: "green"
 header traceparent: "00-1-2-01"
 header x-death: []
 
 {
   "order": 7,
-  "address": ""
+  "address": "here"
 }
"#;
    assert_eq!(diff(&order(), &edited), expected);
}

#[test]
fn large_and_binary_bodies_are_lengths_and_digests() {
    let large = "a".repeat(LARGE);
    for body in [
        Bytes::from(large),
        Bytes::from_static(b"\xff"),
        Bytes::from("a\n".repeat(3000)),
        Bytes::from_static(b"a\0b"),
    ] {
        let shown = diff(&order(), &order().with_body(body.clone()));
        assert!(shown.len() < 600 && shown.contains(&format!("+({} bytes, sha256 ", body.len())), "{shown}");
        assert!(shown.contains("-(24 bytes, sha256 "), "{shown}");
    }
    // A line for each value would be too many.
    let values = Message::new(format!("[1{}]", ",1".repeat(3000)));
    assert_eq!(diff(&values, &values.clone().with_body("[]")).lines().count(), 6);
}

/// Larger than a body whose lines are compared.
const LARGE: usize = 64 * 1024 + 1;

#[test]
fn a_secret_is_masked_and_its_change_is_said() {
    let with = |secret: &str| {
        Message::new(format!(r#"{{"user":"a","password":"{secret}"}}"#))
            .with_header("api_key", secret)
            .with_header("n", 1_i64)
    };
    let (one, other) = (with("hunter2"), with("hunter3").with_header("n", 2_i64));
    let shown = diff(&one, &other);
    assert!(!shown.contains("hunter"), "{shown}");
    assert!(shown.contains("-header n: 1\n+header n: 2\n") && shown.contains("***"), "{shown}");
    let named = "it differs only in parts that are not shown";
    assert!(
        shown.contains(&format!("body: {named}")) && shown.contains(&format!("header api_key: {named}")),
        "{shown}"
    );
    let shown = diff(&with("hunter2"), &with("hunter2").with_body(r#"{"user":"a", "password":"hunter2"}"#));
    assert_eq!(shown.lines().count(), 1, "{shown}");
}
