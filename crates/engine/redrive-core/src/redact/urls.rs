//! Passwords in URLs: `scheme://user:password@host`.

use std::ops::Range;

use super::words::{is_quote, run};

/// Maximum length of user and password. Without it, each of many URL beginnings in one long word would read all of it.
const MAX_URL: usize = 1024;

/// Finds the next password in a URL.
pub(super) fn password(text: &str, from: usize) -> Option<Range<usize>> {
    const START: &str = "://";
    let mut at = from;
    let mut next_at_sign = from;
    while let Some(found) = text[at..].find(START) {
        let start = at + found + START.len();
        if next_at_sign < start {
            next_at_sign = start + text[start..].find('@')?;
        }
        if next_at_sign - start <= MAX_URL
            && let Some(password) = password_after(text.as_bytes(), start)
        {
            return Some(password);
        }
        at = start;
    }
    None
}

/// Finds the password of the URL whose scheme ends at `start`.
fn password_after(bytes: &[u8], start: usize) -> Option<Range<usize>> {
    let ends_user = |byte: u8| {
        byte.is_ascii_whitespace()
            || is_quote(byte)
            || matches!(byte, b':' | b'@' | b'/' | b'?' | b'#' | b'[')
    };
    let colon = run(bytes, start, |byte| !ends_user(byte));
    if bytes.get(colon) != Some(&b':') {
        return None;
    }
    let password = colon + 1;
    // `host:5672/…` is no password, whatever follows.
    let port = run(bytes, password, |byte| byte.is_ascii_digit());
    if port - password <= 5
        && bytes.get(port).is_none_or(|byte| matches!(byte, b'/' | b'?' | b'#') || byte.is_ascii_whitespace())
    {
        return None;
    }
    let end = end_of_userinfo(&bytes[..end_of_url(bytes, password)], password)?;
    let already = &bytes[password..end] == super::MASK.as_bytes();
    (end > password && !already).then_some(password..end)
}

/// Returns the last `@` before the query, because passwords may contain unencoded `@` and `/`; otherwise the last `@` of all.
fn end_of_userinfo(url: &[u8], start: usize) -> Option<usize> {
    let query = run(url, start, |byte| !matches!(byte, b'?' | b'#'));
    let last_at = |end: usize| url[start..end].iter().rposition(|&byte| byte == b'@').map(|at| start + at);
    last_at(query).or_else(|| last_at(url.len()))
}

/// Returns where a URL certainly ends: at white space, at a closing quote, or where the next one of a list begins. A password
/// contains these characters only in encoded form.
fn end_of_url(bytes: &[u8], start: usize) -> usize {
    let within = &bytes[..bytes.len().min(start + MAX_URL)];
    let end = run(within, start, |byte| !byte.is_ascii_whitespace() && !matches!(byte, b'<' | b'>' | b'"'));
    let url = &bytes[start..end];
    url.windows(3).position(|window| window == b"://").map_or(end, |slashes| {
        // `…,amqp` before the `://`: a separator and a scheme.
        let scheme = url[..slashes].iter().rposition(|byte| !byte.is_ascii_alphanumeric() && *byte != b'+');
        match scheme {
            Some(separator) if matches!(url[separator], b',' | b';' | b'|' | b'(' | b'\'') => {
                start + separator
            }
            _ => end,
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::redact;

    #[test]
    fn only_the_password_goes() {
        for (text, redacted) in [
            ("amqp://u:p@h", "amqp://u:***@h"),
            ("amqps://u:p%40x@h:5671/v?heartbeat=5", "amqps://u:***@h:5671/v?heartbeat=5"),
            ("redis://:p@h", "redis://:***@h"),
            ("x://u:p@q@h y", "x://u:***@h y"),
            ("x://u:p/q@h/v", "x://u:***@h/v"),
            ("x://u:p:q:@h/v", "x://u:***@h/v"),
            ("x://u:1234@h/v", "x://u:***@h/v"),
            ("pg://u:p@h/db?mail=a@b", "pg://u:***@h/db?mail=a@b"),
            ("amqp://u:p@h1,amqp://v:q@h2", "amqp://u:***@h1,amqp://v:***@h2"),
            ("first x://u:p@h, then x://v:q@i.", "first x://u:***@h, then x://v:***@i."),
            ("{\"url\":\"x://u:p@h\",\"mail\":\"a@b\"}", "{\"url\":\"x://u:***@h\",\"mail\":\"a@b\"}"),
            ("x://ü:pä@h", "x://ü:***@h"),
        ] {
            assert_eq!(redact(text), redacted, "{text}");
        }
    }

    #[test]
    fn what_has_no_password_stays() {
        for text in [
            "https://user@host/path",
            "https://host:8080/users/bob@example.com",
            "https://host:8080?mail=bob@example.com",
            "http://[::1]:15672/api@x",
            "https://host/a:b@c",
            "amqp://host:port/vhost",
            "x://user:@host",
            "://",
            "a://b",
        ] {
            assert_eq!(redact(text), text);
        }
    }
}
