//! JSON with a line for each value, to compare it line by line.

use serde::de::IgnoredAny;

/// Maximum depth: the lines are indented by it, and a hostile text would take memory with its square.
const DEEPEST: usize = 100;

/// Returns JSON with a line for each value; `None` if the text is no JSON object or array, or nested
/// too deeply. Only white space changes: keys keep their
/// order and numbers their digits.
pub(crate) fn pretty(text: &str) -> Option<String> {
    // A byte order mark is not a part of JSON, and stays.
    if let Some(rest) = text.strip_prefix('\u{feff}') {
        return pretty(rest).map(|pretty| format!("\u{feff}{pretty}"));
    }
    if !text.trim_start().starts_with(['{', '[']) || serde_json::from_str::<IgnoredAny>(text).is_err() {
        return None;
    }
    let mut pretty = String::with_capacity(text.len() * 2);
    let mut depth = 0_usize;
    let mut chars = text.chars().peekable();
    let line = |pretty: &mut String, depth: usize| {
        pretty.push('\n');
        pretty.extend(std::iter::repeat_n(' ', 2 * depth));
    };
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                pretty.push(c);
                let mut escaped = false;
                for c in chars.by_ref() {
                    pretty.push(c);
                    match c {
                        '"' if !escaped => break,
                        _ => escaped = c == '\\' && !escaped,
                    }
                }
            }
            '{' | '[' => {
                pretty.push(c);
                while chars.next_if(char::is_ascii_whitespace).is_some() {}
                if let Some(end) = chars.next_if(|c| matches!(c, '}' | ']')) {
                    pretty.push(end);
                } else {
                    depth += 1;
                    if depth > DEEPEST {
                        return None;
                    }
                    line(&mut pretty, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut pretty, depth);
                pretty.push(c);
            }
            ',' => {
                pretty.push(c);
                line(&mut pretty, depth);
            }
            ':' => pretty.push_str(": "),
            _ if c.is_ascii_whitespace() => {}
            _ => pretty.push(c),
        }
    }
    Some(pretty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_white_space_changes() {
        let text = r#" {"b" : 10000000000000000000000.10,"a":[1 ,2],"c":{ },"d":[],"e":"x\\\":, {"} "#;
        let expected = "{\n  \"b\": 10000000000000000000000.10,\n  \"a\": [\n    1,\n    2\n  ],\n  \"c\": {},\n  \"d\": [],\n  \"e\": \"x\\\\\\\":, {\"\n}";
        assert_eq!(pretty(text).as_deref(), Some(expected));
        assert_eq!(pretty(expected).as_deref(), Some(expected));
        for text in ["", "1", "\"a\"", "{", "[1,]", "{}x", "2 books"] {
            assert_eq!(pretty(text), None, "{text}");
        }
        let nested = |depth| "[".repeat(depth) + "1" + &"]".repeat(depth);
        assert!(pretty(&nested(DEEPEST)).is_some() && pretty(&nested(DEEPEST + 1)).is_none());
    }
}
