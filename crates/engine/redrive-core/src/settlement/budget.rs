//! Keeps the headers that redrive writes within their size limits.

use super::{MAX_NAME_BYTES, Planning, SHORT_ERROR_BYTES, fits};
use crate::header_names as names;
use crate::headers::{Headers, Value};
use crate::message::Message;
use crate::text::cut;

/// Drops parts of the history until the headers fit, least useful first. Counts, times, reason, id and source queue stay: within
/// their bounds they always fit. Returns whether the broker accepts all headers together: headers of others may be too large by
/// themselves.
pub(super) fn into_budget(copy: &mut Message, planning: &Planning<'_>) -> bool {
    let steps: [fn(&mut Headers); 10] = [
        |headers| keep_of_history(headers, 1, 3),
        |headers| keep_of_history(headers, 1, 0),
        |headers| drop(headers.remove(names::HISTORY)),
        bound_foreign_writing,
        |headers| shorten(headers, names::ERROR, SHORT_ERROR_BYTES),
        |headers| drop(headers.remove(names::ERROR_TYPE)),
        |headers| drop(headers.remove(names::ERROR)),
        |headers| {
            headers.remove(names::FINGERPRINT);
            headers.remove(names::TRACE_PARENT);
            headers.remove(names::REPORT_TO);
        },
        |headers| {
            headers.remove(names::SOURCE_EXCHANGE);
            headers.remove(names::SOURCE_ROUTING_KEY);
        },
        |headers| headers.retain(|name, _| !name.starts_with(names::PREFIX) || KEPT.contains(&name)),
    ];
    for step in steps {
        if own_bytes(copy.headers()) <= planning.header_budget && fits(copy, planning) {
            return true;
        }
        step(copy.headers_mut());
    }
    fits(copy, planning)
}

/// Headers that are never dropped.
const KEPT: [&str; 18] = [
    names::ATTEMPT,
    names::HOP,
    names::REDRIVES,
    names::SNOOZES,
    names::HANDED_OUT,
    names::FIRST_FAILED_AT,
    names::LAST_FAILED_AT,
    names::SHELVED,
    names::REASON,
    names::SOURCE_QUEUE,
    names::MESSAGE_ID,
    names::USER_ID,
    names::EXPIRATION,
    names::DEADLINE,
    names::NOT_BEFORE,
    names::WAIT_LEFT,
    names::DUE_AT,
    // Only where it could not be unpacked: whole, or of use to nobody.
    names::STORY,
];

/// Bounds headers under redrive's names that another program may have written, of any size: a copy that does not rewrite a header
/// carries it on. Values that redrive writes are not changed here.
fn bound_foreign_writing(headers: &mut Headers) {
    let too_long = |value: &Value| value.encoded_len() > 1 + 4 + MAX_NAME_BYTES;
    let names: Vec<String> = headers
        .iter()
        .filter(|(name, value)| name.starts_with(names::PREFIX) && too_long(value))
        .map(|(name, _)| name.to_owned())
        .filter(|name| ![names::SOURCE_QUEUE, names::ERROR, names::STORY].contains(&name.as_str()))
        .collect();
    for name in names {
        let bounded = match headers.remove(&name) {
            // A count keeps its value, or stays unreadable; it never disappears.
            Some(value) if name == names::ATTEMPT || name == names::REDRIVES => Some(bound_count(&value)),
            Some(Value::String(text)) => Some(Value::from(&*cut(&text, MAX_NAME_BYTES))),
            _ => None,
        };
        if let Some(bounded) = bounded {
            headers.insert(name, bounded);
        }
    }
}

fn bound_count(value: &Value) -> Value {
    match value.to_integer() {
        Some(count) => Value::I64(i64::try_from(count).unwrap_or(i64::MAX)),
        None => Value::from("unreadable, and too long to keep"),
    }
}

fn keep_of_history(headers: &mut Headers, first: usize, last: usize) {
    let Some(Value::List(mut entries)) = headers.remove(names::HISTORY) else { return };
    if entries.len() > first + last {
        entries.drain(first..entries.len() - last);
    }
    headers.insert_own(names::HISTORY, Value::List(entries));
}

fn shorten(headers: &mut Headers, name: &str, max: usize) {
    if let Some(Value::String(text)) = headers.remove(name) {
        headers.insert(name, &*cut(&text, max));
    }
}

/// Returns how many bytes redrive's own headers take, without a story that it could not unpack.
pub(crate) fn own_bytes(headers: &Headers) -> usize {
    let own = headers.iter().filter(|(name, _)| name.starts_with(names::PREFIX) && *name != names::STORY);
    own.map(|(name, value)| 1 + name.len() + value.encoded_len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_is_too_long_stays_what_it_says() {
        let long = |text: &str| Value::String(text.to_owned());
        assert_eq!(bound_count(&long(&format!("{}7", "0".repeat(999)))), Value::I64(7));
        for unreadable in
            [long(&"9".repeat(999)), long(&"-".repeat(999)), Value::List(vec![Value::Null; 999])]
        {
            assert_eq!(bound_count(&unreadable).to_integer(), None);
        }
        // A negative number is not a count, and does not become one.
        assert_eq!(bound_count(&long(&format!("-{}7", "0".repeat(999)))), Value::I64(-7));
    }
}
