//! Parses tokens into a tree. Total: for any text it returns a tree or an error, and its depth is bounded.

use super::lexer::{Token, tokens};
use super::{Datum, Expression, MAX_TEXT, SqlError};
use crate::broker::rules::property::{Property, System};
use crate::broker::rules::sql::expression::Operator;

const MAX_DEPTH: usize = 64;

pub(in crate::broker::rules) struct Parser {
    tokens: Vec<(usize, Token)>,
    at: usize,
    depth: usize,
}

impl Parser {
    pub(in crate::broker::rules) fn new(text: &str) -> Result<Self, SqlError> {
        if text.chars().count() > MAX_TEXT {
            return Err(SqlError::Syntax {
                at: MAX_TEXT + 1,
                reason: format!("at most {MAX_TEXT} characters"),
            });
        }
        Ok(Self { tokens: tokens(text)?, at: 0, depth: 0 })
    }

    pub(in crate::broker::rules) fn expression(&mut self) -> Result<Expression, SqlError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error("at most 64 levels of parentheses, NOT and minus signs"));
        }
        let mut left = self.conjunction()?;
        while self.keyword("OR") {
            left = both(Operator::Or, left, self.conjunction()?);
        }
        self.depth -= 1;
        Ok(left)
    }

    fn conjunction(&mut self) -> Result<Expression, SqlError> {
        let mut left = self.negation()?;
        while self.keyword("AND") {
            left = both(Operator::And, left, self.negation()?);
        }
        Ok(left)
    }

    fn negation(&mut self) -> Result<Expression, SqlError> {
        if !self.keyword("NOT") {
            return self.predicate();
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error("at most 64 levels of parentheses, NOT and minus signs"));
        }
        let inner = self.negation()?;
        self.depth -= 1;
        Ok(Expression::Not(Box::new(inner)))
    }

    fn predicate(&mut self) -> Result<Expression, SqlError> {
        let left = self.sum()?;
        for (sign, operator) in [
            ("=", Operator::Equal),
            ("<>", Operator::NotEqual),
            ("!=", Operator::NotEqual),
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ] {
            if self.sign(sign) {
                return Ok(both(operator, left, self.sum()?));
            }
        }
        if self.keyword("IS") {
            let not = self.keyword("NOT");
            self.expect_keyword("NULL")?;
            return Ok(negated(not, Expression::IsNull(Box::new(left))));
        }
        let not = self.keyword("NOT");
        if self.keyword("IN") {
            return Ok(negated(not, Expression::In(Box::new(left), self.items()?)));
        }
        if self.keyword("LIKE") {
            let (pattern, escape) = (self.sum()?, self.escape()?);
            let like = Expression::Like { text: Box::new(left), pattern: Box::new(pattern), escape };
            return Ok(negated(not, like));
        }
        if not { Err(self.error("IN or LIKE")) } else { Ok(left) }
    }

    fn items(&mut self) -> Result<Vec<Expression>, SqlError> {
        self.expect_sign("(")?;
        let mut items = vec![self.sum()?];
        while self.sign(",") {
            items.push(self.sum()?);
        }
        self.expect_sign(")")?;
        Ok(items)
    }

    fn escape(&mut self) -> Result<Option<char>, SqlError> {
        if !self.keyword("ESCAPE") {
            return Ok(None);
        }
        let Token::Text(text) = self.peek().clone() else {
            return Err(self.error("one character in quotes"));
        };
        let mut characters = text.chars();
        match (characters.next(), characters.next()) {
            (Some(character), None) => {
                self.at += 1;
                Ok(Some(character))
            }
            _ => Err(self.error("one character in quotes")),
        }
    }

    fn sum(&mut self) -> Result<Expression, SqlError> {
        let mut left = self.product()?;
        loop {
            let operator = match self.any_sign(&["+", "-"]) {
                Some("+") => Operator::Plus,
                Some(_) => Operator::Minus,
                None => return Ok(left),
            };
            left = both(operator, left, self.product()?);
        }
    }

    fn product(&mut self) -> Result<Expression, SqlError> {
        let mut left = self.signed()?;
        loop {
            let operator = match self.any_sign(&["*", "/", "%"]) {
                Some("*") => Operator::Times,
                Some("/") => Operator::Divide,
                Some(_) => Operator::Modulo,
                None => return Ok(left),
            };
            left = both(operator, left, self.signed()?);
        }
    }

    fn signed(&mut self) -> Result<Expression, SqlError> {
        let minus = match self.any_sign(&["+", "-"]) {
            Some(sign) => sign == "-",
            None => return self.primary(),
        };
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error("at most 64 levels of parentheses, NOT and minus signs"));
        }
        let inner = self.signed()?;
        self.depth -= 1;
        Ok(match inner {
            Expression::Literal(Datum::Long(number)) if minus => Expression::Literal(Datum::Long(-number)),
            Expression::Literal(Datum::Double(number)) if minus => {
                Expression::Literal(Datum::Double(-number))
            }
            inner if minus => Expression::Minus(Box::new(inner)),
            inner => inner,
        })
    }

    fn primary(&mut self) -> Result<Expression, SqlError> {
        let token = self.peek().clone();
        let literal = match &token {
            Token::Sign("(") => {
                self.at += 1;
                let inner = self.expression()?;
                self.expect_sign(")")?;
                return Ok(inner);
            }
            Token::Parameter(name) => {
                self.at += 1;
                return Ok(Expression::Parameter(name.clone()));
            }
            Token::Word(word) if is("EXISTS", word) => {
                self.at += 1;
                self.expect_sign("(")?;
                let property = self.property()?;
                self.expect_sign(")")?;
                return Ok(Expression::Exists(property));
            }
            Token::Word(word) if is("TRUE", word) => Datum::Bool(true),
            Token::Word(word) if is("FALSE", word) => Datum::Bool(false),
            Token::Word(word) if is("NULL", word) => Datum::Nothing,
            Token::Text(text) => Datum::Text(text.clone()),
            Token::Long(number) => Datum::Long(*number),
            Token::Double(number) => Datum::Double(*number),
            _ => return self.property().map(Expression::Property),
        };
        self.at += 1;
        Ok(Expression::Literal(literal))
    }

    /// Parses `name`, `user.name`, `sys.Name`, with brackets or double quotes if the name is no word, or `property('name')`.
    pub(in crate::broker::rules) fn property(&mut self) -> Result<Property, SqlError> {
        let first = self.name()?;
        let (scope, quoted) = first;
        if !quoted && (is("property", &scope) || is("p", &scope)) && *self.peek() == Token::Sign("(") {
            self.at += 1;
            let Token::Text(name) = self.peek().clone() else { return Err(self.error("a name in quotes")) };
            self.at += 1;
            self.expect_sign(")")?;
            return Ok(Property::User(name));
        }
        if quoted || !self.sign(".") {
            return Ok(Property::User(scope));
        }
        if is("user", &scope) {
            return Ok(Property::User(self.name()?.0));
        }
        if !is("sys", &scope) {
            return Err(self.error("the scope `user` or `sys` before the point"));
        }
        let (name, _) = self.name()?;
        System::named(&name).map(Property::System).ok_or_else(|| {
            self.error(
                "ContentType, CorrelationId, Label, MessageId, PartitionKey, ReplyTo, ReplyToSessionId, SessionId, \
                 Subject or To after `sys.`",
            )
        })
    }

    /// Parses a name; returns whether it is quoted.
    fn name(&mut self) -> Result<(String, bool), SqlError> {
        let name = match self.peek() {
            Token::Word(word) if !KEYWORDS.iter().any(|keyword| is(keyword, word)) => (word.clone(), false),
            Token::Name(name) => (name.clone(), true),
            _ => return Err(self.error("a value or the name of a property")),
        };
        self.at += 1;
        Ok(name)
    }

    pub(in crate::broker::rules) fn keyword(&mut self, keyword: &str) -> bool {
        let found = matches!(self.peek(), Token::Word(word) if is(keyword, word));
        self.at += usize::from(found);
        found
    }

    pub(in crate::broker::rules) fn sign(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Token::Sign(found) if *found == sign);
        self.at += usize::from(found);
        found
    }

    pub(in crate::broker::rules) fn expect_sign(&mut self, sign: &'static str) -> Result<(), SqlError> {
        if self.sign(sign) { Ok(()) } else { Err(self.error(sign)) }
    }

    pub(in crate::broker::rules) fn is_at_end(&self) -> bool {
        *self.peek() == Token::End
    }

    pub(in crate::broker::rules) fn end(&self) -> Result<(), SqlError> {
        if self.is_at_end() { Ok(()) } else { Err(self.error("the end, or an operator")) }
    }

    pub(in crate::broker::rules) fn error(&self, expected: &str) -> SqlError {
        let at = self.tokens.get(self.at).map_or(0, |(at, _)| *at);
        SqlError::Syntax { at, reason: format!("expected {expected}") }
    }

    fn any_sign(&mut self, signs: &[&'static str]) -> Option<&'static str> {
        signs.iter().copied().find(|sign| self.sign(sign))
    }

    fn expect_keyword(&mut self, keyword: &str) -> Result<(), SqlError> {
        if self.keyword(keyword) { Ok(()) } else { Err(self.error(keyword)) }
    }

    fn peek(&self) -> &Token {
        self.tokens.get(self.at).map_or(&Token::End, |(_, token)| token)
    }
}

const KEYWORDS: [&str; 11] =
    ["AND", "OR", "NOT", "IS", "NULL", "IN", "LIKE", "ESCAPE", "EXISTS", "TRUE", "FALSE"];

fn is(keyword: &str, word: &str) -> bool {
    word.eq_ignore_ascii_case(keyword)
}

fn both(operator: Operator, left: Expression, right: Expression) -> Expression {
    Expression::Both(operator, Box::new(left), Box::new(right))
}

fn negated(not: bool, expression: Expression) -> Expression {
    if not { Expression::Not(Box::new(expression)) } else { expression }
}
