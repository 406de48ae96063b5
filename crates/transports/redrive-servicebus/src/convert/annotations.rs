//! The annotations of a message that are not the broker's, and the properties that are symbols. Handlers see them as headers, and
//! a copy is sent with the original types.

use fe2o3_amqp_types::messaging::ApplicationProperties;
use fe2o3_amqp_types::messaging::annotations::OwnedKey;
use fe2o3_amqp_types::primitives::{OrderedMap, SimpleValue, Symbol};
use redrive_core::{Headers, Value};
use serde_amqp::Value as Amqp;

use super::values::{from_amqp_exactly, to_amqp, to_property};

/// The header that holds a table of annotations.
pub(crate) const ANNOTATIONS: &str = "x-servicebus-annotations";
/// The header that lists the names of the properties that are symbols.
pub(crate) const SYMBOLS: &str = "x-servicebus-symbols";

/// The annotations that the broker writes or acts on. They are never copied to another message: a copy has its own, and no header
/// of a message controls when or where it is stored.
const BROKER_ANNOTATIONS: &[&str] = &[
    "x-opt-deadletter-source",
    "x-opt-enqueue-sequence-number",
    "x-opt-enqueued-time",
    "x-opt-locked-until",
    "x-opt-message-state",
    "x-opt-offset",
    "x-opt-partition-id",
    "x-opt-partition-key",
    "x-opt-publisher",
    "x-opt-scheduled-enqueue-time",
    "x-opt-sequence-number",
    "x-opt-via-partition-key",
];

type Annotations = OrderedMap<OwnedKey, Amqp>;

/// Stores the annotations that are not the broker's in a header.
pub(crate) fn read_annotations(annotations: &Annotations, headers: &mut Headers) {
    let mut table = Headers::new();
    for (key, value) in annotations {
        if let OwnedKey::Symbol(name) = key
            && !is_broker_annotation(name.as_str())
        {
            table.insert(name.as_str(), from_amqp_exactly(value));
        }
    }
    if !table.is_empty() {
        headers.insert(ANNOTATIONS, Value::Table(table));
    }
}

/// Writes the annotations from their header, and removes the header.
pub(crate) fn write_annotations(headers: &mut Headers, annotations: &mut Annotations) {
    let Some(Value::Table(table)) = headers.get(ANNOTATIONS) else { return };
    for (name, value) in table.iter() {
        if name.is_ascii() && !is_broker_annotation(name) {
            annotations.insert(OwnedKey::Symbol(Symbol::from(name)), to_amqp(value));
        }
    }
    headers.remove(ANNOTATIONS);
}

/// Returns the names of the properties that are symbols.
pub(crate) fn symbols(properties: &ApplicationProperties) -> Vec<Value> {
    let symbols = properties.0.iter().filter(|(_, value)| matches!(value, SimpleValue::Symbol(_)));
    symbols.map(|(name, _)| Value::from(name.as_str())).collect()
}

/// Stores the names of the properties that are symbols in a header: handlers see their values as text.
pub(crate) fn note_symbols(symbols: Vec<Value>, headers: &mut Headers) {
    if !symbols.is_empty() {
        headers.insert(SYMBOLS, Value::List(symbols));
    }
}

/// Converts headers to application properties, and restores symbols.
pub(crate) fn write_properties(mut headers: Headers) -> ApplicationProperties {
    let symbols = match headers.get(SYMBOLS) {
        Some(Value::List(names)) => names.clone(),
        _ => Vec::new(),
    };
    if !symbols.is_empty() {
        headers.remove(SYMBOLS);
    }
    let is_symbol = |name: &str| symbols.iter().any(|symbol| symbol.as_str() == Some(name));
    let mut properties = OrderedMap::new();
    for (name, value) in headers.iter() {
        let value = match value {
            Value::String(text) if text.is_ascii() && is_symbol(name) => {
                SimpleValue::Symbol(Symbol::from(text.as_str()))
            }
            value => to_property(value),
        };
        properties.insert(name.to_owned(), value);
    }
    ApplicationProperties(properties)
}

fn is_broker_annotation(name: &str) -> bool {
    BROKER_ANNOTATIONS.iter().any(|known| known.eq_ignore_ascii_case(name))
}
