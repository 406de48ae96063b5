//! Secrets recognized by their own form.

use std::ops::Range;

use super::words::{is_base64, is_blank, is_prose, run, run_back, starts_with};

/// Finds the next PEM private key with its delimiter lines; up to the end of the text if the closing line is missing.
pub(super) fn private_key(text: &str, from: usize) -> Option<Range<usize>> {
    const BEGIN: &str = "-----BEGIN ";
    const END: &str = "-----END ";
    const DASHES: &str = "-----";
    let mut at = from;
    while let Some(found) = text[at..].find(BEGIN) {
        let begin = at + found;
        let label = begin + BEGIN.len();
        let label_end = run(text.as_bytes(), label, |byte| byte.is_ascii_alphanumeric() || byte == b' ');
        if text[label..label_end].contains("PRIVATE KEY") {
            let closing = text[label_end..].find(END).map(|found| label_end + found + END.len());
            let end = closing
                .and_then(|start| text[start..].find(DASHES).map(|found| start + found + DASHES.len()));
            return Some(begin..end.unwrap_or(text.len()));
        }
        at = label_end;
    }
    None
}

/// Finds the next token after the word `Bearer`.
pub(super) fn bearer(text: &str, from: usize) -> Option<Range<usize>> {
    const BEARER: &str = "bearer";
    let bytes = text.as_bytes();
    let mut at = from;
    while let Some(start) = word_start(bytes, at, |byte| byte.eq_ignore_ascii_case(&b'b')) {
        at = start + 1;
        if !starts_with(bytes, start, BEARER) {
            continue;
        }
        let blank = start + BEARER.len();
        let token = run(bytes, blank, is_blank);
        if token == blank {
            continue;
        }
        let end = run(bytes, token, |byte| is_base64(byte) || matches!(byte, b'.' | b'~' | b'=' | b':'));
        // A dot or colon at the end belongs to the sentence; `realm="…"` is a server's challenge.
        let end = run_back(bytes, end, end - token, |byte| matches!(byte, b'.' | b':'));
        let word = &bytes[token..end];
        let asks = word.ends_with(b"=") && bytes.get(end) == Some(&b'"');
        if !word.is_empty() && !asks && !is_prose(word) {
            return Some(token..end);
        }
    }
    None
}

/// Finds the next JSON Web Token: three parts in base64; the first part begins like every JSON object.
pub(super) fn json_web_token(text: &str, from: usize) -> Option<Range<usize>> {
    const JSON: &str = "eyJ";
    let bytes = text.as_bytes();
    let mut at = from;
    while let Some(found) = text[at..].find(JSON) {
        let start = at + found;
        let header = run(bytes, start, is_base64);
        at = header;
        if bytes.get(header) != Some(&b'.')
            || run_back(bytes, start, 1, |byte| byte.is_ascii_alphanumeric()) < start
        {
            continue;
        }
        let payload = run(bytes, header + 1, is_base64);
        at = payload;
        if payload > header + 1 && bytes.get(payload) == Some(&b'.') {
            return Some(start..run(bytes, payload + 1, is_base64));
        }
    }
    None
}

/// Finds the next AWS access key id: `AKIA` (or `ASIA`, for a session) and 16 more characters.
pub(super) fn aws_key_id(text: &str, from: usize) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let mut at = from;
    while let Some(start) = word_start(bytes, at, |byte| byte == b'A') {
        let end = run(bytes, start, |byte| byte.is_ascii_alphanumeric());
        let word = &text[start..end];
        let known = word.starts_with("AKIA") || word.starts_with("ASIA");
        if known
            && word.len() == 20
            && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
        {
            return Some(start..end);
        }
        at = end;
    }
    None
}

/// Finds the next word of letters and digits whose first letter is `first`.
fn word_start(bytes: &[u8], from: usize, first: impl Fn(u8) -> bool) -> Option<usize> {
    let begins = |at: usize| at == 0 || !bytes[at - 1].is_ascii_alphanumeric();
    (from..bytes.len()).find(|&at| first(bytes[at]) && begins(at))
}

#[cfg(test)]
mod tests {
    use crate::redact;

    #[test]
    fn tokens_go_by_their_form() {
        for (text, redacted) in [
            ("got 401 with Bearer xyz.", "got 401 with Bearer ***."),
            ("BEARER   a-b_c~d+e/f==, retry", "BEARER   ***, retry"),
            ("(eyJhbGciOi.eyJzdWIi.sig-na_ture)", "(***)"),
            ("unsecured eyJhbGciOi.eyJzdWIi.", "unsecured ***"),
            ("user AKIAIOSFODNN7EXAMPLE is not allowed", "user *** is not allowed"),
            (
                "key -----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- is bad",
                "key *** is bad",
            ),
            ("cut -----BEGIN PRIVATE KEY-----\nMIIE", "cut ***"),
        ] {
            assert_eq!(redact(text), redacted, "{text}");
        }
    }

    #[test]
    fn what_only_resembles_a_token_stays() {
        for text in [
            "Bearer token is missing",
            "WWW-Authenticate: Bearer realm=\"shop\"",
            "the forbearer x",
            "unsupported scheme: Bearer",
            "eyJustAWord and eyJ.x",
            "AKIASHORT",
            "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        ] {
            assert_eq!(redact(text), text);
        }
    }
}
