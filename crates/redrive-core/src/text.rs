//! Small pure helpers on text.

use std::borrow::Cow;
use std::error::Error;

/// Cuts the text to at most `max` bytes, on a character boundary; `…` marks the cut.
pub(crate) fn cut(text: &str, max: usize) -> Cow<'_, str> {
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
pub(crate) fn with_causes(error: &(dyn Error + 'static)) -> String {
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

/// Hashes with FNV-1a, 64 bits: the result is the same on every machine and in every version, which the standard library does not
/// promise. Not for hostile input where collisions matter.
pub(crate) fn fnv1a(bytes: impl Iterator<Item = u8>) -> u64 {
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
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv1a("".bytes()), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a("foobar".bytes()), 0x8594_4171_f739_67e8);
    }
}
