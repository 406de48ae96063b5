//! Masks the variable parts of a text.

use super::codes;
use super::forms::{self, Found};
use super::text::{CUT, DURATION, EMAIL, ID, NUMBER, PLACEHOLDERS, QUERY, QUOTED, Text, is_word, one_line};

const QUOTES: [u8; 3] = *b"\"'`";
/// Maximum number of backslashes before a quote that quotes text.
const MAX_BACKSLASHES: usize = 7;

/// Returns the text on one line, cut to `max` bytes, with a placeholder for each part that varies between failures.
///
/// Takes linear time. Masking the result again changes nothing: the digits that are left are of codes, and a placeholder is treated as
/// the word that stood there.
pub(super) fn mask(text: &str, max: usize) -> String {
    let line = one_line(text);
    let mut mask = Mask::new(Text::new(&line));
    let mut fits = 0;
    while mask.at < line.len() && mask.masked.len() <= max {
        if mask.masked.len() + CUT.len() <= max {
            fits = mask.masked.len();
        }
        mask.step();
    }
    let mut masked = mask.masked;
    // A cut within a placeholder would leave something that is no longer a word.
    if masked.len() > max {
        masked.truncate(fits);
        masked.push_str(CUT);
    }
    masked
}

/// A text that is masked up to a position.
struct Mask<'a> {
    text: Text<'a>,
    at: usize,
    masked: String,
    /// True between the `://` of a URL and its end.
    in_url: bool,
    /// End of the last run of characters of a local part: each run is searched once.
    local_part_end: usize,
    /// True if no quote of this kind, with this many backslashes before it, closes anything after `at`.
    no_closing: [[bool; MAX_BACKSLASHES + 1]; QUOTES.len()],
}

impl<'a> Mask<'a> {
    fn new(text: Text<'a>) -> Self {
        let no_closing = [[false; MAX_BACKSLASHES + 1]; QUOTES.len()];
        Self { text, at: 0, masked: String::new(), in_url: false, local_part_end: 0, no_closing }
    }

    /// Masks or copies the part that begins here: at least one character.
    fn step(&mut self) {
        let (at, byte) = (self.at, self.text.byte(self.at));
        self.in_url &= !ends_url(byte);
        if let Some(kind) = QUOTES.iter().position(|&quote| quote == byte)
            && self.quoted(kind)
        {
            return;
        }
        match byte {
            b':' if self.text.follows(at, "://") => {
                self.in_url = true;
                self.copy_to(at + 3);
            }
            b'/' if self.in_url => self.path_segment(),
            b'?' if self.in_url
                && self.text.byte(at + 1).is_ascii_graphic()
                && !ends_url(self.text.byte(at + 1)) =>
            {
                self.masked.push('?');
                self.replace((self.text.run(at, |byte| !ends_url(byte)), QUERY));
            }
            b'+' | b'-' => match self.signed() {
                Some(found) => self.replace(found),
                None => self.copy_to(at + 1),
            },
            b'<' => match PLACEHOLDERS.iter().find(|it| self.text.follows(at, it)) {
                Some(placeholder) => self.copy_to(at + placeholder.len()),
                None => self.copy_character(),
            },
            _ if is_word(byte) && !self.text.word_before(at) => {
                if let Some(end) = codes::code(&self.text, at) {
                    return self.copy_to(end);
                }
                match self.email().or_else(|| forms::form(&self.text, at)) {
                    Some(found) => self.replace(found),
                    None => self.copy_character(),
                }
            }
            // Inside a word.
            b'0'..=b'9' => match forms::number(&self.text, at) {
                Some(end) => self.replace((end, NUMBER)),
                None => self.copy_character(),
            },
            _ => self.copy_character(),
        }
    }

    fn replace(&mut self, (end, placeholder): Found) {
        self.masked.push_str(placeholder);
        self.at = end;
        self.text.replaced_to = end;
    }

    fn copy_to(&mut self, end: usize) {
        self.masked.push_str(&self.text.text[self.at..end]);
        self.at = end;
    }

    fn copy_character(&mut self) {
        let length = self.text.text[self.at..].chars().next().map_or(1, char::len_utf8);
        self.copy_to(self.at + length);
    }

    /// Masks the quoted text that begins here, and all that follow it in a list. Returns false if this quote opens nothing.
    fn quoted(&mut self, kind: usize) -> bool {
        let quote = QUOTES[kind];
        let backslashes = (1..=self.at.min(MAX_BACKSLASHES + 1))
            .take_while(|back| self.text.byte(self.at - back) == b'\\')
            .count();
        let is_apostrophe = quote == b'\'' && self.text.word_before(self.at);
        if backslashes > MAX_BACKSLASHES || is_apostrophe {
            return false;
        }
        let Some(mut close) = self.closing(kind, backslashes, self.at + 1) else { return false };
        if backslashes == 0 && codes::is_name(&self.text, self.at, close) {
            self.copy_to(close + 1);
            return true;
        }
        while let Some(next) = self.next_in_list(close, quote, backslashes)
            && let Some(next_close) = self.closing(kind, backslashes, next + 1)
        {
            close = next_close;
        }
        self.masked.push(char::from(quote));
        self.replace((close - backslashes, QUOTED));
        self.copy_to(close + 1);
        true
    }

    /// Returns the quote that closes the one opened before `from`: of the same kind, with the same number of backslashes. An apostrophe
    /// within a word closes nothing.
    fn closing(&mut self, kind: usize, backslashes: usize, from: usize) -> Option<usize> {
        if self.no_closing[kind][backslashes] {
            return None;
        }
        let (quote, mut escapes) = (QUOTES[kind], 0);
        for at in from..self.text.bytes.len() {
            let byte = self.text.byte(at);
            let closes = byte == quote && escapes == backslashes;
            if closes && !(quote == b'\'' && self.text.word_after(at + 1)) {
                return Some(at);
            }
            escapes = if byte == b'\\' { escapes + 1 } else { 0 };
        }
        self.no_closing[kind][backslashes] = true;
        None
    }

    /// Returns the quote that opens the next text of a list, after the closing quote of the last.
    fn next_in_list(&self, close: usize, quote: u8, backslashes: usize) -> Option<usize> {
        let after_comma = (self.text.byte(close + 1) == b',').then_some(close + 2)?;
        let at = after_comma + usize::from(self.text.byte(after_comma) == b' ');
        let open = at + backslashes;
        let is_escaped = (at..open).all(|at| self.text.byte(at) == b'\\');
        (is_escaped && self.text.byte(open) == quote).then_some(open)
    }

    /// Masks a segment of a path that contains a digit, which is an id; except `v2` and the like.
    fn path_segment(&mut self) {
        let start = self.at + 1;
        let end = self.text.run(start, |byte| !ends_url(byte) && !matches!(byte, b'/' | b'?' | b'#'));
        let segment = &self.text.bytes[start..end];
        let is_version = segment.first() == Some(&b'v') && segment[1..].iter().all(u8::is_ascii_digit);
        self.copy_to(start);
        if !is_version && segment.iter().any(u8::is_ascii_digit) {
            self.replace((end, ID));
        }
    }

    /// Matches the number with its sign that begins here.
    fn signed(&self) -> Option<Found> {
        let (text, at) = (&self.text, self.at);
        let may_be_sign = at == 0 || b" (=[{,:".contains(&text.byte(at - 1));
        let found = (may_be_sign && text.byte(at + 1).is_ascii_digit())
            .then(|| forms::form(text, at + 1))
            .flatten()?;
        matches!(found.1, NUMBER | DURATION).then_some(found)
    }

    /// Matches `name@host` if its name begins here.
    fn email(&mut self) -> Option<Found> {
        let is_local = |byte| is_word(byte) || b"._%+-".contains(&byte);
        if self.local_part_end <= self.at {
            self.local_part_end = self.text.run(self.at, is_local);
        }
        let host = (self.text.byte(self.local_part_end) == b'@').then_some(self.local_part_end + 1)?;
        if !self.text.byte(host).is_ascii_alphanumeric() {
            return None;
        }
        let end = self.text.run(host, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'));
        let trailing =
            self.text.bytes[host..end].iter().rev().take_while(|byte| matches!(byte, b'.' | b'-')).count();
        Some((end - trailing, EMAIL))
    }
}

fn ends_url(byte: u8) -> bool {
    matches!(byte, 0 | b' ' | b'<' | b'>' | b')' | b'\\') || QUOTES.contains(&byte)
}
