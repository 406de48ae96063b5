//! Compares an entry with a condition.

use std::borrow::Cow;
use std::time::SystemTime;

use redrive_core::{Shelved, Value};

use super::condition::{Condition, CountField, Test, TextField};
use super::json;
use crate::group::{GroupId, error_text};
use crate::snapshot::time_of;

impl Condition {
    pub(super) fn holds(&self, entry: &Shelved, group: GroupId, now: SystemTime) -> bool {
        match self {
            Self::Text(field, test) => test.holds(&text(*field, entry)),
            Self::Header(name, test) => {
                entry.message.headers().get(name).and_then(header_text).is_some_and(|text| test.holds(&text))
            }
            Self::Body(path, test) => json::any(entry.message.body(), path, test),
            Self::Count(field, comparison, count) => comparison.holds(self::count(*field, entry), *count),
            Self::Age(comparison, age) => time_of(entry)
                .is_some_and(|time| comparison.holds(now.duration_since(time).unwrap_or_default(), *age)),
            Self::Group(id) => *id == group,
            Self::Entries(handles) => handles.contains(&entry.handle),
            Self::Anywhere(wanted) => {
                let test = |text: &str| contains(text, wanted);
                error_text(entry).is_some_and(|text| test(&text))
                    || entry.message.id().is_some_and(test)
                    || test(&String::from_utf8_lossy(entry.message.body()))
            }
        }
    }
}

impl Test {
    pub(super) fn holds(&self, text: &str) -> bool {
        match self {
            Self::Is(wanted) => text == wanted,
            Self::Contains(wanted) => contains(text, wanted),
        }
    }
}

fn contains(text: &str, wanted: &str) -> bool {
    text.to_lowercase().contains(&wanted.to_lowercase())
}

fn text(field: TextField, entry: &Shelved) -> Cow<'_, str> {
    let history = &entry.history;
    let text = match field {
        TextField::Reason => entry.reason(),
        TextField::Type => history.error_type.as_deref(),
        TextField::Error => return error_text(entry).unwrap_or_default(),
        TextField::Source => history.source_queue.as_deref(),
        TextField::Id => entry.message.id(),
        TextField::Kind => entry.message.properties().kind.as_deref(),
    };
    Cow::Borrowed(text.unwrap_or_default())
}

fn count(field: CountField, entry: &Shelved) -> u32 {
    match field {
        CountField::Attempt => entry.history.attempt.or_highest(),
        CountField::Redrives => entry.history.redrives.or_highest(),
    }
}

/// Returns a header's value as a filter writes it; `None`: it has no text of its own.
fn header_text(value: &Value) -> Option<Cow<'_, str>> {
    let text = match value {
        Value::String(text) => return Some(Cow::Borrowed(text)),
        Value::Bool(value) => value.to_string(),
        Value::Char(value) => value.to_string(),
        Value::F32(value) => value.to_string(),
        Value::F64(value) => value.to_string(),
        Value::Timestamp(time) => {
            // Years beyond 9999 have no such form.
            let latest = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(253_402_300_799);
            let time =
                time.to_system_time().filter(|time| (SystemTime::UNIX_EPOCH..=latest).contains(time))?;
            humantime::format_rfc3339(time).to_string()
        }
        Value::Uuid(bytes) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
        }
        other => other.as_integer()?.to_string(),
    };
    Some(Cow::Owned(text))
}
