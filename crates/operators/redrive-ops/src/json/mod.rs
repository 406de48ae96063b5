//! JSON of messages, exactly: numbers are the digits that stand there, and never a float. Pure.
//!
//! | module | does |
//! |---|---|
//! | [`number`] | compares numbers by their digits |
//! | [`scan`] | reads a text of JSON value by value |
//! | [`same`] | compares two texts |
//! | [`pretty`] | sets a text out, line by line |
//!
//! `serde_json` reads a number into 64 bits. Its feature that does not would change how every crate of a user's program reads JSON.

mod number;
mod pretty;
mod same;
mod scan;

pub use number::same_number;
pub(crate) use pretty::pretty;
pub(crate) use same::{is_deep, repeats_a_key, same};
pub(crate) use scan::{DEEPEST, Found, Scan, TooDeep, unquoted};

/// Splits the byte order mark of UTF-8 off, which some programs write before JSON.
pub(crate) fn split_mark(body: &[u8]) -> (&[u8], &[u8]) {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    body.split_at(if body.starts_with(MARK) { MARK.len() } else { 0 })
}

/// Returns true for one value of JSON and nothing else, however deep it is.
pub(crate) fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}
