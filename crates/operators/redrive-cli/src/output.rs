//! What is printed: data on stdout, talk on stderr. No control character of a message reaches a terminal.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use anyhow::{Result, anyhow};
use comfy_table::{ContentArrangement, Table};
pub(crate) use redrive::plural;
use redrive::{Shelf, Timestamp, plausible};
use serde::Serialize;

/// Escapes what could steer a terminal, except line feeds and tabs.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    redrive::ops::printable(text)
}

/// Returns the text in one line, at most `chars` long.
pub(crate) fn one_line(text: &str, chars: usize) -> String {
    let line = printable(text).split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// A table of one line for each entry; cells are escaped.
pub(crate) struct Rows(Table);

/// Creates a table with these heads.
pub(crate) fn table<const N: usize>(heads: [&str; N]) -> Rows {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    // A pipe has no width: each entry is one line.
    if std::io::stdout().is_terminal()
        && let Some((width, _)) = terminal_size::terminal_size()
    {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width.0);
    }
    table.set_header(heads);
    Rows(table)
}

impl Rows {
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.0.add_row(cells.map(|cell| one_line(&cell, 200)));
    }

    pub(crate) fn print(&self) {
        if self.0.row_count() > 0 {
            for line in self.0.to_string().lines() {
                print(line.trim_end());
            }
        }
    }
}

/// Why stdout takes nothing more.
static UNWRITABLE: OnceLock<io::Error> = OnceLock::new();

/// Prints a line of data. Once that fails nothing more is printed, and the command goes on: it may be in the middle of work.
pub(crate) fn print(line: &str) {
    write(|out| writeln!(out, "{line}"));
}

/// Prints these bytes as they are.
pub(crate) fn print_bytes(bytes: &[u8]) {
    write(|out| out.write_all(bytes));
}

fn write(data: impl FnOnce(&mut io::Stdout) -> io::Result<()>) {
    if is_writable()
        && let Err(error) = data(&mut io::stdout())
    {
        let _ = UNWRITABLE.set(error);
    }
}

/// Returns false once nothing more can be printed: a look may end.
pub(crate) fn is_writable() -> bool {
    UNWRITABLE.get().is_none()
}

/// Writes what is left.
///
/// # Errors
///
/// If something could not be printed. A reader that has gone, as `head` does, wanted no more.
pub(crate) fn finish() -> Result<()> {
    write(io::Write::flush);
    match UNWRITABLE.get() {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(anyhow!("the output is incomplete: cannot write to stdout: {error}"))
        }
        _ => Ok(()),
    }
}

/// Says something on stderr. A terminal that has gone is no reason to end in the middle of work.
macro_rules! note {
    ($($text:tt)*) => {{
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{}\n", format_args!($($text)*)));
    }};
}
pub(crate) use note;

/// Prints data as JSON.
///
/// # Errors
///
/// If it cannot be written as JSON.
pub(crate) fn print_json(data: &impl Serialize) -> Result<()> {
    // serde_json escapes control characters; the others that steer a terminal are escaped here.
    print(&redrive::ops::printable_json(serde_json::to_string_pretty(data)?));
    Ok(())
}

/// Returns how long ago this was, in at most two units: `2h 5m`. A time that is not plausible is not known.
pub(crate) fn ago(time: Option<SystemTime>, now: SystemTime) -> String {
    let known = time.and_then(|time| plausible(time, now));
    known.map_or_else(|| "-".to_owned(), |time| short(now.duration_since(time).unwrap_or_default()))
}

/// Returns how long ago a time on a message was: `2h 5m ago`. A time that is not plausible is shown as far as it can be.
pub(crate) fn when(time: Option<SystemTime>, now: SystemTime) -> String {
    match time {
        None => "-".to_owned(),
        Some(time) if plausible(time, now).is_some() => format!("{} ago", ago(Some(time), now)),
        Some(time) => format!("{} (not plausible)", as_written(time)),
    }
}

fn as_written(time: SystemTime) -> String {
    let millis = || format!("{} ms since 1970", Timestamp::from(time).unix_millis());
    redrive::rfc3339(time).unwrap_or_else(millis)
}

/// Returns a duration in at most two units.
pub(crate) fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, ..) => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h"),
    }
}

/// Returns why a message or a group failed: reason and text. Messages of others may have neither.
pub(crate) fn failure(reason: Option<&str>, text: &str) -> String {
    match (reason.unwrap_or_default(), text) {
        ("", "") => "no reason recorded".to_owned(),
        (one, "") | ("", one) => one.to_owned(),
        (reason, text) => format!("{reason}: {text}"),
    }
}

/// Returns a time for JSON; `None` also for one that RFC 3339 cannot represent.
pub(crate) fn rfc3339(time: Option<SystemTime>) -> Option<String> {
    let time = time.filter(|time| redrive::rfc3339(*time).is_some())?;
    Some(humantime::format_rfc3339_millis(time).to_string())
}

/// Returns the name of a shelf as the user writes it.
pub(crate) fn shelf_name(shelf: Shelf) -> String {
    shelf.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_escape_sequence_reaches_the_terminal() {
        assert_eq!(one_line("a\u{1b}[31mred\r\nb\u{202e}c", 200), "a\\u{1b}[31mred\\u{d} b\\u{202e}c");
        assert_eq!(one_line("four words are here", 6), "four w…");
    }

    #[test]
    fn a_failure_is_as_much_as_is_known() {
        let cases = [
            (None, "", "no reason recorded"),
            (Some(""), "", "no reason recorded"),
            (Some("rejected"), "", "rejected"),
            (None, "no stock", "no stock"),
            (Some("Expired"), "no stock", "Expired: no stock"),
        ];
        for (reason, text, expected) in cases {
            assert_eq!(failure(reason, text), expected);
        }
    }

    #[test]
    fn a_time_beyond_reason_is_shown_as_far_as_it_can_be() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let now = at(1_800_000_000);
        assert_eq!((when(None, now), when(Some(at(1_799_999_940)), now)), ("-".into(), "1m 0s ago".into()));
        assert_eq!(when(Some(at(1_800_000)), now), "1970-01-21T20:00:00Z (not plausible)");
        let nanos = at(1_800_000_000_000_000);
        assert_eq!(when(Some(nanos), now), "1800000000000000000 ms since 1970 (not plausible)");
        assert_eq!((ago(Some(nanos), now), rfc3339(Some(nanos))), ("-".into(), None));
    }

    #[test]
    fn durations_have_at_most_two_units() {
        let of = |seconds| short(Duration::from_secs(seconds));
        assert_eq!([of(5), of(65), of(7500), of(200_000)], ["5s", "1m 5s", "2h 5m", "2d 7h"]);
    }
}
