//! What a program of jq sees of an entry. Pure.

use std::collections::BTreeMap;

use redrive::ops::{BodyView, Template, ViewEntry};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::look::plain;
use crate::output::rfc3339;

/// The entry. Numbers of the message keep their digits: they are passed on as they are written.
#[derive(Serialize)]
struct Document<'a> {
    queue: &'a str,
    handle: String,
    id: Option<&'a str>,
    group: String,
    template: &'a str,
    reason: Option<&'a str>,
    error: Option<&'a str>,
    #[serde(rename = "type")]
    kind: Option<&'a str>,
    attempt: u32,
    redrives: u32,
    source: Option<&'a str>,
    shelved_at: Option<String>,
    headers: BTreeMap<&'a str, Box<RawValue>>,
    properties: BTreeMap<String, Box<RawValue>>,
    body: Box<RawValue>,
}

/// Returns the entry as a line of JSON. A body that is no JSON is a text, and one that is no text, or into which nobody can look, is
/// null.
///
/// # Errors
///
/// If a part is no JSON.
pub(super) fn of(queue: &str, viewed: &ViewEntry) -> serde_json::Result<String> {
    let entry = &viewed.entry;
    let (message, history) = (&entry.message, &entry.history);
    let template = Template::of(entry);
    let headers = message.headers().iter().map(|(name, value)| Ok((name, raw(plain::value(value))?)));
    let properties = plain::properties(message.properties()).map(|(name, json)| Ok((name, raw(json)?)));
    serde_json::to_string(&Document {
        queue,
        handle: entry.handle.to_string(),
        id: message.id(),
        group: viewed.group.to_string(),
        template: template.text(),
        reason: entry.reason(),
        error: history.error.as_deref(),
        kind: history.error_type.as_deref(),
        attempt: history.attempt.or_highest(),
        redrives: history.redrives.or_highest(),
        source: entry.failed_in.as_deref(),
        shelved_at: rfc3339(viewed.time()),
        headers: headers.collect::<serde_json::Result<_>>()?,
        properties: properties.collect::<serde_json::Result<_>>()?,
        body: raw(body(&BodyView::of(message)))?,
    })
}

fn raw(json: String) -> serde_json::Result<Box<RawValue>> {
    RawValue::from_string(json)
}

fn body(view: &BodyView<'_>) -> String {
    if view.problem().is_some() {
        return "null".to_owned();
    }
    match (view.json(), view.text()) {
        // Line ends inside of texts are escaped: these are white space.
        (Some(json), _) => json.replace(['\n', '\r'], " "),
        (None, Some(text)) => serde_json::Value::from(text).to_string(),
        (None, None) => "null".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use redrive::ops::ShelfView;
    use redrive::shelves::{EntryHandle, Shelved};
    use redrive::{Message, Shelf};

    use super::*;

    #[test]
    fn a_body_is_json_or_text_or_null() {
        let body = |bytes: &[u8]| body(&BodyView::of(&Message::new(bytes.to_vec())));
        assert_eq!(body(b"{\"a\":\n[1]}"), r#"{"a": [1]}"#);
        assert_eq!(body(b"two books"), "\"two books\"");
        assert_eq!(body(&[0xff]), "null");
    }

    #[test]
    fn a_number_keeps_its_digits() {
        let message = Message::new(r#"{"id":12345678901234567890123,"price":1.10}"#)
            .with_header("half", redrive::Value::Decimal { scale: 2, value: 150 });
        let entry = Shelved::new(EntryHandle::new(Shelf::DeadLetter, "1"), message);
        let view = ShelfView::new(Shelf::DeadLetter, SystemTime::now(), [entry], false);
        let line = of("orders", view.entries().iter().next().unwrap()).unwrap();
        let body = r#""body":{"id":12345678901234567890123,"price":1.10}"#;
        assert!(line.contains(body) && line.contains(r#""headers":{"half":1.50}"#), "{line}");
    }
}
