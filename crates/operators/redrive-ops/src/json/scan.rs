//! Reads a text of JSON value by value, without a copy.

use std::borrow::Cow;

/// Maximum depth that is read: a program reads what is inside of a value by calling itself.
pub(crate) const DEEPEST: usize = 128;

/// A value lies deeper than [`DEEPEST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooDeep;

/// A position in a text that [is JSON](super::is_json).
#[derive(Clone, Copy)]
pub(crate) struct Scan<'a> {
    text: &'a str,
    at: usize,
}

/// What stands at a position.
#[derive(Clone, Copy)]
pub(crate) enum Found<'a> {
    /// An object. The next thing is a key or its end.
    Object,
    /// An array. The next thing is an element or its end.
    Array,
    /// A text, with its quotes and escapes.
    Text(&'a str),
    /// A number, as it is written.
    Number(&'a str),
    /// `true`, `false` or `null`.
    Word(&'a str),
}

impl<'a> Scan<'a> {
    /// Begins at the only value of a text that is JSON.
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Takes the value here: all of a simple one, the bracket of another.
    pub(crate) fn value(&mut self) -> Found<'a> {
        match self.peek() {
            b'{' => {
                self.at += 1;
                Found::Object
            }
            b'[' => {
                self.at += 1;
                Found::Array
            }
            b'"' => Found::Text(self.quoted()),
            b'-' | b'0'..=b'9' => Found::Number(self.run()),
            _ => Found::Word(self.run()),
        }
    }

    /// Takes the next key of an object, and its colon; `None`: the object ends here.
    pub(crate) fn key(&mut self) -> Option<&'a str> {
        if self.ends(b'}') {
            return None;
        }
        self.peek();
        let key = self.quoted();
        self.peek();
        self.at += 1;
        Some(key)
    }

    /// Returns true before the next element of an array; false: the array ends here.
    pub(crate) fn element(&mut self) -> bool {
        !self.ends(b']')
    }

    /// Passes over a whole value, however deep it is. Returns how deep.
    pub(crate) fn skip(&mut self) -> usize {
        let (mut depth, mut deepest) = (0_usize, 0);
        loop {
            match self.peek() {
                b'{' | b'[' => {
                    depth += 1;
                    deepest = deepest.max(depth);
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                    self.at += 1;
                }
                b'"' => {
                    self.quoted();
                }
                b',' | b':' => self.at += 1,
                0 => return deepest,
                _ => {
                    self.run();
                }
            }
            if depth == 0 {
                return deepest;
            }
        }
    }

    /// Takes a comma or the end of an object or an array: true for the end.
    fn ends(&mut self, end: u8) -> bool {
        match self.peek() {
            b',' => {
                self.at += 1;
                false
            }
            0 => true,
            byte if byte == end => {
                self.at += 1;
                true
            }
            _ => false,
        }
    }

    /// Returns the next byte that is no white space; 0 at the end.
    fn peek(&mut self) -> u8 {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        bytes.get(self.at).copied().unwrap_or(0)
    }

    /// Takes a text with its quotes.
    fn quoted(&mut self) -> &'a str {
        let bytes = self.text.as_bytes();
        let start = self.at;
        self.at += 1;
        while let Some(byte) = bytes.get(self.at) {
            self.at += if *byte == b'\\' { 2 } else { 1 };
            if *byte == b'"' {
                break;
            }
        }
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// Takes a number or a word.
    fn run(&mut self) -> &'a str {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        while bytes.get(self.at).is_some_and(is_part) {
            self.at += 1;
        }
        if self.at == start {
            // No JSON: go on, so that every loop ends.
            self.at = self.text.len();
        }
        self.text.get(start..self.at).unwrap_or_default()
    }
}

/// Returns what a quoted text says. `None`: an escape in it is no character.
pub(crate) fn unquoted(quoted: &str) -> Option<Cow<'_, str>> {
    let inside = quoted.strip_prefix('"')?.strip_suffix('"')?;
    if !inside.contains('\\') {
        return Some(Cow::Borrowed(inside));
    }
    serde_json::from_str(quoted).ok().map(Cow::Owned)
}
