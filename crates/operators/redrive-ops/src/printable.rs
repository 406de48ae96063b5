//! Text that may be printed: no control character of a message reaches a terminal.

use std::borrow::Cow;

/// Returns true for characters that steer a terminal, and for those that change the direction of text so that it reads as another.
pub(crate) fn steers_a_terminal(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes control characters, and those that change the direction of text, in a JSON text: before it is printed on a terminal. The
/// JSON means the same.
#[must_use]
pub fn printable_json(json: String) -> String {
    if !json.chars().any(steers_a_terminal) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match c {
            '\n' => escaped.push(c),
            _ if steers_a_terminal(c) => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => escaped.push(c),
        }
    }
    escaped
}

/// Writes control characters, and those that change the direction of text, as `\u{…}`, except line feeds and tabs: before a text of a
/// message is printed on a terminal.
///
/// ```
/// assert_eq!(redrive_ops::printable("\u{1b}[31mred"), "\\u{1b}[31mred");
/// ```
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| steers_a_terminal(c) && c != '\n' && c != '\t';
    if !text.chars().any(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_escaped(c) {
            true => escaped.extend(c.escape_unicode()),
            false => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_mean_the_same_to_a_reader_of_json() {
        let text = "a\u{1b}[31m\u{9b}b\u{7f}\u{202e}c\u{2028}d\u{7}ä\n";
        let json = printable_json(serde_json::to_string(text).unwrap());
        assert!(!json.chars().any(steers_a_terminal), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }

    #[test]
    fn a_text_keeps_its_lines_and_nothing_that_steers() {
        assert_eq!(printable("a\u{1b}[2J\r\n\tb"), "a\\u{1b}[2J\\u{d}\n\tb");
        assert!(matches!(printable("a\n\tb"), Cow::Borrowed(_)));
    }
}
