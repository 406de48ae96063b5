//! Parses the address of a link.

use crate::amqp::Value;
use crate::amqp::state::parts;

/// Target of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// The node for tokens.
    Cbs,
    /// The `$management` node of the entity at this path.
    Management(String),
    /// The entity at this path.
    Entity(String),
}

const SOURCE: u64 = 0x28;
const TARGET: u64 = 0x29;
const COORDINATOR: u64 = 0x30;
/// Position of the filter among a source's fields.
const FILTER: usize = 7;

impl Address {
    /// Parses the address in a source or a target. SDKs write `orders`, `/orders`, or `amqps://host:port/orders`.
    pub(crate) fn parse(address: &str) -> Self {
        let path = strip_authority(address).trim_matches('/');
        if path.eq_ignore_ascii_case("$cbs") {
            return Self::Cbs;
        }
        match strip_suffix_ignoring_case(path, "$management") {
            Some(entity) => Self::Management(entity.trim_end_matches('/').to_owned()),
            None => Self::Entity(path.to_owned()),
        }
    }
}

/// Returns the path of an address in any form.
pub(crate) fn strip_authority(address: &str) -> &str {
    match address.split_once("://") {
        Some((_, rest)) => rest.split_once('/').map_or("", |(_, path)| path),
        None => address,
    }
}

fn strip_suffix_ignoring_case<'a>(text: &'a str, suffix: &str) -> Option<&'a str> {
    let at = text.len().checked_sub(suffix.len())?;
    let (front, back) = (text.get(..at)?, text.get(at..)?);
    back.eq_ignore_ascii_case(suffix).then_some(front)
}

/// Returns the address in a source or a target.
pub(crate) fn address_of(terminus: &Value) -> Option<&str> {
    match parts(terminus).ok()? {
        (Some(SOURCE | TARGET), fields) => fields.first()?.as_text(),
        _ => None,
    }
}

/// Returns true if a target is the coordinator of transactions.
pub(crate) fn is_coordinator(target: &Value) -> bool {
    matches!(parts(target), Ok((Some(COORDINATOR), _)))
}

/// Name of the filter with which a source asks for a session.
pub(crate) const SESSION_FILTER: &str = "com.microsoft:session-filter";

/// Returns the session that a source asks for: none at all, the next free one (`Some(None)`), or one by its id.
pub(crate) fn session_filter(source: &Value) -> Option<Option<&str>> {
    let (_, fields) = parts(source).ok()?;
    let filter = fields.get(FILTER)?.as_map()?;
    let (_, value) = filter.iter().find(|(key, _)| key.as_text() == Some(SESSION_FILTER))?;
    Some(match value {
        Value::Described(described) => described.1.as_text(),
        value => value.as_text(),
    })
}

/// Returns the source with the accepted session in its filter.
pub(crate) fn with_session(source: &Value, session: &str) -> Value {
    let mut source = source.clone();
    if let Value::Described(described) = &mut source
        && let Value::List(fields) = &mut described.1
        && let Some(Value::Map(filter)) = fields.get_mut(FILTER)
        && let Some((_, value)) = filter.0.iter_mut().find(|(key, _)| key.as_text() == Some(SESSION_FILTER))
    {
        match value {
            Value::Described(described) => described.1 = Value::from(session),
            value => *value = Value::from(session),
        }
    }
    source
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amqp::Map;
    use crate::amqp::state::list;

    #[test]
    fn an_address_is_found_in_whatever_form_an_sdk_writes_it() {
        for (address, parsed) in [
            ("orders", Address::Entity("orders".into())),
            ("/orders", Address::Entity("orders".into())),
            ("amqps://localhost:5672/orders", Address::Entity("orders".into())),
            ("sb://ns/topic/Subscriptions/a", Address::Entity("topic/Subscriptions/a".into())),
            ("orders/$management", Address::Management("orders".into())),
            (
                "amqp://h/orders/$DeadLetterQueue/$Management",
                Address::Management("orders/$DeadLetterQueue".into()),
            ),
            ("$cbs", Address::Cbs),
            ("amqps://localhost/$CBS", Address::Cbs),
            ("amqps://localhost", Address::Entity(String::new())),
            (
                "\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}",
                Address::Entity("\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}".into()),
            ),
        ] {
            assert_eq!(Address::parse(address), parsed, "{address}");
        }
    }

    #[test]
    fn the_session_of_a_filter_is_read_and_replaced() {
        let filter = |value: Value| {
            let filter = Map::new().with_symbol(SESSION_FILTER, value);
            let mut fields = vec![Value::from("orders")];
            fields.resize(FILTER, Value::Null);
            fields.push(Value::Map(filter));
            list(SOURCE, fields)
        };
        let described = |value| Value::described(Value::Symbol(SESSION_FILTER.into()), value);
        assert_eq!(session_filter(&list(SOURCE, vec!["orders".into()])), None);
        assert_eq!(session_filter(&filter(Value::Null)), Some(None));
        assert_eq!(session_filter(&filter(described(Value::Null))), Some(None));
        assert_eq!(session_filter(&filter(described("a".into()))), Some(Some("a")));
        let next = with_session(&filter(described(Value::Null)), "a");
        assert_eq!(session_filter(&next), Some(Some("a")));
        assert_eq!(with_session(&filter(Value::Null), "a"), filter("a".into()));
    }
}
