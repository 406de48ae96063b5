//! What an edit changes, for people.

use std::fmt::Write as _;

use redrive_core::{Message, redact};
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};
use similar::TextDiff;

use super::class::MessagePart;
use crate::export::headers_to_json;
use crate::json::pretty;
use crate::printable::printable;

/// Bodies that are larger, or have more lines, are shown as their lengths and digests: a comparison takes time with the square of the
/// lines that differ.
const LARGEST_BODY: usize = 64 * 1024;
const MOST_LINES: usize = 2_000;
/// Lines that are shown around a change.
const CONTEXT: usize = 3;

/// Returns what an edit changes, as a unified diff: one line for each property and header, then the body. It is empty if nothing has
/// changed.
///
/// Bodies in JSON are compared with a line for each value. Binary bodies, and those larger than 64 KiB or 2000 lines, are shown as their
/// lengths and SHA-256 digests. Secrets that [`redact`] recognizes are masked; a part that differs only there, or only in its white
/// space, is named at the end. Control characters are escaped.
#[must_use]
pub fn diff(original: &Message, edited: &Message) -> String {
    let changed = super::changed(original, edited);
    if changed.is_empty() {
        return String::new();
    }
    let bodies = [original, edited].map(|message| text_of(message.body()));
    let bodies = match &bodies {
        [Some(one), Some(other)] => match (pretty(one), pretty(other)) {
            (Some(one), Some(other)) if is_short(&one) && is_short(&other) => [one, other],
            _ => [one, other].map(|text| (*text).to_owned()),
        },
        _ => [original, edited].map(|message| digest_of(message.body())),
    };
    let [before, after] =
        [(original, &bodies[0]), (edited, &bodies[1])].map(|(message, body)| shown(message, body));
    let mut text = String::new();
    let lines =
        |parts: &[(MessagePart, String)]| parts.iter().map(|(_, lines)| lines.as_str()).collect::<String>();
    let (one, other) = (lines(&before), lines(&after));
    if one != other {
        let diff = TextDiff::from_lines(&one, &other);
        text = diff.unified_diff().context_radius(CONTEXT).header("original", "edited").to_string();
    }
    for part in changed {
        let of = |parts: &[(MessagePart, String)]| {
            parts.iter().find(|(there, _)| *there == part).map(|(_, lines)| lines.clone())
        };
        if of(&before) == of(&after) {
            let _ = writeln!(
                text,
                "{part}: it differs only in parts that are not shown (a secret, white space or a line end)"
            );
        }
    }
    text
}

/// Returns the lines of each part as they are shown.
fn shown(message: &Message, body: &str) -> Vec<(MessagePart, String)> {
    let properties = super::properties(message.properties()).into_iter();
    let properties = properties.map(|(name, json)| (MessagePart::Property(name), json));
    let headers = message.headers().iter().map(|(name, value)| {
        let one = redrive_core::Headers::from_iter([(name, value.clone())]);
        let json = headers_to_json(&one).ok().and_then(|map| map.into_iter().next());
        let json = json.map_or_else(|| Json::String(format!("{value:?}")), |(_, json)| json);
        (MessagePart::Header(name.to_owned()), json)
    });
    let line = |(part, json): (MessagePart, Json)| {
        let line = masked(&format!("{part}: {json}"));
        (part, format!("{}\n", line.replace('\n', "\\n")))
    };
    let mut parts: Vec<_> = properties.chain(headers).map(line).collect();
    parts.push((MessagePart::Body, format!("\n{}\n", masked(body))));
    parts
}

fn masked(text: &str) -> String {
    printable(&redact(text)).into_owned()
}

/// Returns the body if it is a text of which every line may be compared.
fn text_of(body: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(body).ok()?;
    (text.len() <= LARGEST_BODY && !text.contains('\0') && is_short(text)).then_some(text)
}

fn is_short(text: &str) -> bool {
    text.lines().count() <= MOST_LINES
}

fn digest_of(body: &[u8]) -> String {
    let digest = Sha256::digest(body);
    let hex = digest.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    format!("({} bytes, sha256 {hex})", body.len())
}
