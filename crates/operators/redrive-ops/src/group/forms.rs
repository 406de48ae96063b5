//! Recognizes variable parts of a text by their form. Only the shape counts, never the value of a digit, so that texts that differ in
//! digits are masked in the same way.

use super::text::{DURATION, HEX, ID, IP, NUMBER, TIME, Text, UUID, is_word};
use super::times;

/// End and placeholder of a match.
pub(super) type Found = (usize, &'static str);

/// Minimum length of a hexadecimal word: shorter ones are more likely words with a number.
const MIN_HEX: usize = 8;
/// Minimum length of an id of letters and digits, for the same reason.
const MIN_ID: usize = 16;
/// Minimum number of changes between letters and digits in such an id.
const MIN_CHANGES: usize = 4;

/// Finds the form that begins at `at`, the start of a word.
pub(super) fn form(text: &Text<'_>, at: usize) -> Option<Found> {
    let found = |end: Option<usize>, placeholder| end.map(|end| (end, placeholder));
    found(uuid(text, at), UUID)
        .or_else(|| found(times::time(text, at), TIME))
        .or_else(|| found(ip_v4(text, at).or_else(|| ip_v6(text, at)), IP))
        .or_else(|| word(text, at))
        .or_else(|| number_or_duration(text, at))
}

fn uuid(text: &Text<'_>, at: usize) -> Option<usize> {
    let mut end = at;
    for (index, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            end = (text.byte(end) == b'-').then_some(end + 1)?;
        }
        let is_hex = (end..end + length).all(|at| text.byte(at).is_ascii_hexdigit());
        end = is_hex.then_some(end + length)?;
    }
    (!text.word_after(end)).then_some(end)
}

fn ip_v4(text: &Text<'_>, at: usize) -> Option<usize> {
    let mut end = text.digits(at, 1..=3)?;
    for _ in 0..3 {
        end = text.digits((text.byte(end) == b'.').then_some(end + 1)?, 1..=3)?;
    }
    let goes_on = text.word_after(end) || (text.byte(end) == b'.' && text.byte(end + 1).is_ascii_digit());
    (!goes_on).then_some(end)
}

/// Matches eight groups, or fewer with one `::` between them and a digit in them. Must begin and end with a group: `::1` is a number.
fn ip_v6(text: &Text<'_>, at: usize) -> Option<usize> {
    let (mut end, mut groups, mut gaps) = (at, 0, 0);
    loop {
        let group = (end..).take(4).take_while(|&at| text.byte(at).is_ascii_hexdigit()).count();
        if group == 0 {
            return None;
        }
        (end, groups) = (end + group, groups + 1);
        if text.byte(end) != b':' {
            break;
        }
        let gap = usize::from(text.byte(end + 1) == b':');
        (end, gaps) = (end + 1 + gap, gaps + gap);
        if groups == 8 {
            return None;
        }
    }
    let has_digit = text.bytes[at..end].iter().any(u8::is_ascii_digit);
    let is_address = match gaps {
        0 => groups == 8,
        1 => has_digit,
        _ => false,
    };
    (is_address && !text.word_after(end)).then_some(end)
}

/// Matches a whole word of letters and digits that is no number.
fn word(text: &Text<'_>, at: usize) -> Option<Found> {
    let end = text.run(at, is_word);
    let word = &text.bytes[at..end];
    let digits = word.iter().filter(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || digits == word.len() || text.word_after(end) {
        return None;
    }
    let hex = |word: &[u8]| word.iter().all(u8::is_ascii_hexdigit);
    let is_prefixed =
        word.len() > 2 && (word.starts_with(b"0x") || word.starts_with(b"0X")) && hex(&word[2..]);
    if is_prefixed || (word.len() >= MIN_HEX && hex(word)) {
        return Some((end, HEX));
    }
    let changes = word.windows(2).filter(|two| two[0].is_ascii_digit() != two[1].is_ascii_digit()).count();
    (word.is_ascii() && word.len() >= MIN_ID && changes >= MIN_CHANGES).then_some((end, ID))
}

/// Matches `17`, `1.5`, `1,234.56`, `1.2e-7`, `1, 2, 3`; `250ms`, `1m30s`.
fn number_or_duration(text: &Text<'_>, at: usize) -> Option<Found> {
    let mut end = number(text, at)?;
    if !text.word_after(end) {
        return Some((end, NUMBER));
    }
    while let Some(after_unit) = unit(text, end) {
        match number(text, after_unit) {
            Some(next) => end = next,
            None if text.word_after(after_unit) => break,
            None => return Some((after_unit, DURATION)),
        }
    }
    Some((number(text, at)?, NUMBER))
}

/// Returns the end of the number that begins with the digit at `at`. A list of numbers is one match: its length must not change the
/// template.
pub(super) fn number(text: &Text<'_>, at: usize) -> Option<usize> {
    let digits = |at: usize| Some(text.run(at, |byte| byte.is_ascii_digit())).filter(|&end| end > at);
    let mut end = digits(at)?;
    loop {
        let next = match text.byte(end) {
            b'.' => digits(end + 1),
            // The text after the comma may be another form.
            b',' => digits(end + 1 + usize::from(text.byte(end + 1) == b' '))
                .filter(|&end| !text.word_after(end) && !matches!(text.byte(end), b'-' | b':' | b'/')),
            _ => None,
        };
        match next {
            Some(next) => end = next,
            None => break,
        }
    }
    let exponent = || {
        let at = matches!(text.byte(end), b'e' | b'E').then_some(end + 1)?;
        digits(at + usize::from(matches!(text.byte(at), b'+' | b'-')))
    };
    Some(exponent().filter(|&end| !text.word_after(end)).unwrap_or(end))
}

/// Returns the end of the unit of time at `at`, as `Duration` and `humantime` write it.
fn unit(text: &Text<'_>, at: usize) -> Option<usize> {
    const UNITS: [&str; 12] = ["ns", "us", "µs", "μs", "ms", "min", "sec", "s", "m", "h", "days", "d"];
    UNITS.iter().find(|unit| text.follows(at, unit)).map(|unit| at + unit.len())
}
