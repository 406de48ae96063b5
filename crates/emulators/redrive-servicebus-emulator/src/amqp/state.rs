use bytes::{Bytes, BytesMut};

use super::encode::encode_described_list;
use super::{DecodeError, Map, Reader, Value};

/// An error as AMQP carries it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct AmqpError {
    /// A symbol such as `amqp:not-found`.
    pub(crate) condition: String,
    pub(crate) description: Option<String>,
    pub(crate) info: Map,
}

/// The state of a delivery.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DeliveryState {
    Received,
    Accepted,
    Rejected(Option<AmqpError>),
    Released,
    Modified { undeliverable_here: bool, annotations: Map },
    Declared { transaction: Bytes },
    Transactional { transaction: Bytes, outcome: Option<Box<DeliveryState>> },
}

const ERROR: u64 = 0x1d;
const RECEIVED: u64 = 0x23;
const ACCEPTED: u64 = 0x24;
const REJECTED: u64 = 0x25;
const RELEASED: u64 = 0x26;
const MODIFIED: u64 = 0x27;
const DECLARED: u64 = 0x33;
const TRANSACTIONAL: u64 = 0x34;

impl AmqpError {
    pub(crate) fn new(condition: &str, description: impl Into<String>) -> Self {
        Self { condition: condition.to_owned(), description: Some(description.into()), info: Map::new() }
    }

    pub(crate) fn from_value(value: &Value) -> Result<Option<Self>, DecodeError> {
        let (descriptor, fields) = match value {
            Value::Null => return Ok(None),
            value => parts(value)?,
        };
        if descriptor != Some(ERROR) {
            return Err(DecodeError::Expected("an error"));
        }
        let text = |at: usize| fields.get(at).and_then(Value::as_text).map(str::to_owned);
        Ok(Some(Self {
            condition: text(0).unwrap_or_default(),
            description: text(1),
            info: fields.get(2).and_then(Value::as_map).cloned().unwrap_or_default(),
        }))
    }

    pub(crate) fn to_value(&self) -> Value {
        let info = if self.info.is_empty() { Value::Null } else { Value::Map(self.info.clone()) };
        list(ERROR, vec![Value::Symbol(self.condition.clone()), self.description.clone().into(), info])
    }

    pub(crate) fn optional(error: Option<&Self>) -> Value {
        error.map_or(Value::Null, Self::to_value)
    }
}

impl DeliveryState {
    pub(crate) fn from_value(value: &Value) -> Result<Option<Self>, DecodeError> {
        let (descriptor, fields) = match value {
            Value::Null => return Ok(None),
            value => parts(value)?,
        };
        let flag = |at: usize| fields.get(at).and_then(Value::as_bool).unwrap_or(false);
        let id = || fields.first().and_then(Value::as_binary).cloned();
        Ok(Some(match descriptor {
            Some(RECEIVED) => Self::Received,
            Some(ACCEPTED) => Self::Accepted,
            Some(REJECTED) => Self::Rejected(AmqpError::from_value(fields.first().unwrap_or(&Value::Null))?),
            Some(RELEASED) => Self::Released,
            Some(MODIFIED) => Self::Modified {
                undeliverable_here: flag(1),
                annotations: fields.get(2).and_then(Value::as_map).cloned().unwrap_or_default(),
            },
            Some(DECLARED) => {
                Self::Declared { transaction: id().ok_or(DecodeError::Expected("a transaction id"))? }
            }
            Some(TRANSACTIONAL) => Self::Transactional {
                transaction: id().ok_or(DecodeError::Expected("a transaction id"))?,
                outcome: match fields.get(1) {
                    // Nested once: an outcome is never transactional itself.
                    Some(Value::Described(inner)) if inner.0 == Value::Ulong(TRANSACTIONAL) => {
                        return Err(DecodeError::Expected("an outcome"));
                    }
                    Some(outcome) => Self::from_value(outcome)?.map(Box::new),
                    None => None,
                },
            },
            _ => return Err(DecodeError::Expected("a delivery state")),
        }))
    }

    pub(crate) fn to_value(&self) -> Value {
        match self {
            Self::Received => list(RECEIVED, vec![Value::Uint(0), Value::Ulong(0)]),
            Self::Accepted => list(ACCEPTED, vec![]),
            Self::Rejected(None) => list(REJECTED, vec![]),
            Self::Rejected(Some(error)) => list(REJECTED, vec![error.to_value()]),
            Self::Released => list(RELEASED, vec![]),
            Self::Modified { undeliverable_here, annotations } => list(
                MODIFIED,
                vec![Value::Bool(true), Value::Bool(*undeliverable_here), Value::Map(annotations.clone())],
            ),
            Self::Declared { transaction } => list(DECLARED, vec![Value::Binary(transaction.clone())]),
            Self::Transactional { transaction, outcome } => {
                let outcome = outcome.as_ref().map_or(Value::Null, |outcome| outcome.to_value());
                list(TRANSACTIONAL, vec![Value::Binary(transaction.clone()), outcome])
            }
        }
    }

    pub(crate) fn optional(state: Option<&Self>) -> Value {
        state.map_or(Value::Null, Self::to_value)
    }
}

/// Returns the descriptor and the fields of a described list.
pub(crate) fn parts(value: &Value) -> Result<(Option<u64>, &[Value]), DecodeError> {
    let Value::Described(described) = value else { return Err(DecodeError::Expected("a described list")) };
    let descriptor = match &described.0 {
        Value::Ulong(code) => Some(*code),
        _ => None,
    };
    match &described.1 {
        Value::List(fields) => Ok((descriptor, fields)),
        _ => Err(DecodeError::Expected("a described list")),
    }
}

/// Creates a described list.
pub(crate) fn list(descriptor: u64, fields: Vec<Value>) -> Value {
    Value::described(Value::Ulong(descriptor), Value::List(fields))
}

/// Writes the SASL mechanisms that the server offers.
pub(crate) fn sasl_mechanisms(to: &mut BytesMut) {
    let names = ["MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"];
    let names = names.iter().map(|name| Value::Symbol((*name).to_owned())).collect();
    encode_described_list(0x40, &[Value::Array(names)], to);
}

/// Writes the outcome of SASL: 0 is success, 1 a wrong name or key.
pub(crate) fn sasl_outcome(code: u8, to: &mut BytesMut) {
    encode_described_list(0x44, &[Value::Ubyte(code), Value::Null], to);
}

/// Reads the mechanism that the client chose, and its initial response.
pub(crate) fn sasl_init(body: &[u8]) -> Result<(String, Bytes), DecodeError> {
    let mut reader = Reader::new(body);
    if reader.descriptor()? != Some(0x41) {
        return Err(DecodeError::Expected("sasl-init"));
    }
    let mut fields = reader.fields()?;
    let mechanism = fields.text()?.unwrap_or_default();
    Ok((mechanism, fields.binary()?.unwrap_or_default()))
}
