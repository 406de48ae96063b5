//! First attempts of messages that were on a shelf. Pure.

use std::time::SystemTime;

use crate::failure::Reason;
use crate::header_names as names;
use crate::headers::{Headers, Value};
use crate::history::{read_copy_number, write_time};
use crate::message::Message;

/// Removes what was counted and waited for before: the next delivery is a first attempt.
pub(crate) fn remove_counts(headers: &mut Headers) {
    for name in [
        names::ATTEMPT,
        names::SNOOZES,
        names::HANDED_OUT,
        names::FIRST_FAILED_AT,
        names::DEADLINE,
        names::NOT_BEFORE,
        names::WAIT_LEFT,
        names::DUE_AT,
        names::REPORT_TO,
        names::SHELVED,
    ] {
        headers.remove(name);
    }
}

/// Marks a copy that goes onto a shelf.
pub(crate) fn mark(headers: &mut Headers, now: SystemTime) {
    let time = write_time(now);
    let mark = format!("{}:{}", read_copy_number(headers), time.as_str().unwrap_or_default());
    headers.insert_own(names::SHELVED, mark);
}

/// Makes a first attempt of a message that arrives in the work queue with the mark of a shelf: another program put it back. Returns why
/// it was on the shelf, or `None` for every other message, which stays as it is.
///
/// The copy number in the mark must be that of the message: a program that does not know the mark may carry it on to later copies.
pub(crate) fn begin_afresh(message: &mut Message) -> Option<Reason> {
    let headers = message.headers();
    let (of_copy, _) = headers.get(names::SHELVED).and_then(Value::as_str)?.split_once(':')?;
    let reason = headers.get(names::REASON).and_then(Value::as_str).map(Reason::parse)?;
    if of_copy.parse() != Ok(read_copy_number(headers)) {
        return None;
    }
    remove_counts(message.headers_mut());
    Some(reason)
}
