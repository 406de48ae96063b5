//! Assertions about a run.

use std::fmt;
use std::time::Duration;

use redrive_core::{Reason, Value};

use crate::record::{AttemptRecord, End, MessageRecord, TestRun};
use crate::table::{self, Table};

/// Assertions about one message; made by [`TestRun::assert`]. Each panics with the table of the run if it does not hold, and returns
/// itself otherwise.
#[derive(Clone, Copy, Debug)]
pub struct AssertMessage<'a> {
    run: &'a TestRun,
    message: &'a MessageRecord,
}

impl TestRun {
    /// Starts assertions about the message with this id.
    ///
    /// # Panics
    ///
    /// If there was no such message.
    #[track_caller]
    pub fn assert(&self, id: &str) -> AssertMessage<'_> {
        AssertMessage { run: self, message: self.message(id) }
    }

    /// Asserts that handlers published exactly the messages with these ids to the other queue, in this order. An attempt that
    /// publishes and then fails publishes again the next time.
    ///
    /// # Panics
    ///
    /// If the queue contains other messages.
    #[track_caller]
    pub fn assert_published<'a>(&self, queue: &str, ids: impl IntoIterator<Item = &'a str>) -> &Self {
        let expected: Vec<_> = ids.into_iter().collect();
        let found: Vec<_> =
            self.published(queue).iter().map(|found| found.message.id().unwrap_or_default()).collect();
        assert!(
            found == expected,
            "queue `{queue}`: expected the published messages {}; found {}\n\n{self}",
            list(&expected),
            list(&found)
        );
        self
    }
}

impl AssertMessage<'_> {
    /// Asserts that the message was delivered this many times.
    #[track_caller]
    pub fn attempts(self, times: usize) -> Self {
        let found = self.message.attempts.len();
        self.holds(found == times, format_args!("{times} attempts"), format_args!("{found}"))
    }

    /// Asserts that the message was delivered at exactly these times, measured from the start of the run. Tokio's timers have a
    /// resolution of a millisecond, so each wait may be up to 2 ms longer than the policy says.
    #[track_caller]
    pub fn attempts_at(self, times: impl IntoIterator<Item = Duration>) -> Self {
        const LATE: Duration = Duration::from_millis(2);
        let expected: Vec<_> = times.into_iter().collect();
        let found: Vec<_> = self.message.attempts.iter().map(|attempt| attempt.at).collect();
        let is_near = |(index, (expected, found)): (u32, (&Duration, &Duration))| {
            expected.abs_diff(*found) <= LATE * index
        };
        let near = (1..).zip(expected.iter().zip(&found)).all(is_near);
        self.holds(
            expected.len() == found.len() && near,
            format_args!("attempts at {}", list(&times_of(&expected))),
            format_args!("{}", list(&times_of(&found))),
        )
    }

    /// Asserts that the attempt of this number (1 is the first, also after a redrive) failed with an error that contains this text.
    #[track_caller]
    pub fn attempt_failed_with(self, number: u32, error: &str) -> Self {
        let of_number = self.message.attempts.iter().filter(|attempt| attempt.number == number);
        let found: Vec<_> = of_number.filter_map(AttemptRecord::error).collect();
        self.holds(
            found.iter().any(|found| found.contains(error)),
            format_args!("attempt {number} to fail with {error:?}"),
            format_args!("{}", list(&found)),
        )
    }

    /// Asserts that the last failure written on the message has an error that contains this text.
    #[track_caller]
    pub fn failed_with(self, error: &str) -> Self {
        let found = self.message.history().error;
        self.holds(
            found.as_ref().is_some_and(|found| found.contains(error)),
            format_args!("a failure with {error:?}"),
            format_args!("{}", shown(found)),
        )
    }

    /// Asserts that the message was acknowledged.
    #[track_caller]
    pub fn acknowledged(self) -> Self {
        self.ends(End::Acknowledged, None)
    }

    /// Asserts that the message was discarded, at the handler's request.
    #[track_caller]
    pub fn discarded(self) -> Self {
        self.ends(End::Discarded, None)
    }

    /// Asserts that the message is on the dead-letter shelf, for this reason.
    #[track_caller]
    pub fn dead_lettered(self, reason: Reason) -> Self {
        self.ends(End::DeadLettered, Some(reason))
    }

    /// Asserts that the message is on the parking shelf, for this reason.
    #[track_caller]
    pub fn parked(self, reason: Reason) -> Self {
        self.ends(End::Parked, Some(reason))
    }

    /// Asserts that the message still waits for its next attempt. Only [`run_for`](crate::TestConsumer::run_for) leaves such messages.
    #[track_caller]
    pub fn waiting(self) -> Self {
        self.holds(
            matches!(self.message.end, End::Waiting(_)),
            format_args!("to be waiting for the next attempt"),
            format_args!("{}", table::end_of(self.message)),
        )
    }

    /// Asserts that the message has this header at the end. Compares numbers by value, whatever their type.
    #[track_caller]
    pub fn header(self, name: &str, value: impl Into<Value>) -> Self {
        let (expected, found) = (value.into(), self.message.message.headers().get(name));
        let same = |found: &Value| {
            *found == expected
                || (found.as_integer().is_some() && found.as_integer() == expected.as_integer())
        };
        self.holds(
            found.is_some_and(same),
            format_args!("header `{name}` to be {expected:?}"),
            format_args!("{}", shown(found)),
        )
    }

    /// Asserts that the message does not have this header at the end.
    #[track_caller]
    pub fn no_header(self, name: &str) -> Self {
        let found = self.message.message.headers().get(name);
        self.holds(found.is_none(), format_args!("no header `{name}`"), format_args!("{}", shown(found)))
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "who asserts gives it away")]
    fn ends(self, end: End, reason: Option<Reason>) -> Self {
        let expected = table::end(end, reason.as_ref());
        self.holds(
            self.message.end == end && self.message.reason() == reason,
            format_args!("to end {expected}"),
            format_args!("{}", table::end_of(self.message)),
        )
    }

    #[track_caller]
    fn holds(self, holds: bool, expected: fmt::Arguments<'_>, found: fmt::Arguments<'_>) -> Self {
        let table = Table(self.run, self.message);
        assert!(holds, "{}: expected {expected}; found {found}\n\n{table}", self.message.id);
        self
    }
}

fn times_of(times: &[Duration]) -> Vec<String> {
    times.iter().copied().map(table::time).collect()
}

fn list(items: &[impl AsRef<str>]) -> String {
    let items: Vec<_> = items.iter().map(AsRef::as_ref).collect();
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}

fn shown(found: Option<impl fmt::Debug>) -> String {
    found.map_or_else(|| "none".to_owned(), |found| format!("{found:?}"))
}
