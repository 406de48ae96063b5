//! Secrets recognized by the name before them: `password=…`, `"token": "…"`, `Authorization: Basic …`.

use std::ops::Range;

use super::MASK;
use super::words::{is_blank, is_name, is_nothing, is_prose, is_quote, run, run_back, starts_with};

/// Endings of the names of secrets; in lower case, without `_`, `-` and `.`.
const SECRET_NAMES: [&str; 13] = [
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "secretkey",
    "token",
    "apikey",
    "accesskey",
    "accountkey",
    "privatekey",
    "sharedaccesskey",
    "sharedaccesssignature",
];

/// Maximum length of a name, with the separators within.
const MAX_NAME: usize = 48;
/// Maximum number of blanks around the sign between name and value.
const MAX_BLANKS: usize = 8;

/// Finds the next value with the name of a secret.
pub(super) fn secret(text: &str, from: usize) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let mut at = from;
    loop {
        let sign = at + bytes[at..].iter().position(|byte| matches!(byte, b'=' | b':'))?;
        let after = run(bytes, sign, |byte| matches!(byte, b'=' | b':' | b'>'));
        at = after;
        if let Some(kind) = kind_of_name(bytes, sign, &bytes[sign..after])
            && let Some(value) = value_of(bytes, kind, after, &bytes[sign..after])
        {
            return Some(value);
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Secret,
    Authorization,
}

/// Returns the kind of secret that the name before `sign` stands for, if any.
fn kind_of_name(bytes: &[u8], end: usize, sign: &[u8]) -> Option<Kind> {
    // `auth::token::parse` is a path, not a value.
    if sign.starts_with(b"::") {
        return None;
    }
    let end = run_back(bytes, end, MAX_BLANKS, is_blank);
    let end = run_back(bytes, end, MAX_BLANKS, |byte| is_quote(byte) || matches!(byte, b'\\' | b']'));
    let start = run_back(bytes, end, MAX_NAME, is_name);
    let (mut plain, mut length) = ([0; MAX_NAME], 0);
    for byte in bytes[start..end].iter().filter(|byte| byte.is_ascii_alphanumeric()) {
        plain[length] = byte.to_ascii_lowercase();
        length += 1;
    }
    let plain = &plain[..length];
    if matches!(plain, b"authorization" | b"proxyauthorization") {
        return Some(Kind::Authorization);
    }
    let signature = sign[0] == b'=' && (plain == b"sig" || plain.ends_with(b"signature"));
    let named = SECRET_NAMES.iter().any(|name| plain.ends_with(name.as_bytes()));
    // A parser's message about the text that it reads.
    let parsed = plain == b"token" && is_expectation(bytes, start);
    ((named && !parsed) || signature).then_some(Kind::Secret)
}

/// Returns true if `unexpected` or `expected` stands before the name.
fn is_expectation(bytes: &[u8], name: usize) -> bool {
    let end = run_back(bytes, name, 1, is_blank);
    let start = run_back(bytes, end, 10, |byte| byte.is_ascii_alphabetic());
    bytes[start..end].to_ascii_lowercase().ends_with(b"expected")
}

/// Finds the value that begins after the sign, without its quotes.
fn value_of(bytes: &[u8], kind: Kind, after_sign: usize, sign: &[u8]) -> Option<Range<usize>> {
    let start = run(bytes, after_sign, is_blank);
    let start = skip_wrapper(bytes, start);
    let (start, quote) = opening(bytes, start);
    let start = if kind == Kind::Authorization { skip_scheme(bytes, start) } else { start };
    // Checked before searching the end: otherwise every sign within an unmasked value would read it again.
    let sentence =
        quote.is_none() && sign == b":" && start > after_sign && is_prose(first_word(&bytes[start..]));
    if sentence || is_masked(&bytes[start..]) {
        return None;
    }
    let end = match quote {
        Some(quote) => closing(bytes, start, quote),
        None => end_of_plain(bytes, start),
    };
    let value = &bytes[start..end];
    (!value.is_empty() && !is_nothing(value)).then_some(start..end)
}

fn first_word(value: &[u8]) -> &[u8] {
    &value[..run(value, 0, |byte| byte.is_ascii_alphabetic())]
}

/// Returns true if a redacted value begins here.
fn is_masked(bytes: &[u8]) -> bool {
    let ends = |byte: &u8| byte.is_ascii_punctuation() || byte.is_ascii_whitespace();
    bytes.strip_prefix(MASK.as_bytes()).is_some_and(|rest| rest.first().is_none_or(ends))
}

/// Skips `Some("`, `Secret(` and the like.
fn skip_wrapper(bytes: &[u8], start: usize) -> usize {
    let word = run(bytes, start, |byte| byte.is_ascii_alphabetic());
    let opens = bytes.get(word) == Some(&b'(') && matches!(bytes.get(word + 1), Some(b'"' | b'\\'));
    if opens { word + 1 } else { start }
}

#[derive(Clone, Copy)]
struct Quote {
    mark: u8,
    /// Number of backslashes before the quote: more than 0 if the whole text was quoted.
    escapes: usize,
}

/// Returns where the value begins, and its quotes.
fn opening(bytes: &[u8], start: usize) -> (usize, Option<Quote>) {
    let mark = run(bytes, start, |byte| byte == b'\\');
    match bytes.get(mark) {
        Some(&byte) if is_quote(byte) => (mark + 1, Some(Quote { mark: byte, escapes: mark - start })),
        _ => (start, None),
    }
}

/// Returns where the quoted value ends, before the escapes of the closing quote; the end of the text if it is not closed.
fn closing(bytes: &[u8], start: usize, quote: Quote) -> usize {
    let mut escapes = 0;
    for (at, &byte) in bytes.iter().enumerate().skip(start) {
        if byte == quote.mark {
            let closes = if quote.escapes == 0 { escapes % 2 == 0 } else { escapes <= quote.escapes };
            if closes {
                return if quote.escapes == 0 { at } else { at - escapes };
            }
        }
        escapes = if byte == b'\\' { escapes + 1 } else { 0 };
    }
    bytes.len()
}

/// Skips the scheme of an `Authorization`, which is kept.
fn skip_scheme(bytes: &[u8], start: usize) -> usize {
    const SCHEMES: [&str; 8] =
        ["bearer", "basic", "token", "apikey", "negotiate", "ntlm", "sharedaccesssignature", "sharedkey"];
    let Some(scheme) = SCHEMES.into_iter().find(|scheme| starts_with(bytes, start, scheme)) else {
        return start;
    };
    let end = start + scheme.len();
    let credentials = run(bytes, end, is_blank);
    if credentials > end { credentials } else { start }
}

/// Returns where a value without quotes ends: at white space, or at a separator before another name. Punctuation at the end of
/// a sentence or bracket is not part of it.
fn end_of_plain(bytes: &[u8], start: usize) -> usize {
    let mut end = start;
    while let Some(&byte) = bytes.get(end)
        && !byte.is_ascii_whitespace()
        && !(matches!(byte, b';' | b'&' | b',') && separates(bytes, end))
    {
        end += 1;
    }
    let closes = |byte: u8| {
        matches!(byte, b'.' | b',' | b';' | b':' | b')' | b']' | b'}' | b'"' | b'\'' | b'`' | b'\\')
    };
    run_back(bytes, end, end - start, closes)
}

/// Returns true if the separator at `at` is followed by the end or by the next name: `name=` or `"name":`.
fn separates(bytes: &[u8], at: usize) -> bool {
    let is_quoting = |byte: u8| is_quote(byte) || byte == b'\\';
    let start = run(bytes, at + 1, is_quoting);
    let end = run(bytes, start, is_name);
    let sign = run(bytes, end, is_quoting);
    let names = match bytes.get(sign) {
        Some(b'=') => true,
        Some(b':') => sign > end,
        _ => false,
    };
    let is_last = bytes.get(at + 1).is_none_or(u8::is_ascii_whitespace);
    is_last || (end > start && names)
}

#[cfg(test)]
mod tests {
    use crate::redact;

    #[test]
    fn the_value_goes_and_the_name_stays() {
        for (text, redacted) in [
            (
                "Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey=a+b/c=;EntityPath=q",
                "Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey=***;EntityPath=q",
            ),
            // Already masked, as the password of a URL: the host stays.
            ("amqp://token:p@host/v", "amqp://token:***@host/v"),
            ("AccountName=a;AccountKey=x==", "AccountName=a;AccountKey=***"),
            (
                "SharedAccessSignature sr=q&sig=a%2Fb%3D&se=1&skn=Root",
                "SharedAccessSignature sr=q&sig=***&se=1&skn=Root",
            ),
            ("Server=h;Uid=u;Pwd=p;wd;Timeout=3", "Server=h;Uid=u;Pwd=***;Timeout=3"),
            ("Password='a;b c';x=1", "Password='***';x=1"),
            ("login failed (password: hunter2).", "login failed (password: ***)."),
            (
                r#"{"client_secret":"a\"b","id":7,"token":12,"next":1}"#,
                r#"{"client_secret":"***","id":7,"token":***,"next":1}"#,
            ),
            (r#"body: "{\"api_key\":\"abc\",\"a\":1}""#, r#"body: "{\"api_key\":\"***\",\"a\":1}""#),
            (
                "Config { user: \"u\", password: Some(\"a b\"), port: 1 }",
                "Config { user: \"u\", password: Some(\"***\"), port: 1 }",
            ),
            ("GET /?access_token=a.b&page=2", "GET /?access_token=***&page=2"),
            ("x-api-key: abc\nhost: h", "x-api-key: ***\nhost: h"),
            ("DB_PASSWORD=x HOME=/root", "DB_PASSWORD=*** HOME=/root"),
            ("Authorization: Bearer abc", "Authorization: Bearer ***"),
            ("authorization=Basic dTpw, retry", "authorization=Basic ***, retry"),
            (r#""authorization": "Basic dTpw""#, r#""authorization": "Basic ***""#),
            ("Authorization: abc", "Authorization: ***"),
            ("password => \"x\"", "password => \"***\""),
        ] {
            assert_eq!(redact(text), redacted, "{text}");
        }
    }

    #[test]
    fn ordinary_texts_stay() {
        for text in [
            "token expired",
            "password must not be empty",
            "password: must not be empty",
            "unexpected token at line 3",
            "unexpected token: `}` at line 3",
            "expected token = `;`",
            "error in auth::token::parse: bad input",
            "max_tokens=100, token_count: 7",
            "secret \"db\" not found",
            "Authorization: missing",
            "authorization failed: 403",
            "password=",
            "\"token\": null",
            "token: None",
            "SharedAccessKeyName=RootManageSharedAccessKey",
            "signature: does not match",
            "design=flat",
            "connection reset by peer (os error 104)",
            "invalid type: map, expected a string at line 1 column 2",
            "order 7: no stock: item=12; warehouse=north",
        ] {
            assert_eq!(redact(text), text);
        }
    }
}
