//! Compares an entry with a condition.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::time::SystemTime;

use redrive_core::shelves::Shelved;
use redrive_core::{Value, rfc3339};

use super::condition::{Condition, CountField, Test, TextField};
use super::json;
use crate::body::BodyView;
use crate::group::{GroupId, error_text};
use crate::snapshot::time_of;

/// An entry that conditions look at.
pub(super) struct Looked<'a> {
    pub(super) entry: &'a Shelved,
    group: GroupId,
    now: SystemTime,
    /// Unpacked at the first condition that looks into it.
    body: OnceCell<BodyView<'a>>,
}

impl<'a> Looked<'a> {
    pub(super) fn new(entry: &'a Shelved, group: GroupId, now: SystemTime) -> Self {
        Self { entry, group, now, body: OnceCell::new() }
    }

    fn body(&self) -> &BodyView<'a> {
        self.body.get_or_init(|| BodyView::of(&self.entry.message))
    }
}

impl Condition {
    /// Returns whether it holds; `None`: it asks for the body, into which nobody can look.
    pub(super) fn holds(&self, looked: &Looked<'_>) -> Option<bool> {
        match self {
            Self::Body(path, test) => {
                let body = looked.body();
                let found = body.text().map_or(Ok(false), |text| json::any(text, path, test));
                found.ok().filter(|_| body.problem().is_none())
            }
            Self::Anywhere(wanted) => {
                let body = looked.body();
                let found = is_anywhere(wanted, looked.entry, body);
                (found || body.problem().is_none()).then_some(found)
            }
            other => Some(other.holds_beside_body(looked)),
        }
    }

    fn holds_beside_body(&self, looked: &Looked<'_>) -> bool {
        let Looked { entry, group, now, .. } = looked;
        match self {
            Self::Text(field, test) => test.holds(&text(*field, entry)),
            Self::Header(name, test) => {
                entry.message.headers().get(name).is_some_and(|value| test.holds_for_header(value))
            }
            Self::Count(field, comparison, count) => comparison.holds(self::count(*field, entry), *count),
            Self::Age(comparison, age) => time_of(entry, *now)
                .is_some_and(|time| comparison.holds(now.duration_since(time).unwrap_or_default(), *age)),
            Self::Group(id) => id == group,
            Self::Entries(handles) => handles.contains(&entry.handle),
            Self::Body(..) | Self::Anywhere(_) => false,
        }
    }
}

fn is_anywhere(wanted: &str, entry: &Shelved, body: &BodyView<'_>) -> bool {
    let test = |text: &str| contains(text, wanted);
    error_text(entry).is_some_and(|text| test(&text))
        || entry.message.id().is_some_and(test)
        || test(&String::from_utf8_lossy(body.bytes()))
}

impl Test {
    pub(super) fn holds(&self, text: &str) -> bool {
        match self {
            Self::Is(wanted) => text == wanted,
            Self::Contains(wanted) => contains(text, wanted),
        }
    }

    fn holds_for_header(&self, value: &Value) -> bool {
        let Some(text) = header_text(value) else { return false };
        match value {
            Value::String(_) | Value::Bool(_) | Value::Char(_) | Value::Timestamp(_) | Value::Uuid(_) => {
                self.holds(&text)
            }
            _ => self.holds_for_number(&text),
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
        TextField::Error => return Cow::Owned(error_text(entry).unwrap_or_default()),
        TextField::Source => entry.failed_in.as_deref(),
        TextField::Id => entry.message.id(),
        TextField::Kind => entry.message.kind(),
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
        Value::Decimal { scale, value } => format!("{value}e-{scale}"),
        // Years beyond 9999 have no such form.
        Value::Timestamp(time) => time.to_system_time().and_then(rfc3339)?,
        Value::Uuid(bytes) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
        }
        other => other.as_integer()?.to_string(),
    };
    Some(Cow::Owned(text))
}
