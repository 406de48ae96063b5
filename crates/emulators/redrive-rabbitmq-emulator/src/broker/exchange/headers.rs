//! Bindings of a headers exchange.

use redrive_amqp091::{Table, Value};

/// Returns whether a message's headers match a binding's arguments: all of them, or any, as `x-match` says. Keys that begin with `x-`
/// do not count, except with `all-with-x` and `any-with-x`.
pub(super) fn matches_headers(arguments: &Table, headers: &Table) -> bool {
    let kind = arguments.get("x-match").and_then(Value::as_str).unwrap_or("all");
    let with_x = kind.ends_with("-with-x");
    let mut wanted = arguments
        .iter()
        .filter(|(key, _)| *key != "x-match" && (with_x || !key.as_bytes().starts_with(b"x-")));
    let found = |(key, value): (&redrive_amqp091::ShortStr, &Value)| {
        let present = headers.get(&key.to_str());
        match (value, present) {
            (_, None) => false,
            // No value: the key alone counts.
            (Value::Void, Some(_)) => true,
            (value, Some(present)) => equal(value, present),
        }
    };
    if kind.starts_with("any") { wanted.any(found) } else { wanted.all(found) }
}

/// Numbers are compared by value, whatever their width.
fn equal(one: &Value, other: &Value) -> bool {
    match (one.as_i64(), other.as_i64()) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_any_and_keys_with_x() {
        let headers = Table::new().with("a", 1_i32).with("b", "x").with("x-c", true);
        let arguments = |kind: &str| Table::new().with("x-match", kind);
        assert!(matches_headers(&Table::new().with("a", 1_i64), &headers));
        assert!(!matches_headers(&arguments("all").with("a", 1_i32).with("z", 1_i32), &headers));
        assert!(matches_headers(&arguments("any").with("a", 1_i32).with("z", 1_i32), &headers));
        assert!(matches_headers(&arguments("all").with("a", Value::Void), &headers));
        assert!(matches_headers(&arguments("all").with("x-c", false), &headers), "it does not count");
        assert!(!matches_headers(&arguments("all-with-x").with("x-c", false), &headers));
        assert!(matches_headers(&arguments("any-with-x").with("x-c", true), &headers));
        assert!(matches_headers(&arguments("all"), &headers));
        assert!(!matches_headers(&arguments("any"), &headers));
    }
}
