//! Expressions of SQL filters, in the commonly used part of the language: comparison, arithmetic, `AND`, `OR`, `NOT`, `IN`,
//! `LIKE`, `IS NULL`, `EXISTS`, on user and `sys.` properties, with parameters.

mod datum;
mod evaluate;
mod expression;
mod lexer;
mod like;
mod parser;

#[cfg(test)]
mod tests;

use thiserror::Error;

pub(super) use datum::Datum;
pub(super) use expression::Expression;
pub(super) use parser::Parser;

use crate::amqp::{Map, Message};

/// A filter or an action has at most this many characters.
const MAX_TEXT: usize = 1024;

/// An expression that cannot be read, or not be evaluated on a message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SqlError {
    /// It is no expression.
    #[error("character {at}: {reason}")]
    Syntax {
        /// Which character, counted from 1.
        at: usize,
        /// What was expected there.
        reason: String,
    },
    /// It has no value for this message.
    #[error("the expression cannot be evaluated: {0}")]
    Evaluation(&'static str),
}

/// An SQL filter.
#[derive(Debug, Clone, PartialEq)]
pub struct SqlFilter {
    text: String,
    parameters: Map,
    expression: Expression,
}

impl SqlFilter {
    /// Reads an expression such as `color = 'red' AND sys.Label LIKE 'a%'`.
    ///
    /// # Errors
    /// What is no expression, or has more than 1024 characters or 64 levels.
    pub fn new(text: &str) -> Result<Self, SqlError> {
        Self::with_parameters(text, Map::new())
    }

    /// As [`new`](Self::new), with values for the names in it that begin with `@`.
    ///
    /// # Errors
    /// As [`new`](Self::new); one without its parameter is refused when it is evaluated.
    pub fn with_parameters(text: &str, parameters: Map) -> Result<Self, SqlError> {
        let mut parser = Parser::new(text)?;
        let expression = parser.expression()?;
        parser.end()?;
        Ok(Self { text: text.to_owned(), parameters, expression })
    }

    /// The expression as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The values of its parameters.
    #[must_use]
    pub fn parameters(&self) -> &Map {
        &self.parameters
    }

    pub(super) fn matches(&self, message: &Message) -> Result<bool, SqlError> {
        Ok(self.expression.evaluate(message, &self.parameters)?.truth() == Some(true))
    }
}
