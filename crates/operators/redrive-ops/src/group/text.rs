//! A text that is read by position, and the placeholders in it. All forms are ASCII, so they begin and end on character boundaries.

// Placeholders contain no digits, and no form begins or ends within them.
pub(super) const NUMBER: &str = "<number>";
pub(super) const DURATION: &str = "<duration>";
pub(super) const TIME: &str = "<time>";
pub(super) const UUID: &str = "<uuid>";
pub(super) const HEX: &str = "<hex>";
pub(super) const ID: &str = "<id>";
pub(super) const IP: &str = "<ip>";
pub(super) const EMAIL: &str = "<email>";
pub(super) const QUERY: &str = "<query>";
pub(super) const QUOTED: &str = "<text>";
pub(super) const PLACEHOLDERS: [&str; 10] = [NUMBER, DURATION, TIME, UUID, HEX, ID, IP, EMAIL, QUERY, QUOTED];

/// A text without control characters, whose words are separated by single spaces.
pub(super) struct Text<'a> {
    pub(super) text: &'a str,
    pub(super) bytes: &'a [u8],
    /// Whatever is before this was replaced: what a form follows is looked for behind it, as it would be in the masked text.
    pub(super) replaced_to: usize,
}

impl<'a> Text<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, bytes: text.as_bytes(), replaced_to: 0 }
    }

    /// Returns the byte at a position; 0 after the end, because the text contains no control character.
    pub(super) fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    pub(super) fn follows(&self, at: usize, word: &str) -> bool {
        self.bytes.get(at..).is_some_and(|rest| rest.starts_with(word.as_bytes()))
    }

    /// Returns the end of the run of `wanted` bytes from `at`.
    pub(super) fn run(&self, at: usize, wanted: impl Fn(u8) -> bool) -> usize {
        let rest = self.bytes.get(at..).unwrap_or_default();
        rest.iter().position(|&byte| !wanted(byte)).map_or(self.bytes.len(), |length| at + length)
    }

    /// Returns the end of the run of digits from `at`, if it has an allowed number of digits.
    pub(super) fn digits(&self, at: usize, count: std::ops::RangeInclusive<usize>) -> Option<usize> {
        let end = at + (0..=*count.end()).take_while(|index| self.byte(at + index).is_ascii_digit()).count();
        count.contains(&(end - at)).then_some(end)
    }

    /// Returns true if a word ends at `at`. A placeholder is a word: masked text must be read as before.
    pub(super) fn word_before(&self, at: usize) -> bool {
        at > 0
            && match self.bytes[at - 1] {
                b'>' => PLACEHOLDERS.iter().any(|it| self.bytes[..at].ends_with(it.as_bytes())),
                byte => is_word(byte),
            }
    }

    /// Returns true if a word begins at `at`.
    pub(super) fn word_after(&self, at: usize) -> bool {
        match self.byte(at) {
            b'<' => PLACEHOLDERS.iter().any(|it| self.follows(at, it)),
            byte => is_word(byte),
        }
    }
}

/// Returns true for letters and digits; every character beyond ASCII counts as a letter.
pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || !byte.is_ascii()
}

/// Replaces each run of white space and control characters by one space. A number that is padded to a width must not change the
/// template, and a template must not control a terminal.
pub(super) fn one_line(text: &str) -> String {
    let is_space = |c: char| c.is_whitespace() || c.is_control();
    let mut line = String::with_capacity(text.len());
    for word in text.split(is_space).filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    line
}

/// Marks the end of a text that was cut.
pub(super) const CUT: &str = "…";

/// Cuts the text to at most `max` bytes on a character boundary.
pub(crate) fn cut(mut text: String, max: usize) -> String {
    if text.len() > max {
        let mut end = max.saturating_sub(CUT.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(CUT);
    }
    text
}
