//! Converts arguments of queues for the client library, which declares queues: it reads what a message with these headers would carry.

use std::collections::BTreeMap;

use lapin::types::{AMQPValue, FieldTable, parsing::parse_field_table};
use redrive_core::{TransportError, TransportErrorKind, Value};

use super::write;

/// Converts the arguments of a queue.
pub(crate) fn arguments(
    arguments: &BTreeMap<String, Value>,
) -> Result<BTreeMap<String, AMQPValue>, TransportError> {
    let table = write::table(arguments.iter().map(|(name, value)| (&**name, value)))?;
    let length = u32::try_from(table.as_bytes().len()).unwrap_or(u32::MAX);
    let encoded = [&length.to_be_bytes(), table.as_bytes()].concat();
    let (_, table): (_, FieldTable) = parse_field_table(&*encoded).map_err(|_| {
        let message = "RabbitMQ cannot carry the arguments of the queue";
        TransportError::new(TransportErrorKind::Refused, message)
    })?;
    Ok(table.into_iter().map(|(name, value)| (name.to_string(), value.clone())).collect())
}
