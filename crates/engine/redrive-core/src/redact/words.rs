//! Reads words in bytes. Every character searched for is ASCII, so every position is a character boundary.

/// Returns the end of the run of `wanted` bytes from `start`.
pub(super) fn run(bytes: &[u8], start: usize, wanted: impl Fn(u8) -> bool) -> usize {
    bytes[start..].iter().position(|&byte| !wanted(byte)).map_or(bytes.len(), |length| start + length)
}

/// Returns the start of the run of `wanted` bytes up to `end`, at most `max` bytes before it.
pub(super) fn run_back(bytes: &[u8], end: usize, max: usize, wanted: impl Fn(u8) -> bool) -> usize {
    let from = end.saturating_sub(max);
    bytes[from..end].iter().rposition(|&byte| !wanted(byte)).map_or(from, |last| from + last + 1)
}

/// Returns true for a character of names like `x-api-key`, `DB_PASSWORD`, `spring.datasource.password`.
pub(super) fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Returns true for Base64, in both alphabets.
pub(super) fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+' | b'/')
}

pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

pub(super) fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'' | b'`')
}

/// Returns true if the text from `start` begins with `word`, ignoring case.
pub(super) fn starts_with(bytes: &[u8], start: usize, word: &str) -> bool {
    bytes.get(start..start + word.len()).is_some_and(|there| there.eq_ignore_ascii_case(word.as_bytes()))
}

/// Returns true for words that follow a name or a scheme in ordinary sentences: `password: must not be empty`, `Bearer token`.
pub(super) fn is_prose(word: &[u8]) -> bool {
    const PROSE: [&str; 64] = [
        "a",
        "an",
        "and",
        "are",
        "auth",
        "authentication",
        "authorization",
        "cannot",
        "can",
        "challenge",
        "could",
        "credentials",
        "denied",
        "did",
        "does",
        "empty",
        "error",
        "expected",
        "expired",
        "failed",
        "failure",
        "false",
        "for",
        "from",
        "has",
        "header",
        "in",
        "incorrect",
        "invalid",
        "is",
        "it",
        "malformed",
        "mismatch",
        "missing",
        "must",
        "nil",
        "no",
        "none",
        "not",
        "null",
        "of",
        "or",
        "refused",
        "rejected",
        "required",
        "revoked",
        "scheme",
        "should",
        "the",
        "this",
        "to",
        "token",
        "tokens",
        "too",
        "true",
        "undefined",
        "unauthorized",
        "unexpected",
        "unknown",
        "unsupported",
        "was",
        "with",
        "wrong",
        "you",
    ];
    PROSE.iter().any(|prose| prose.as_bytes().eq_ignore_ascii_case(word))
}

/// Returns true for values that hide nothing.
pub(super) fn is_nothing(word: &[u8]) -> bool {
    ["null", "none", "nil", "undefined", "true", "false"]
        .iter()
        .any(|nothing| nothing.as_bytes().eq_ignore_ascii_case(word))
}
