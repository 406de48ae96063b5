//! A message as text for an editor, and back.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use redrive_core::{Headers, Message, Properties};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::class::{EditClass, MessagePart, listed};
use crate::export::{PropertiesJson, UnwritableValue, headers_from_json, headers_to_json};
use crate::printable::{printable_json, steers_a_terminal};

/// Separates properties and headers from the body. No line of JSON is like it.
const SEPARATOR: &str = "---";
/// Length of a line of base64.
const LINE: usize = 76;

/// A message as text for an editor: properties and headers as JSON, a line `---`, and the body.
///
/// ```text
/// # Edit, save and close. If nothing has changed, nothing is done.
/// # Above the line `---`: properties and headers. Below it: the body.
/// # Fixed, and not shown: header redrive-attempt, header redrive-reason
/// # Change with care: property id
/// {
///   "properties": {
///     "id": "order-7"
///   },
///   "headers": {
///     "tenant": "blue"
///   },
///   "body": "text"
/// }
/// ---
/// 2 books
/// ```
///
/// Headers have the types of an [export](crate::ExportedEntry). [Locked](EditClass::Locked) parts are left out and stay as they are. A
/// body that is no UTF-8, or that has control characters other than line ends and tabs, is base64 with `"body": "base64"`. The last
/// line feed of the text is not part of the body: editors add it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditText(String);

/// A text is no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read the edited text{}: {why}", .line.map(|line| format!(", line {line}")).unwrap_or_default())]
#[non_exhaustive]
pub struct ParseEditError {
    /// The line; the first one is 1.
    pub line: Option<usize>,
    /// Why it cannot be read.
    pub why: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHead {
    properties: PropertiesJson,
    headers: Map<String, Json>,
    body: BodyForm,
}

/// What a person or a program wrote.
pub(super) struct Head {
    pub(super) properties: PropertiesJson,
    pub(super) headers: Map<String, Json>,
}

#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum BodyForm {
    Text,
    Base64,
}

impl EditText {
    /// Writes a message.
    ///
    /// # Errors
    ///
    /// If a header cannot be written.
    pub fn of(message: &Message) -> Result<Self, UnwritableValue> {
        let text = std::str::from_utf8(message.body()).ok().filter(|text| is_editable(text));
        let head = WrittenHead {
            properties: PropertiesJson::from(&unlocked(message.properties())),
            headers: headers_to_json(&headers_of(message, |class| class != EditClass::Locked))?,
            body: if text.is_some() { BodyForm::Text } else { BodyForm::Base64 },
        };
        let json = serde_json::to_string_pretty(&head).expect("texts, numbers, and maps with texts as keys");
        let body = text.map_or_else(|| wrapped(&BASE64.encode(message.body())), str::to_owned);
        let comments = comments(message);
        Ok(Self(format!("{comments}{}\n{SEPARATOR}\n{body}\n", printable_json(json))))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads a text that was edited. Locked parts that it does not name are those of the original.
    ///
    /// # Errors
    ///
    /// If it is not in this form. The error names the line.
    pub fn parse(text: &str, original: &Message) -> Result<Message, ParseEditError> {
        let (head, body) = split(text).ok_or_else(|| {
            ParseEditError::new(format!("the line `{SEPARATOR}` before the body is missing"))
        })?;
        // Comments become empty lines, so that the lines of errors are those of the text.
        let json: String =
            head.split_inclusive('\n').map(|l| if l.starts_with('#') { "\n" } else { l }).collect();
        let WrittenHead { properties, headers, body: form } =
            serde_json::from_str(&json).map_err(|error| ParseEditError {
                line: Some(error.line()).filter(|line| *line > 0),
                why: error.to_string(),
            })?;
        let body = match form {
            BodyForm::Text => body.as_bytes().to_vec(),
            BodyForm::Base64 => {
                let compact: String = body.split_ascii_whitespace().collect();
                let decoded = BASE64.decode(compact);
                decoded.map_err(|error| ParseEditError::new(format!("the body is no base64: {error}")))?
            }
        };
        message_of(Head { properties, headers }, body, original)
    }
}

/// Returns the edited message, with the locked parts of the original that it does not name.
pub(super) fn message_of(head: Head, body: Vec<u8>, original: &Message) -> Result<Message, ParseEditError> {
    let mut properties = Properties::try_from(head.properties).map_err(ParseEditError::new)?;
    let fixed = original.properties().clone();
    properties.user_id = properties.user_id.or(fixed.user_id);
    properties.cluster_id = properties.cluster_id.or(fixed.cluster_id);
    properties.persistent = properties.persistent.or(fixed.persistent);
    let mut headers = headers_from_json(head.headers).map_err(ParseEditError::new)?;
    for (name, value) in headers_of(original, |class| class == EditClass::Locked).iter() {
        if !headers.contains(name) {
            headers.insert(name, value.clone());
        }
    }
    Ok(Message::from_parts(body.into(), headers, properties))
}

impl ParseEditError {
    pub(super) fn new(why: String) -> Self {
        Self { line: None, why }
    }
}

/// Splits the text at the separator; the body is without the last line feed.
fn split(text: &str) -> Option<(&str, &str)> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let end = start + line.len();
        if line.trim_end() == SEPARATOR {
            let body = &text[end..];
            return Some((&text[..start], body.strip_suffix('\n').unwrap_or(body)));
        }
        start = end;
    }
    None
}

/// Returns true if an editor shows and keeps this text.
fn is_editable(text: &str) -> bool {
    // Editors change the ends of all lines together, or of none.
    let has_lone_ends = || text.replace("\r\n", "").contains('\r');
    let is_mixed = || text.contains("\r\n") && text.replace("\r\n", "").contains('\n');
    !text.chars().any(|c| steers_a_terminal(c) && !"\r\n\t".contains(c)) && !has_lone_ends() && !is_mixed()
}

fn wrapped(base64: &str) -> String {
    let lines: Vec<_> = base64.as_bytes().chunks(LINE).map(String::from_utf8_lossy).collect();
    lines.join("\n")
}

pub(super) fn headers_of(message: &Message, wanted: impl Fn(EditClass) -> bool) -> Headers {
    let mut headers = message.headers().clone();
    headers.retain(|name, _| wanted(MessagePart::Header(name.to_owned()).class()));
    headers
}

/// Returns the properties without locked ones.
pub(super) fn unlocked(properties: &Properties) -> Properties {
    let mut properties = properties.clone();
    (properties.user_id, properties.cluster_id, properties.persistent) = (None, None, None);
    properties
}

fn comments(message: &Message) -> String {
    let properties = super::properties(message.properties()).into_iter();
    let properties = properties.map(|(name, _)| MessagePart::Property(name));
    let headers = message.headers().iter().map(|(name, _)| MessagePart::Header(name.to_owned()));
    let parts: BTreeSet<_> = properties.chain(headers).collect();
    let of = |class| parts.iter().filter(|part| part.class() == class).cloned().collect::<Vec<_>>();
    let mut comments = String::from(
        "# Edit, save and close. If nothing has changed, nothing is done.\n\
         # Above the line `---`: properties and headers. Below it: the body.\n",
    );
    for (what, parts) in
        [("Fixed, and not shown", of(EditClass::Locked)), ("Change with care", of(EditClass::Sensitive))]
    {
        if !parts.is_empty() {
            comments.push_str(&format!("# {what}: {}\n", listed(&parts)));
        }
    }
    comments
}
