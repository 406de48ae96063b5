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

/// Maximum number of characters of a filter or an action.
const MAX_TEXT: usize = 1024;

/// An expression that cannot be parsed, or not be evaluated for a message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SqlError {
    /// It cannot be parsed.
    #[error("character {at}: {reason}")]
    Syntax {
        /// Position of the character, counted from 1.
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
    /// If the text is no expression, or has more than 1024 characters or 64 levels.
    pub fn new(text: &str) -> Result<Self, SqlError> {
        Self::with_parameters(text, Map::new())
    }

    /// As [`new`](Self::new), with values for the names that begin with `@`.
    ///
    /// # Errors
    /// As [`new`](Self::new). A missing parameter is an error of the evaluation.
    pub fn with_parameters(text: &str, parameters: Map) -> Result<Self, SqlError> {
        let mut parser = Parser::new(text)?;
        let expression = parser.expression()?;
        parser.end()?;
        Ok(Self { text: text.to_owned(), parameters, expression })
    }

    /// Returns the expression as written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the values of its parameters.
    #[must_use]
    pub fn parameters(&self) -> &Map {
        &self.parameters
    }

    pub(super) fn matches(&self, message: &Message) -> Result<bool, SqlError> {
        Ok(self.expression.evaluate(message, &self.parameters)?.truth() == Some(true))
    }
}
