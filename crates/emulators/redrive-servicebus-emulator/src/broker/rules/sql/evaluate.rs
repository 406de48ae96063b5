//! Evaluates an expression for a message, in SQL's three-valued logic: true, false, unknown.

use std::cmp::Ordering;

use super::expression::{Expression, Operator};
use super::like::is_like;
use super::{Datum, SqlError};
use crate::amqp::{Map, Message};

impl Expression {
    pub(in crate::broker::rules) fn evaluate(
        &self,
        on: &Message,
        parameters: &Map,
    ) -> Result<Datum, SqlError> {
        let value = |expression: &Self| expression.evaluate(on, parameters);
        Ok(match self {
            Self::Literal(datum) => datum.clone(),
            Self::Property(property) => Datum::from(&property.of(on)),
            Self::Parameter(name) => {
                let find = |name: &str| parameters.get(name).or_else(|| parameters.get(&format!("@{name}")));
                Datum::from(find(name).ok_or(SqlError::Evaluation("a parameter has no value"))?)
            }
            Self::Not(inner) => value(inner)?.truth().map(|truth| !truth).into(),
            Self::Minus(inner) => negative(&value(inner)?)?,
            Self::Both(Operator::And, left, right) => match value(left)?.truth() {
                Some(false) => Datum::Bool(false),
                left => and(left, value(right)?.truth()).into(),
            },
            Self::Both(Operator::Or, left, right) => match value(left)?.truth() {
                Some(true) => Datum::Bool(true),
                left => and(left.map(|truth| !truth), value(right)?.truth().map(|truth| !truth))
                    .map(|truth| !truth)
                    .into(),
            },
            Self::Both(operator, left, right) => operator.apply(&value(left)?, &value(right)?)?,
            Self::IsNull(inner) => Datum::Bool(value(inner)? == Datum::Nothing),
            Self::Exists(property) => Datum::Bool(!property.of(on).is_null()),
            Self::In(inner, items) => {
                let wanted = value(inner)?;
                let mut answer = Some(false);
                for item in items {
                    match wanted.equals(&value(item)?) {
                        Some(true) => return Ok(Datum::Bool(true)),
                        Some(false) => {}
                        None => answer = None,
                    }
                }
                answer.into()
            }
            Self::Like { text, pattern, escape } => match (value(text)?, value(pattern)?) {
                (Datum::Text(text), Datum::Text(pattern)) => Datum::Bool(is_like(&text, &pattern, *escape)),
                _ => Datum::Nothing,
            },
        })
    }
}

impl Operator {
    fn apply(self, left: &Datum, right: &Datum) -> Result<Datum, SqlError> {
        Ok(match self {
            Self::Equal => left.equals(right).into(),
            Self::NotEqual => left.equals(right).map(|equal| !equal).into(),
            Self::Less => left.order(right).map(Ordering::is_lt).into(),
            Self::LessOrEqual => left.order(right).map(Ordering::is_le).into(),
            Self::Greater => left.order(right).map(Ordering::is_gt).into(),
            Self::GreaterOrEqual => left.order(right).map(Ordering::is_ge).into(),
            Self::And | Self::Or => Datum::Nothing,
            Self::Plus | Self::Minus | Self::Times | Self::Divide | Self::Modulo => {
                self.compute(left, right)?
            }
        })
    }

    fn compute(self, left: &Datum, right: &Datum) -> Result<Datum, SqlError> {
        match (left, right) {
            (Datum::Long(left), Datum::Long(right)) => {
                let number = match self {
                    Self::Plus => left.checked_add(*right),
                    Self::Minus => left.checked_sub(*right),
                    Self::Times => left.checked_mul(*right),
                    Self::Divide => left.checked_div(*right),
                    _ => left.checked_rem(*right),
                };
                number
                    .map(Datum::Long)
                    .ok_or(SqlError::Evaluation("a division by zero, or a number beyond 64 bits"))
            }
            (Datum::Text(left), Datum::Text(right)) if self == Self::Plus => {
                Ok(Datum::Text(format!("{left}{right}")))
            }
            _ => Ok(match (left.number(), right.number()) {
                (Some(left), Some(right)) => Datum::Double(match self {
                    Self::Plus => left + right,
                    Self::Minus => left - right,
                    Self::Times => left * right,
                    Self::Divide => left / right,
                    _ => left % right,
                }),
                _ => Datum::Nothing,
            }),
        }
    }
}

fn and(left: Option<bool>, right: Option<bool>) -> Option<bool> {
    match (left, right) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

fn negative(datum: &Datum) -> Result<Datum, SqlError> {
    Ok(match datum {
        Datum::Long(number) => {
            Datum::Long(number.checked_neg().ok_or(SqlError::Evaluation("a number beyond 64 bits"))?)
        }
        Datum::Double(number) => Datum::Double(-number),
        _ => Datum::Nothing,
    })
}
