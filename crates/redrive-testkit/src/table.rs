//! Prints a run as a table, for people who read a failed test.

use std::fmt;
use std::time::Duration;

use redrive_core::{Disposition, Reason};

use crate::record::{AttemptRecord, End, MessageRecord, TestRun};

const HEAD: [&str; 5] = ["message", "attempt", "at", "ended with", "next at"];
/// Maximum number of messages, and of attempts of each, in the table.
const MAX_MESSAGES: usize = 20;
const MAX_ATTEMPTS: usize = 12;
/// Maximum number of characters of an error.
const MAX_ERROR: usize = 100;

type Row = [String; 5];

impl fmt::Display for TestRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self, None)
    }
}

/// A run as a table, which always shows the message of the failed assertion.
pub(crate) struct Table<'a>(pub(crate) &'a TestRun, pub(crate) &'a MessageRecord);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.0, Some(&self.1.id))
    }
}

fn write(f: &mut fmt::Formatter<'_>, run: &TestRun, asked: Option<&str>) -> fmt::Result {
    if run.messages.is_empty() {
        return f.write_str("no message was sent\n");
    }
    let mut rows = vec![HEAD.map(str::to_owned)];
    for (index, message) in run.messages.iter().enumerate() {
        if index < MAX_MESSAGES || asked == Some(&message.id) {
            rows.extend(rows_of(message));
        }
    }
    let widths: [usize; 5] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    for row in rows {
        let line: Vec<_> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        writeln!(f, "{}", line.join("  ").trim_end())?;
    }
    if let Some(more @ 1..) = run.messages.len().checked_sub(MAX_MESSAGES) {
        writeln!(f, "… and {more} more messages")?;
    }
    for (queue, published) in &run.published {
        let ids: Vec<_> = published.iter().filter_map(|published| published.message.id()).collect();
        writeln!(f, "published to `{queue}`: {}", ids.join(", "))?;
    }
    Ok(())
}

fn rows_of(message: &MessageRecord) -> Vec<Row> {
    let attempts = &message.attempts;
    let mut rows: Vec<Row> = if attempts.len() > MAX_ATTEMPTS {
        let (first, last) = (MAX_ATTEMPTS / 2, attempts.len() - MAX_ATTEMPTS / 2);
        let left_out =
            [String::new(), "…".into(), String::new(), format!("({} more)", last - first), String::new()];
        let rows = attempts[..first].iter().map(row_of).chain([left_out]);
        rows.chain(attempts[last..].iter().map(row_of)).collect()
    } else {
        attempts.iter().map(row_of).collect()
    };
    rows.push([String::new(), "end".into(), String::new(), end_of(message), String::new()]);
    rows[0][0] = message.id.clone();
    rows
}

fn row_of(attempt: &AttemptRecord) -> Row {
    [
        String::new(),
        attempt.number.to_string(),
        time(attempt.at),
        result(attempt),
        attempt.next_at().map(time).unwrap_or_default(),
    ]
}

fn result(attempt: &AttemptRecord) -> String {
    let mut text = attempt.disposition.as_ref().map_or_else(|| "(not ended)".to_owned(), decided);
    if let Some(error) = &attempt.not_settled {
        text += &format!(" (not settled: {})", shortened(error));
    }
    text
}

fn decided(disposition: &Disposition) -> String {
    match disposition.failure() {
        Some(failure) => {
            format!("{}: {}: {}", disposition.name(), failure.reason(), shortened(failure.text()))
        }
        None => disposition.name().to_owned(),
    }
}

/// Returns where a message is, in words.
pub(crate) fn end_of(message: &MessageRecord) -> String {
    end(message.end, message.reason().as_ref())
}

/// Returns the same words for an expected end.
pub(crate) fn end(end: End, reason: Option<&Reason>) -> String {
    let because = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    match end {
        End::Acknowledged => "acknowledged".to_owned(),
        End::Discarded => "discarded".to_owned(),
        End::DeadLettered => format!("on the dead-letter shelf{because}"),
        End::Parked => format!("on the parking shelf{because}"),
        End::Waiting(due) => format!("waiting until {}", time(due)),
        End::Ready => "ready in the queue".to_owned(),
        End::InFlight => "in flight".to_owned(),
    }
}

/// Formats a time of a run, in milliseconds.
pub(crate) fn time(time: Duration) -> String {
    humantime::format_duration(Duration::from_millis(time.as_millis() as u64)).to_string()
}

fn shortened(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(MAX_ERROR) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}
