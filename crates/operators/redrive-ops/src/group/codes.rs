//! Recognizes what says the cause of a failure, and is no variable part of its text: statuses, error codes, and names of fields.

use super::text::{CUT, DURATION, NUMBER, Text, is_word};

/// Words before any status or code of at most [`MOST_DIGITS`] digits: `status: 503`, `os error 111`.
const BEFORE_CODE: [&str; 16] = [
    "status",
    "statuscode",
    "status_code",
    "http",
    "http_status",
    "errno",
    "errcode",
    "errorcode",
    "error_code",
    "err_code",
    "error",
    "exitcode",
    "exit_code",
    "sqlstate",
    "sqlcode",
    "reply-code",
];
/// Words before `code` that make it one of an error: `exit code 3`, but not `postal code 12345`.
const BEFORE_WORD_CODE: [&str; 12] = [
    "error", "status", "exit", "return", "result", "response", "reply", "reason", "http", "vendor", "sql",
    "failure",
];
/// Words before a status of HTTP: `the bank answered 402`.
const BEFORE_STATUS: [&str; 11] = [
    "answered",
    "answers",
    "returned",
    "returns",
    "responded",
    "responds",
    "replied",
    "got",
    "received",
    "response",
    "with",
];
/// Words that may follow a status, where a thing that is counted would make it a count: `got 402 from the bank`, but not `got 402 rows`.
const AFTER_STATUS: [&str; 13] =
    ["for", "from", "on", "after", "at", "to", "when", "while", "with", "and", "in", "by", "instead"];
/// What the codes of well-known programs begin with.
const PREFIXES: [&str; 7] = ["ORA", "TNS", "PLS", "SQL", "SQLSTATE", "AADSTS", "HTTP"];
const MOST_DIGITS: usize = 5;

/// Words before a quoted name that is a part of the program, not of the message.
const BEFORE_NAME: [&str; 29] = [
    "field",
    "fields",
    "column",
    "columns",
    "table",
    "relation",
    "constraint",
    "index",
    "property",
    "properties",
    "key",
    "keys",
    "attribute",
    "parameter",
    "argument",
    "variable",
    "variant",
    "type",
    "function",
    "method",
    "header",
    "queue",
    "exchange",
    "topic",
    "element",
    "tag",
    "member",
    "schema",
    "database",
];
const LONGEST_NAME: usize = 64;

/// Returns the end of the status or code that begins at `at`, the start of a word.
pub(super) fn code(text: &Text<'_>, at: usize) -> Option<usize> {
    with_prefix(text, at).or_else(|| version(text, at)).or_else(|| {
        let (word, before) = words_before(text, at)?;
        let is_code = BEFORE_CODE.contains(&&*word)
            || (word == "code" && before.is_none_or(|before| BEFORE_WORD_CODE.contains(&&*before)))
            || follows_version(text, at);
        if word == "sqlstate" {
            return text
                .run(at, |byte| byte.is_ascii_alphanumeric())
                .checked_sub(at)
                .filter(|n| *n == 5)
                .map(|n| at + n);
        }
        let end = number(text, at)?;
        let is_status = || end == at + 3 && matches!(text.byte(at), b'1'..=b'5') && ends_clause(text, end);
        (is_code || (BEFORE_STATUS.contains(&&*word) && is_status())).then_some(end)
    })
}

/// Returns true for a quoted name that stays: of a field, a column and the like. `open` and `close` are the places of its quotes.
pub(super) fn is_name(text: &Text<'_>, open: usize, close: usize) -> bool {
    let name = &text.bytes[open + 1..close];
    let is_part = |byte: &u8| byte.is_ascii_alphabetic() || b"_.-:$".contains(byte);
    let is_identifier = (1..=LONGEST_NAME).contains(&name.len())
        && name[0].is_ascii_alphabetic() | (name[0] == b'_')
        && name.iter().all(is_part);
    let is_named = || words_before(text, open).is_some_and(|(word, _)| BEFORE_NAME.contains(&&*word));
    let is_required = || text.follows(close + 1, " is required") || text.follows(close + 1, " is a required");
    is_identifier && (text.byte(open) == b'`' || is_named() || is_required())
}

/// Matches `ORA-00942`, `AADSTS50076`, and the code of MongoDB that everybody meets: a letter alone may begin an id.
fn with_prefix(text: &Text<'_>, at: usize) -> Option<usize> {
    if text.follows(at, "E11000") && ends(text, at + 6) {
        return Some(at + 6);
    }
    let prefix = text.run(at, |byte| byte.is_ascii_uppercase());
    let word = text.text.get(at..prefix)?;
    PREFIXES.contains(&word).then_some(())?;
    let digits = if text.byte(prefix) == b'-' { prefix + 1 } else { prefix };
    let end = text.run(digits, |byte| byte.is_ascii_digit());
    ((3..=MOST_DIGITS).contains(&(end - digits)) && ends(text, end)).then_some(end)
}

/// Matches the version in `HTTP/1.1 503`.
fn version(text: &Text<'_>, at: usize) -> Option<usize> {
    let start =
        at.checked_sub(5).filter(|start| text.follows(*start, "HTTP/") && !text.word_before(*start))?;
    (start > text.replaced_to || start == 0).then_some(())?;
    let end = text.run(at, |byte| byte.is_ascii_digit() || byte == b'.');
    let is_last = text.byte(end) == b' ' || &text.text[end..] == CUT;
    (end > at && end <= at + 3 && is_last && start < at).then_some(end)
}

fn follows_version(text: &Text<'_>, at: usize) -> bool {
    (1..=3).any(|length| at.checked_sub(length + 1).is_some_and(|begin| version(text, begin) == Some(at - 1)))
}

/// Returns the end of a whole number of at most [`MOST_DIGITS`] digits.
fn number(text: &Text<'_>, at: usize) -> Option<usize> {
    let end = text.digits(at, 1..=MOST_DIGITS)?;
    ends(text, end).then_some(end)
}

/// Returns true if a number, or a code, is whole at `end`: nothing that makes it a larger number, a time or a list follows.
fn ends(text: &Text<'_>, end: usize) -> bool {
    if &text.text[end..] == CUT {
        return true;
    }
    let is_digit = |at: usize| text.byte(at).is_ascii_digit();
    let is_signed = |at: usize| matches!(text.byte(at), b'+' | b'-') && is_digit(at + 1);
    // What begins otherwise is never masked as one of these.
    let was_masked = |at: usize| [NUMBER, DURATION].iter().any(|it| text.follows(at, it));
    let goes_on = |at: usize| is_digit(at) || is_signed(at) || was_masked(at);
    let is_joined = matches!(text.byte(end), b'.' | b',' | b':' | b'-' | b'/' | b'+')
        && (goes_on(end + 1) || (text.byte(end + 1) == b' ' && text.byte(end) == b',' && goes_on(end + 2)));
    !text.word_after(end) && !is_joined
}

/// Returns true if what follows a status is nothing that it could count.
fn ends_clause(text: &Text<'_>, end: usize) -> bool {
    let rest = &text.text[end..];
    let Some(rest) = rest.strip_prefix(' ') else {
        return rest.is_empty() || rest == CUT || rest.starts_with(|c: char| ",;:.)]}\"'`!?".contains(c));
    };
    let word = rest.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    rest.starts_with(|c: char| c.is_ascii_uppercase() || "<([\"'`-–—".contains(c))
        || AFTER_STATUS.contains(&word)
}

/// Returns the word before `at`, in lower case, and the one before that. Only signs that join a name and its value may be in between.
fn words_before(text: &Text<'_>, at: usize) -> Option<(String, Option<String>)> {
    let start = |from: usize, is_part: &dyn Fn(u8) -> bool, most: usize| {
        let part = text.bytes[text.replaced_to.min(from)..from]
            .iter()
            .rev()
            .take(most)
            .take_while(|byte| is_part(**byte));
        from - part.count()
    };
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_./-".contains(&byte);
    let end = start(at, &|byte| b" :=([#".contains(&byte), 4);
    (end < at).then_some(())?;
    let word = start(end, &is_part, 16);
    let lower = |from: usize, to: usize| text.text.get(from..to).map(str::to_ascii_lowercase);
    let first = lower(word, end).filter(|word| !word.is_empty())?;
    let before_end = start(word, &|byte| byte == b' ', 1);
    let before = (before_end < word).then(|| lower(start(before_end, &is_part, 16), before_end)).flatten();
    Some((first, before.filter(|word| !word.is_empty() && word.bytes().all(is_word))))
}
