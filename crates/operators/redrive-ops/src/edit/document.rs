//! A message as one line of JSON for a program, and back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use redrive_core::Message;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json, json};

use super::class::EditClass;
use super::text::{Head, ParseEditError, headers_of, message_of, unlocked};
use crate::export::{PropertiesJson, UnwritableValue, headers_to_json};
use crate::json::{is_deep, is_json, repeats_a_key, same, split_mark};
use crate::printable::printable;

/// The byte order mark that some programs write before JSON.
const MARK: char = '\u{feff}';

/// A message as one line of JSON, for a program that edits many: `{"properties":{…},"headers":{…},"body":…}`.
///
/// Headers have the types of an [export](crate::ExportedEntry). [Locked](EditClass::Locked) parts are left out and stay as they are. A body
/// in JSON stands there as it is, another text as a text, and bytes as `{"$base64":"…"}`.
///
/// ```
/// use redrive_core::Message;
/// use redrive_ops::EditDocument;
///
/// let message = Message::new(r#"{"currency":"eur"}"#).with_header("tenant", "blue");
/// let document = EditDocument::of(&message)?;
/// assert_eq!(document.as_str(), r#"{"properties":{},"headers":{"tenant":"blue"},"body":{"currency":"eur"}}"#);
/// let edited = EditDocument::parse(&document.as_str().replace("eur", "EUR"), &message)?;
/// assert_eq!(&edited.body()[..], br#"{"currency":"EUR"}"#);
/// # Ok::<(), redrive_core::BoxError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditDocument(String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<'a> {
    properties: PropertiesJson,
    headers: Map<String, Json>,
    #[serde(borrow)]
    body: &'a RawValue,
}

impl EditDocument {
    /// Writes a message.
    ///
    /// # Errors
    ///
    /// If a header cannot be written.
    pub fn of(message: &Message) -> Result<Self, UnwritableValue> {
        let properties = serde_json::to_string(&PropertiesJson::from(&unlocked(message.properties())));
        let headers = headers_to_json(&headers_of(message, |class| class != EditClass::Locked))?;
        let headers = serde_json::to_string(&headers);
        let [properties, headers] = [properties, headers].map(|json| json.expect("maps with texts as keys"));
        let body = body_of(message.body());
        Ok(Self(format!(r#"{{"properties":{properties},"headers":{headers},"body":{body}}}"#)))
    }

    /// Returns the line.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads a line that was edited. Locked parts that it does not name are those of the original. A body that means the same as before is
    /// that of the original, byte by byte.
    ///
    /// # Errors
    ///
    /// If it is not in this form.
    pub fn parse(line: &str, original: &Message) -> Result<Message, ParseEditError> {
        let Fields { properties, headers, body } =
            serde_json::from_str(line).map_err(|error| ParseEditError::new(error.to_string()))?;
        let before = body_of(original.body());
        let body = if same(&before, body.get()) {
            original.body().to_vec()
        } else {
            if let Some(key) = repeats_a_key(&before).filter(|_| is_json_body(original.body())) {
                return Err(ParseEditError::new(format!(
                    "the body has the key `{}` twice, and a program keeps only one of them: edit this message alone",
                    printable(&key)
                )));
            }
            edited(body.get(), original.body())?
        };
        message_of(Head { properties, headers }, body, original)
    }
}

/// Returns a body as JSON in one line.
fn body_of(body: &[u8]) -> String {
    match std::str::from_utf8(body) {
        // Line ends inside of texts are escaped: these are white space.
        Ok(text) if is_json_body(body) => unmarked(text).replace(['\n', '\r'], " "),
        Ok(text) => json!(text).to_string(),
        Err(_) => json!({ "$base64": BASE64.encode(body) }).to_string(),
    }
}

/// Returns true for JSON that a program can read: not for what is nested too deeply, which is a text.
fn is_json_body(body: &[u8]) -> bool {
    std::str::from_utf8(body).is_ok_and(|text| is_json(unmarked(text)) && !is_deep(unmarked(text)))
}

fn unmarked(text: &str) -> &str {
    text.strip_prefix(MARK).unwrap_or(text)
}

/// Returns the bytes of a body that was edited.
fn edited(body: &str, original: &[u8]) -> Result<Vec<u8>, ParseEditError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Bytes {
        #[serde(rename = "$base64")]
        base64: String,
    }
    let was_json = is_json_body(original);
    if !was_json && let Ok(Bytes { base64 }) = serde_json::from_str(body) {
        let decoded = BASE64.decode(base64);
        return decoded.map_err(|error| ParseEditError::new(format!("the body is no base64: {error}")));
    }
    match serde_json::from_str(body) {
        Ok(Json::String(text)) if !was_json => Ok(text.into_bytes()),
        // A byte order mark stays.
        _ => {
            let mark = if was_json { split_mark(original).0 } else { &[] };
            Ok([mark, body.as_bytes()].concat())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(message: &Message, edit: impl Fn(&str) -> String) -> Message {
        let document = EditDocument::of(message).unwrap();
        EditDocument::parse(&edit(document.as_str()), message).unwrap()
    }

    #[test]
    fn what_was_not_edited_is_as_it_was_byte_by_byte() {
        for body in
            [&b"{ \"a\": 1.0,\n \"b\": [1e3] }"[..], b"two books\n", b"\xff\x00", b"", b"\"text\"", b"17"]
        {
            let message = Message::new(body.to_vec()).with_header("weight", 5_u8).with_id("order-7");
            // As a program writes it: without white space, in its own way.
            let rewritten = |text: &str| serde_json::from_str::<Json>(text).unwrap().to_string();
            assert_eq!(round(&message, rewritten), message, "{body:?}");
        }
    }

    #[test]
    fn a_body_stays_what_it_was_json_text_or_bytes() {
        let changed = |body: &'static [u8], from, to| {
            let message = Message::new(body);
            round(&message, |text| text.replace(from, to)).body().to_vec()
        };
        assert_eq!(changed(br#"{"b":1,"a":2}"#, "1", "3"), br#"{"b":3,"a":2}"#);
        assert_eq!(changed(b"2 books", "2", "3"), b"3 books");
        assert_eq!(changed(br#""2 books""#, "2", "3"), br#""3 books""#);
        assert_eq!(changed(b"\xff", "/w==", "AA=="), b"\0");
        assert_eq!(changed(b"2 books", r#""2 books""#, r#"{"books":2}"#), br#"{"books":2}"#);
    }

    #[test]
    fn a_long_number_is_not_rounded() {
        let edited = |body: &'static str, from, to| round(&Message::new(body), |text| text.replace(from, to));
        let message = edited(r#"{"n":12345678901234567890123}"#, "123}", "124}");
        assert_eq!(&message.body()[..], br#"{"n":12345678901234567890124}"#);
    }

    #[test]
    fn a_byte_order_mark_stays() {
        let message = Message::new("\u{feff}{\"n\":1}");
        assert_eq!(round(&message, str::to_owned), message);
        assert_eq!(
            &round(&message, |text| text.replace("1}", "2}")).body()[..],
            "\u{feff}{\"n\":2}".as_bytes()
        );
    }

    #[test]
    fn a_key_that_stands_twice_is_never_dropped() {
        let message = Message::new(r#"{"id":1,"id":2,"c":"eur"}"#).with_header("tenant", "blue");
        let edited = |line: &str| EditDocument::parse(line, &message);
        // As a program writes it that keeps the last one.
        let other_header =
            edited(r#"{"properties":{},"headers":{"tenant":"green"},"body":{"id":2,"c":"eur"}}"#).unwrap();
        assert_eq!(other_header.body(), message.body());
        let error = edited(r#"{"properties":{},"headers":{},"body":{"id":2,"c":"EUR"}}"#).unwrap_err();
        assert!(error.to_string().contains("`id` twice"), "{error}");
    }

    #[test]
    fn what_cannot_be_compared_counts_as_edited() {
        let message = Message::new(r#"{"n":1e999,"c":"eur"}"#);
        assert_eq!(
            &round(&message, |text| text.replace("eur", "EUR")).body()[..],
            br#"{"n":1e999,"c":"EUR"}"#
        );
        let message = Message::new(r#"{"$base64":"AA=="}"#);
        assert_eq!(&round(&message, |text| text.replace("AA", "AB")).body()[..], br#"{"$base64":"AB=="}"#);
    }

    #[test]
    fn another_form_is_refused() {
        let message = Message::new("{}");
        for line in ["", "[]", r#"{"body":1}"#, r#"{"properties":{},"headers":{},"body":1,"more":2}"#] {
            EditDocument::parse(line, &message).expect_err(line);
        }
    }
}
