//! Small pure helpers on text.

use std::borrow::Cow;
use std::error::Error;
use std::fmt::Display;

/// Cuts the text to at most `max` bytes, on a character boundary; `…` marks the cut.
pub fn cut(text: &str, max: usize) -> Cow<'_, str> {
    const MARK: &str = "…";
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    let mut end = max.saturating_sub(MARK.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    if max < MARK.len() {
        return Cow::Borrowed("");
    }
    Cow::Owned(format!("{}{MARK}", &text[..end]))
}

/// Returns what an error says, and what each of its causes says unless that was said above. It is the `Debug` of errors that end a
/// `main`: a person reads it.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !said.contains(&text) {
            said = format!("{said}\n  caused by: {text}");
        }
        cause = error.source();
    }
    said
}

/// Returns the texts of all items, with the separator between them.
///
/// ```
/// assert_eq!(redrive_core::text::joined(&[1, 2], "; "), "1; 2");
/// ```
pub fn joined(items: &[impl Display], separator: &str) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator)
}

/// Returns a count with its word: `1 message`, `2 messages`, `3 entries`. For texts that people read.
///
/// ```
/// assert_eq!(redrive_core::text::plural(1, "message"), "1 message");
/// assert_eq!(redrive_core::text::plural(3, "entry"), "3 entries");
/// ```
pub fn plural(count: impl Display, word: &str) -> String {
    let count = count.to_string();
    match word.strip_suffix('y') {
        _ if count == "1" => format!("{count} {word}"),
        Some(stem) => format!("{count} {stem}ies"),
        None => format!("{count} {word}s"),
    }
}

/// Hashes with FNV-1a, 64 bits: the result is the same on every machine and in every version, which the standard library does not
/// promise. Not for hostile input where collisions matter.
pub fn fnv1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_never_splits_a_character() {
        let text = "aä€😀".repeat(4);
        for max in 0..text.len() + 2 {
            assert!(cut(&text, max).len() <= max, "{max}");
        }
    }

    #[test]
    fn one_thing_is_not_plural() {
        let counted = [plural(0, "group"), plural(1, "group"), plural(12, "body"), plural(1, "body")];
        assert_eq!(counted, ["0 groups", "1 group", "12 bodies", "1 body"]);
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv1a("".bytes()), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a("foobar".bytes()), 0x8594_4171_f739_67e8);
    }
}
