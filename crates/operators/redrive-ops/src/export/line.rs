//! One entry as one line.

use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};

use redrive_core::shelves::{EntryHandle, Owner, ParseHandleError};
use redrive_core::{Count, FailureHistory};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::message::MessageJson;
use super::properties::PropertiesJson;
use super::value::UnwritableValue;
use super::{ExportedEntry, FORMAT_VERSION};
use crate::printable::printable_json;

/// A line is no exported entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseLineError {
    /// It has a version that this version of the library does not know.
    #[error(
        "the line has version {0} of the export format, and only version {FORMAT_VERSION} is known: read it with a newer redrive"
    )]
    UnknownVersion(u64),
    /// It is no JSON, or lacks a field, or has one that the format does not have.
    #[error("the line is not an exported entry: {0}")]
    Malformed(String),
}

/// What is written, in this order.
#[derive(Serialize)]
struct Written<'a> {
    v: u64,
    queue: &'a str,
    shelf: String,
    handle: String,
    exported_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    shelved_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    broker_reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    broker_description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_in: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<OwnerJson>,
    story: HistorySummary<'a>,
    #[serde(flatten)]
    message: MessageJson<'a>,
}

/// Whose an entry was; left out if it was of the work queue itself.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OwnerJson {
    Listed,
    Unknown,
    Other,
}

impl OwnerJson {
    fn of(owner: Owner) -> Option<Self> {
        match owner {
            Owner::This => None,
            Owner::Listed => Some(Self::Listed),
            Owner::Unknown => Some(Self::Unknown),
            // What is not known is nobody's to act on.
            _ => Some(Self::Other),
        }
    }
}

impl From<OwnerJson> for Owner {
    fn from(owner: OwnerJson) -> Self {
        match owner {
            OwnerJson::Listed => Self::Listed,
            OwnerJson::Unknown => Self::Unknown,
            OwnerJson::Other => Self::Other,
        }
    }
}

/// What the headers say about the failures, for people and for filters. It is not read back: the headers are.
#[derive(Serialize)]
struct HistorySummary<'a> {
    /// Left out if the header is unreadable.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    redrives: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_queue: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_failed_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failed_at: Option<String>,
}

/// What is read. A field that is not known could be a part of the message: it is an error.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    #[serde(rename = "v")]
    _v: IgnoredAny,
    queue: String,
    shelf: String,
    handle: String,
    exported_at: String,
    shelved_at: Option<String>,
    broker_reason: Option<String>,
    broker_description: Option<String>,
    failed_in: Option<String>,
    owner: Option<OwnerJson>,
    #[serde(rename = "story")]
    _story: Option<IgnoredAny>,
    properties: PropertiesJson,
    headers: Map<String, Json>,
    body: Option<String>,
    body_base64: Option<String>,
}

pub(super) fn write(entry: &ExportedEntry) -> Result<String, UnwritableValue> {
    let message = &entry.message;
    let history = FailureHistory::read(message);
    let line = Written {
        v: FORMAT_VERSION,
        queue: &entry.queue,
        shelf: entry.handle.shelf().to_string(),
        handle: entry.handle.to_string(),
        // A clock that is so wrong says nothing.
        exported_at: rfc3339(entry.exported_at).unwrap_or_else(|| "1970-01-01T00:00:00Z".to_owned()),
        shelved_at: entry.shelved_at.and_then(rfc3339),
        broker_reason: entry.broker_reason.as_deref(),
        broker_description: entry.broker_description.as_deref(),
        failed_in: entry.failed_in.as_deref(),
        owner: OwnerJson::of(entry.owner),
        story: HistorySummary {
            attempt: known(history.attempt),
            redrives: known(history.redrives),
            reason: history.reason.as_ref().map(redrive_core::Reason::as_str),
            error_type: history.error_type.as_deref(),
            error: history.error.as_deref(),
            source_queue: history.source_queue.as_deref(),
            first_failed_at: history.first_failed_at.and_then(rfc3339),
            last_failed_at: history.last_failed_at.and_then(rfc3339),
        },
        message: MessageJson::of(message)?,
    };
    let json = serde_json::to_string(&line).expect("texts, numbers, and maps with texts as keys");
    Ok(printable_json(json))
}

pub(super) fn read(line: &str) -> Result<ExportedEntry, ParseLineError> {
    #[derive(Deserialize)]
    struct Version {
        v: u64,
    }
    let malformed = |error: serde_json::Error| ParseLineError::Malformed(error.to_string());
    // Editors and shells write a byte order mark before the first line.
    let line = line.strip_prefix('\u{feff}').unwrap_or(line);
    // The version first: what another version has in its lines is not known.
    let Version { v } = serde_json::from_str(line).map_err(malformed)?;
    if v != FORMAT_VERSION {
        return Err(ParseLineError::UnknownVersion(v));
    }
    let read: Read = serde_json::from_str(line).map_err(malformed)?;
    entry(read).map_err(ParseLineError::Malformed)
}

fn entry(read: Read) -> Result<ExportedEntry, String> {
    let handle: EntryHandle = read.handle.parse().map_err(|error: ParseHandleError| error.to_string())?;
    if handle.shelf().to_string() != read.shelf {
        return Err(format!("`{handle}` is no entry of the shelf `{}`", read.shelf));
    }
    let (properties, headers) = (read.properties, read.headers);
    let message =
        MessageJson { properties, headers, body: read.body.map(Cow::Owned), body_base64: read.body_base64 };
    Ok(ExportedEntry {
        queue: read.queue,
        handle,
        exported_at: time("exported_at", &read.exported_at)?,
        shelved_at: read.shelved_at.map(|text| time("shelved_at", &text)).transpose()?,
        broker_reason: read.broker_reason,
        broker_description: read.broker_description,
        failed_in: read.failed_in,
        owner: read.owner.map(Owner::from).unwrap_or_default(),
        message: message.into_message()?,
    })
}

fn known(count: Count) -> Option<u32> {
    match count {
        Count::Known(count) => Some(count),
        _ => None,
    }
}

/// Returns `None` for times that RFC 3339 cannot represent: before 1970 (the library's limit) and after 9999.
pub(crate) fn rfc3339(time: SystemTime) -> Option<String> {
    const END_OF_9999: u64 = 253_402_300_800;
    let since = time.duration_since(UNIX_EPOCH).ok().filter(|since| since.as_secs() < END_OF_9999);
    since.map(|_| humantime::format_rfc3339(time).to_string())
}

fn time(field: &str, text: &str) -> Result<SystemTime, String> {
    humantime::parse_rfc3339(text).map_err(|error| format!("`{field}`: {error}"))
}
