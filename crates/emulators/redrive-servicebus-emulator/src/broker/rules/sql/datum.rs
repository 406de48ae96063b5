//! The values of expressions.

use std::cmp::Ordering;

use crate::amqp::Value;

/// A value, or nothing for a property that a message does not have. A calculation with nothing results in nothing, and a comparison
/// with it is neither true nor false.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::broker::rules) enum Datum {
    Nothing,
    Bool(bool),
    Long(i64),
    Double(f64),
    Text(String),
    /// Supports only equality.
    Other(Value),
}

impl Datum {
    /// Three-valued: `None` is "unknown".
    pub(super) fn truth(&self) -> Option<bool> {
        match self {
            Self::Bool(truth) => Some(*truth),
            _ => None,
        }
    }

    pub(in crate::broker::rules) fn equals(&self, other: &Self) -> Option<bool> {
        match (self, other) {
            (Self::Nothing, _) | (_, Self::Nothing) => None,
            (Self::Bool(a), Self::Bool(b)) => Some(a == b),
            (Self::Other(a), Self::Other(b)) => Some(a == b),
            _ => self.order(other).map(Ordering::is_eq),
        }
    }

    /// Compares two values; `None` if they have no order, such as text and number.
    pub(super) fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Long(a), Self::Long(b)) => Some(a.cmp(b)),
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            (Self::Long(_) | Self::Double(_), Self::Long(_) | Self::Double(_)) => {
                self.number()?.partial_cmp(&other.number()?)
            }
            _ => None,
        }
    }

    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Self::Long(number) => Some(*number as f64),
            Self::Double(number) => Some(*number),
            _ => None,
        }
    }
}

impl From<Option<bool>> for Datum {
    fn from(truth: Option<bool>) -> Self {
        truth.map_or(Self::Nothing, Self::Bool)
    }
}

impl From<&Value> for Datum {
    fn from(value: &Value) -> Self {
        match value {
            Value::Null => Self::Nothing,
            Value::Bool(truth) => Self::Bool(*truth),
            Value::Float(number) => Self::Double(f64::from(*number)),
            Value::Double(number) => Self::Double(*number),
            Value::Ulong(number) if i64::try_from(*number).is_err() => Self::Double(*number as f64),
            Value::String(text) | Value::Symbol(text) => Self::Text(text.clone()),
            Value::Char(character) => Self::Text(character.to_string()),
            Value::Uuid(uuid) => Self::Text(uuid.to_string()),
            Value::Timestamp(_) => Self::Other(value.clone()),
            _ => value.as_i64().map_or_else(|| Self::Other(value.clone()), Self::Long),
        }
    }
}

impl From<Datum> for Value {
    fn from(datum: Datum) -> Self {
        match datum {
            Datum::Nothing => Self::Null,
            Datum::Bool(truth) => Self::Bool(truth),
            Datum::Long(number) => Self::Long(number),
            Datum::Double(number) => Self::Double(number),
            Datum::Text(text) => Self::String(text),
            Datum::Other(value) => value,
        }
    }
}
