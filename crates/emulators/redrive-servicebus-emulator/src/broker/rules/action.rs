//! Actions of a rule, which change its copy of a message.

use super::property::Property;
use super::sql::{Datum, Expression, Parser, SqlError};
use crate::amqp::{Map, Message, Value};

/// `SET name = expression; REMOVE name; …`
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    text: String,
    parameters: Map,
    statements: Vec<Statement>,
}

#[derive(Debug, Clone, PartialEq)]
enum Statement {
    Set(Property, Expression),
    Remove(Property),
}

impl Action {
    /// Reads statements such as `SET sys.Label = 'new'; REMOVE color`.
    ///
    /// # Errors
    /// If the text is no list of such statements, or has more than 1024 characters.
    pub fn new(text: &str) -> Result<Self, SqlError> {
        Self::with_parameters(text, Map::new())
    }

    /// As [`new`](Self::new), with values for the names that begin with `@`.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_parameters(text: &str, parameters: Map) -> Result<Self, SqlError> {
        let mut parser = Parser::new(text)?;
        let mut statements = Vec::new();
        while !parser.is_at_end() {
            statements.push(Statement::read(&mut parser)?);
            if !parser.sign(";") {
                parser.end()?;
            }
        }
        if statements.is_empty() {
            return Err(parser.error("SET or REMOVE"));
        }
        Ok(Self { text: text.to_owned(), parameters, statements })
    }

    /// Returns the statements as written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the values of its parameters.
    #[must_use]
    pub fn parameters(&self) -> &Map {
        &self.parameters
    }

    pub(super) fn apply(&self, message: &mut Message) -> Result<(), SqlError> {
        for statement in &self.statements {
            match statement {
                Statement::Set(property, expression) => {
                    let value = expression.evaluate(message, &self.parameters)?;
                    set(property, message, value);
                }
                Statement::Remove(property) => set(property, message, Datum::Nothing),
            }
        }
        Ok(())
    }
}

impl Statement {
    fn read(parser: &mut Parser) -> Result<Self, SqlError> {
        if parser.keyword("SET") {
            let property = parser.property()?;
            parser.expect_sign("=")?;
            Ok(Self::Set(property, parser.expression()?))
        } else if parser.keyword("REMOVE") {
            Ok(Self::Remove(parser.property()?))
        } else {
            Err(parser.error("SET or REMOVE"))
        }
    }
}

/// Sets a property; a missing value removes it.
fn set(property: &Property, message: &mut Message, datum: Datum) {
    match property {
        Property::User(name) if datum == Datum::Nothing => drop(message.application_properties.remove(name)),
        Property::User(name) => message.application_properties.insert(name, Value::from(datum)),
        Property::System(system) => system.set(
            message,
            match datum {
                Datum::Nothing | Datum::Other(_) => None,
                Datum::Text(text) => Some(text),
                Datum::Bool(truth) => Some(truth.to_string()),
                Datum::Long(number) => Some(number.to_string()),
                Datum::Double(number) => Some(number.to_string()),
            },
        ),
    }
}
