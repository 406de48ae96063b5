//! Compares two texts of JSON.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::is_json;
use super::number::canonical;
use super::scan::{DEEPEST, Found, Scan, TooDeep, unquoted};

/// A value in the form that equal ones share.
#[derive(PartialEq, Eq)]
enum Exact<'a> {
    Object(BTreeMap<Cow<'a, str>, Exact<'a>>),
    Array(Vec<Exact<'a>>),
    Text(Cow<'a, str>),
    Number(String),
    Word(&'a str),
}

/// Returns true if two texts of JSON mean the same: whatever their white space, the order of their keys and the forms of their
/// numbers. Of equal keys, the last one counts. Texts that are nested too deeply are the same only byte by byte.
pub(crate) fn same(one: &str, other: &str) -> bool {
    let exact = |text| is_json(text).then(|| read(&mut Scan::new(text), 0).ok()).flatten();
    one == other || exact(one).is_some_and(|one| Some(one) == exact(other))
}

fn read<'a>(scan: &mut Scan<'a>, depth: usize) -> Result<Exact<'a>, TooDeep> {
    if depth > DEEPEST {
        return Err(TooDeep);
    }
    Ok(match scan.value() {
        Found::Object => {
            let mut object = BTreeMap::new();
            while let Some(key) = scan.key() {
                object.insert(text(key), read(scan, depth + 1)?);
            }
            Exact::Object(object)
        }
        Found::Array => {
            let mut array = Vec::new();
            while scan.element() {
                array.push(read(scan, depth + 1)?);
            }
            Exact::Array(array)
        }
        Found::Text(quoted) => Exact::Text(text(quoted)),
        Found::Number(number) => Exact::Number(canonical(number)),
        Found::Word(word) => Exact::Word(word),
    })
}

/// Returns what a quoted text says. One that says no text is like itself only, with its quotes.
fn text(quoted: &str) -> Cow<'_, str> {
    unquoted(quoted).unwrap_or(Cow::Borrowed(quoted))
}

/// Returns true for JSON that is nested more than [`DEEPEST`] deep.
pub(crate) fn is_deep(json: &str) -> bool {
    Scan::new(json).skip() > DEEPEST
}

/// Returns the first key that an object in the text has twice: a program keeps only one of the two. `None` also for a text that is no
/// JSON, and for objects that are nested too deeply.
pub(crate) fn repeats_a_key(json: &str) -> Option<String> {
    if !is_json(json) {
        return None;
    }
    repeated(&mut Scan::new(json), 0).ok().flatten()
}

fn repeated(scan: &mut Scan<'_>, depth: usize) -> Result<Option<String>, TooDeep> {
    if depth > DEEPEST {
        return Err(TooDeep);
    }
    match scan.value() {
        Found::Object => {
            let mut keys = BTreeSet::new();
            while let Some(key) = scan.key() {
                let key = text(key);
                if keys.contains(&key) {
                    return Ok(Some(key.into_owned()));
                }
                keys.insert(key);
                if let Some(key) = repeated(scan, depth + 1)? {
                    return Ok(Some(key));
                }
            }
        }
        Found::Array => {
            while scan.element() {
                if let Some(key) = repeated(scan, depth + 1)? {
                    return Ok(Some(key));
                }
            }
        }
        Found::Text(_) | Found::Number(_) | Found::Word(_) => {}
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_order_and_forms_do_not_count_and_digits_do() {
        for (one, other) in [
            (r#" {"a" : 1.10, "b":[1e2, {} ]} "#, r#"{"b":[100,{}],"a":1.1}"#),
            (r#""\u00e4""#, "\"ä\""),
            (r#"{"n":12345678901234567890123}"#, r#"{ "n": 12345678901234567890123.0 }"#),
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
        ] {
            assert!(same(one, other) && same(other, one), "{one}");
        }
        for (one, other) in [
            (r#"{"n":12345678901234567890123}"#, r#"{"n":12345678901234567890124}"#),
            ("0.30000000000000001", "0.3"),
            ("[1,2]", "[2,1]"),
            ("1", "\"1\""),
            ("null", "\"null\""),
            ("[", "[ "),
        ] {
            assert!(!same(one, other), "{one} {other}");
        }
        let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(
            same(&deep(100_000), &deep(100_000)) && !same(&deep(100_000), &format!(" {}", deep(100_000)))
        );
    }

    #[test]
    fn a_key_that_stands_twice_is_found() {
        for (json, key) in [
            (r#"{"a":1,"b":2}"#, None),
            (r#"{"a":1,"b":{"a":2}}"#, None),
            (r#"{"a":1,"\u0061":2}"#, Some("a")),
            (r#"[{"x":[{"k":1,"k":1}]}]"#, Some("k")),
            (r#"{"a":1,"a":1"#, None),
        ] {
            assert_eq!(repeats_a_key(json).as_deref(), key, "{json}");
        }
    }
}
