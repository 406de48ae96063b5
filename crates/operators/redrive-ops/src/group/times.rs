//! Recognizes times and dates in a text. Only their shape counts, not the values of their digits: `99:99:99` is a time.

use super::text::Text;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// Returns the end of the time that begins at `at`, the start of a word.
pub(super) fn time(text: &Text<'_>, at: usize) -> Option<usize> {
    let end = compact(text, at)
        .or_else(|| date(text, at).map(|end| with_clock(text, end)))
        .or_else(|| long_date(text, at))
        .or_else(|| clock(text, at).filter(|clock| clock.has_seconds).map(|clock| zone(text, clock.end)))?;
    (!text.word_after(end)).then_some(end)
}

/// `20260102T030405Z`
fn compact(text: &Text<'_>, at: usize) -> Option<usize> {
    let at = text.digits(at, 8..=8).filter(|&at| text.byte(at) == b'T')?;
    let end = text.digits(at + 1, 6..=6)?;
    Some(zone(text, end))
}

/// `2026-01-02`, `2026/01/02`, `02/01/2026`, `02/Jan/2026`
fn date(text: &Text<'_>, at: usize) -> Option<usize> {
    let sign = |at: usize, sign: &[u8]| sign.contains(&text.byte(at)).then_some(at + 1);
    let year_first = || {
        let end = text.digits(at, 4..=4)?;
        let separator = [text.byte(end)];
        let end = text.digits(sign(end, b"-/")?, 2..=2)?;
        text.digits(sign(end, &separator)?, 2..=2)
    };
    let year_last = || {
        let after_day = sign(text.digits(at, 1..=2)?, b"/")?;
        let after_month = text.digits(after_day, 1..=2).or_else(|| name(text, after_day, &MONTHS))?;
        text.digits(sign(after_month, b"/")?, 4..=4)
    };
    year_first().or_else(year_last)
}

/// Returns the end of the clock that follows a date, or the end of the date.
fn with_clock(text: &Text<'_>, date: usize) -> usize {
    let follows =
        matches!(text.byte(date), b'T' | b't' | b' ' | b':').then(|| clock(text, date + 1)).flatten();
    follows.map_or(date, |clock| zone(text, clock.end))
}

/// Matches `Fri, 2 Jan 2026 03:04:05 GMT`, `Fri Jan 2 03:04:05 2026`, `Jan 2 03:04:05`, `2 January 2026`. A year or a clock is
/// required.
fn long_date(text: &Text<'_>, at: usize) -> Option<usize> {
    let space = |at: usize| (text.byte(at) == b' ').then_some(at + 1);
    let comma = |at: usize| if text.byte(at) == b',' { at + 1 } else { at };
    let year = |at: usize| text.digits(space(comma(at))?, 4..=4).filter(|&end| text.byte(end) != b':');
    let at = name(text, at, &WEEKDAYS).and_then(|end| space(comma(end))).unwrap_or(at);
    let day_first = || name(text, space(text.digits(at, 1..=2)?)?, &MONTHS);
    let month_first = || text.digits(space(name(text, at, &MONTHS)?)?, 1..=2);
    let day = day_first().or_else(month_first)?;
    let with_year = year(day);
    let end = with_clock(text, with_year.unwrap_or(day));
    match with_year {
        Some(_) => Some(end),
        // `asctime` writes the year last.
        None if end > day => Some(year(end).unwrap_or(end)),
        None => None,
    }
}

struct Clock {
    end: usize,
    has_seconds: bool,
}

/// `3:04`, `03:04:05`, `03:04:05.678`, `03:04:05,678`
fn clock(text: &Text<'_>, at: usize) -> Option<Clock> {
    let two = |at: usize| (text.byte(at) == b':').then(|| text.digits(at + 1, 2..=2)).flatten();
    let minutes = two(text.digits(at, 1..=2)?)?;
    let Some(seconds) = two(minutes) else { return Some(Clock { end: minutes, has_seconds: false }) };
    let fraction =
        matches!(text.byte(seconds), b'.' | b',').then(|| text.digits(seconds + 1, 1..=12)).flatten();
    Some(Clock { end: fraction.unwrap_or(seconds), has_seconds: true })
}

/// Returns the end of the zone that follows a clock, or the end of the clock: `Z`, `+01:00`, `-0500`, ` UTC`.
fn zone(text: &Text<'_>, clock: usize) -> usize {
    if matches!(text.byte(clock), b'Z' | b'z') {
        return clock + 1;
    }
    let at = if text.byte(clock) == b' ' { clock + 1 } else { clock };
    if text.follows(at, "UTC") || text.follows(at, "GMT") {
        return at + 3;
    }
    let offset = || {
        let hours = matches!(text.byte(at), b'+' | b'-').then(|| text.digits(at + 1, 2..=4)).flatten()?;
        match hours - at - 1 {
            4 => Some(hours),
            2 => (text.byte(hours) == b':').then(|| text.digits(hours + 1, 2..=2)).flatten(),
            _ => None,
        }
    };
    offset().unwrap_or(clock)
}

/// Returns the end of one of these names, or of its first three letters.
fn name(text: &Text<'_>, at: usize, names: &[&str]) -> Option<usize> {
    let end = text.run(at, |byte| byte.is_ascii_alphabetic()).min(at + 9);
    let word = text.bytes.get(at..end)?;
    names.iter().any(|name| word == name.as_bytes() || word == &name.as_bytes()[..3]).then_some(end)
}
