//! An expression as a tree.

use std::fmt;

use super::Datum;
use crate::broker::rules::property::Property;

#[derive(Debug, Clone, PartialEq)]
pub(in crate::broker::rules) enum Expression {
    Literal(Datum),
    Property(Property),
    Parameter(String),
    Not(Box<Expression>),
    Minus(Box<Expression>),
    Both(Operator, Box<Expression>, Box<Expression>),
    IsNull(Box<Expression>),
    Exists(Property),
    In(Box<Expression>, Vec<Expression>),
    Like { text: Box<Expression>, pattern: Box<Expression>, escape: Option<char> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::broker::rules) enum Operator {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Plus,
    Minus,
    Times,
    Divide,
    Modulo,
}

/// Prints a form that parses to the same tree: every part in parentheses.
impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(Datum::Nothing) => f.write_str("NULL"),
            Self::Literal(Datum::Bool(truth)) => f.write_str(if *truth { "TRUE" } else { "FALSE" }),
            Self::Literal(Datum::Long(number)) => write!(f, "{number}"),
            Self::Literal(Datum::Double(number)) => write!(f, "{number:e}"),
            Self::Literal(Datum::Text(text)) => write!(f, "'{}'", text.replace('\'', "''")),
            Self::Literal(Datum::Other(_)) => f.write_str("NULL"),
            Self::Property(property) => write!(f, "{property}"),
            Self::Parameter(name) => write!(f, "@{name}"),
            Self::Not(inner) => write!(f, "(NOT {inner})"),
            Self::Minus(inner) => write!(f, "(- {inner})"),
            Self::Both(operator, left, right) => write!(f, "({left} {operator} {right})"),
            Self::IsNull(inner) => write!(f, "({inner} IS NULL)"),
            Self::Exists(property) => write!(f, "EXISTS({property})"),
            Self::In(inner, items) => {
                write!(f, "({inner} IN (")?;
                for (nth, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if nth == 0 { "" } else { ", " })?;
                }
                f.write_str("))")
            }
            Self::Like { text, pattern, escape: None } => write!(f, "({text} LIKE {pattern})"),
            Self::Like { text, pattern, escape: Some(escape) } => {
                write!(f, "({text} LIKE {pattern} ESCAPE '{}')", escape.to_string().replace('\'', "''"))
            }
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Or => "OR",
            Self::And => "AND",
            Self::Equal => "=",
            Self::NotEqual => "<>",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::Plus => "+",
            Self::Minus => "-",
            Self::Times => "*",
            Self::Divide => "/",
            Self::Modulo => "%",
        })
    }
}
