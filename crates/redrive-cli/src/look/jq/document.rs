//! What a program of jq sees of an entry. Pure.

use redrive::ops::{Template, ViewEntry};
use serde_json::{Map, json};

use crate::look::plain;
use crate::output::rfc3339;

/// Returns the entry as JSON. A body that is no JSON is a text, and one that is no text is null.
pub(super) fn of(queue: &str, viewed: &ViewEntry) -> serde_json::Value {
    let entry = &viewed.entry;
    let (message, history) = (&entry.message, &entry.history);
    let headers: Map<_, _> =
        message.headers().iter().map(|(name, value)| (name.to_owned(), plain::value(value))).collect();
    let properties: Map<_, _> = plain::properties(message.properties()).collect();
    json!({
        "queue": queue,
        "handle": entry.handle.to_string(),
        "id": message.id(),
        "group": viewed.group.to_string(),
        "template": Template::of(entry).text(),
        "reason": entry.reason(),
        "error": history.error,
        "type": history.error_type,
        "attempt": history.attempt.or_highest(),
        "redrives": history.redrives.or_highest(),
        "source": history.source_queue,
        "shelved_at": rfc3339(viewed.time()),
        "headers": headers,
        "properties": properties,
        "body": body(message.body()),
    })
}

fn body(bytes: &[u8]) -> serde_json::Value {
    serde_json::from_slice(bytes)
        .unwrap_or_else(|_| std::str::from_utf8(bytes).map_or(json!(null), |text| json!(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_json_or_text_or_null() {
        assert_eq!(body(br#"{"a":[1]}"#), json!({ "a": [1] }));
        assert_eq!(body(b"two books"), json!("two books"));
        assert_eq!(body(&[0xff]), json!(null));
    }
}
