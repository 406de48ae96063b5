//! Reads words and quoted texts.

use super::error::ParseFilterError;

/// A position in the text of a filter.
pub(super) struct Scanner<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Takes this text if it follows.
    pub(super) fn take(&mut self, expected: &str) -> bool {
        let follows = self.rest().starts_with(expected);
        if follows {
            self.at += expected.len();
        }
        follows
    }

    pub(super) fn skip_spaces(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// Takes the characters up to white space or the first `end`.
    pub(super) fn word(&mut self, end: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.find(|c: char| c.is_whitespace() || end(c)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    /// Takes a quoted text; the next character is its quote.
    pub(super) fn quoted(&mut self) -> Result<String, ParseFilterError> {
        let start = self.at;
        self.at += 1;
        let mut value = String::new();
        loop {
            let Some(c) = self.peek() else {
                return Err(self.error(start, "the quote is not closed: end the text with `\"`"));
            };
            self.at += c.len_utf8();
            match c {
                '"' => return Ok(value),
                '\\' => value.push(self.escaped()?),
                c => value.push(c),
            }
        }
    }

    /// Takes the rest of an escape; its backslash is taken.
    fn escaped(&mut self) -> Result<char, ParseFilterError> {
        let start = self.at - 1;
        let c = self.peek();
        self.at += c.map_or(0, char::len_utf8);
        let escaped = match c {
            Some(c @ ('"' | '\\')) => Some(c),
            Some('n') => Some('\n'),
            Some('r') => Some('\r'),
            Some('t') => Some('\t'),
            Some('u') => self.code_point(),
            _ => None,
        };
        escaped.ok_or_else(|| {
            self.error(
                start,
                r#"unknown escape: write `\"`, `\\`, `\n`, `\r`, `\t`, or a character as `\u{1b}`"#,
            )
        })
    }

    fn code_point(&mut self) -> Option<char> {
        let digits = self.rest().strip_prefix('{')?.split('}').next()?;
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let c = is_hex.then(|| u32::from_str_radix(digits, 16).ok()).flatten().and_then(char::from_u32)?;
        self.at += 1 + digits.len();
        self.take("}").then_some(c)
    }

    /// Returns an error that marks the text from `start` to here.
    pub(super) fn error(&self, start: usize, message: impl AsRef<str>) -> ParseFilterError {
        ParseFilterError::new(self.text, start, self.at.max(start), message.as_ref())
    }
}
