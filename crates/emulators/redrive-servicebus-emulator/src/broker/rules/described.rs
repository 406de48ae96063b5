//! Rules as AMQP values: as clients request them (`add-rule`), and as the broker lists them (`enumerate-rules`).

use thiserror::Error;

use super::{Action, Correlation, Filter, Rule, SqlError, SqlFilter};
use crate::amqp::{Map, Value};

const RULE_DESCRIPTION: u64 = 0x137_0000_0004;
const EMPTY_ACTION: u64 = 0x137_0000_0005;
const SQL_ACTION: u64 = 0x137_0000_0006;
const SQL_FILTER: u64 = 0x13_7000_0006;
const TRUE_FILTER: u64 = 0x13_7000_0007;
const FALSE_FILTER: u64 = 0x13_7000_0008;
const CORRELATION_FILTER: u64 = 0x13_7000_0009;

/// Why a description is no rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RuleDecodeError {
    /// It contains no filter.
    #[error("a rule needs a sql-filter, a correlation-filter, a true-filter or a false-filter")]
    NoFilter,
    /// Its filter cannot be parsed.
    #[error("the filter '{text}' cannot be read: {error}")]
    Filter {
        /// The filter.
        text: String,
        /// Where parsing failed.
        error: SqlError,
    },
    /// Its action cannot be parsed.
    #[error("the action '{text}' cannot be read: {error}")]
    Action {
        /// The action.
        text: String,
        /// Where parsing failed.
        error: SqlError,
    },
}

impl Rule {
    /// Reads the `rule-description` of a request.
    ///
    /// # Errors
    /// If the description has no filter, or its filter or action cannot be parsed.
    pub fn from_request(name: &str, description: &Map) -> Result<Self, RuleDecodeError> {
        let filter = if let Some(sql) = description.get("sql-filter").and_then(Value::as_map) {
            let text = expression(sql);
            let filter = SqlFilter::with_parameters(&text, parameters(sql));
            Filter::Sql(filter.map_err(|error| RuleDecodeError::Filter { text, error })?)
        } else if let Some(correlation) = description.get("correlation-filter").and_then(Value::as_map) {
            Filter::Correlation(Correlation::from_map(correlation))
        } else if description.get("true-filter").is_some() {
            Filter::True
        } else if description.get("false-filter").is_some() {
            Filter::False
        } else {
            return Err(RuleDecodeError::NoFilter);
        };
        let action = description.get("sql-rule-action").and_then(Value::as_map);
        let action = action.map(|action| (expression(action), parameters(action)));
        let action = action.filter(|(text, _)| !text.trim().is_empty()).map(|(text, parameters)| {
            Action::with_parameters(&text, parameters)
                .map_err(|error| RuleDecodeError::Action { text, error })
        });
        Ok(Self { name: name.to_owned(), filter, action: action.transpose()? })
    }

    /// Returns the description that [`from_request`](Self::from_request) reads.
    #[must_use]
    pub fn to_request(&self) -> Map {
        let filter = match &self.filter {
            Filter::True => Map::new().with("true-filter", Map::new()),
            Filter::False => Map::new().with("false-filter", Map::new()),
            Filter::Sql(sql) => Map::new().with("sql-filter", sql_map(sql.text(), sql.parameters())),
            Filter::Correlation(correlation) => Map::new().with("correlation-filter", correlation.to_map()),
        };
        match &self.action {
            None => filter,
            Some(action) => filter.with("sql-rule-action", sql_map(action.text(), action.parameters())),
        }
    }

    /// Returns the description that clients receive.
    #[must_use]
    pub fn to_description(&self) -> Value {
        let filter = match &self.filter {
            Filter::True => described(TRUE_FILTER, Vec::new()),
            Filter::False => described(FALSE_FILTER, Vec::new()),
            Filter::Sql(sql) => described(SQL_FILTER, vec![sql.text().into(), Value::Int(20)]),
            Filter::Correlation(correlation) => described(CORRELATION_FILTER, correlation.to_list()),
        };
        let action = match &self.action {
            None => described(EMPTY_ACTION, Vec::new()),
            Some(action) => described(SQL_ACTION, vec![action.text().into(), Value::Int(20)]),
        };
        described(RULE_DESCRIPTION, vec![filter, action, self.name.as_str().into(), Value::Timestamp(0)])
    }
}

impl Correlation {
    fn from_map(map: &Map) -> Self {
        let text = |key: &str| map.get(key).and_then(Value::as_text).map(str::to_owned);
        Self {
            correlation_id: text("correlation-id"),
            message_id: text("message-id"),
            to: text("to"),
            reply_to: text("reply-to"),
            subject: text("label"),
            session_id: text("session-id"),
            reply_to_session_id: text("reply-to-session-id"),
            content_type: text("content-type"),
            properties: map.get("properties").and_then(Value::as_map).cloned().unwrap_or_default(),
        }
    }

    fn to_map(&self) -> Map {
        let keys = [
            "correlation-id",
            "message-id",
            "to",
            "reply-to",
            "label",
            "session-id",
            "reply-to-session-id",
            "content-type",
            "properties",
        ];
        keys.into_iter().zip(self.to_list()).fold(Map::new(), |map, (key, value)| map.with(key, value))
    }

    fn to_list(&self) -> Vec<Value> {
        vec![
            self.correlation_id.clone().into(),
            self.message_id.clone().into(),
            self.to.clone().into(),
            self.reply_to.clone().into(),
            self.subject.clone().into(),
            self.session_id.clone().into(),
            self.reply_to_session_id.clone().into(),
            self.content_type.clone().into(),
            self.properties.clone().into(),
        ]
    }
}

fn expression(sql: &Map) -> String {
    sql.get("expression").and_then(Value::as_text).unwrap_or_default().to_owned()
}

fn parameters(sql: &Map) -> Map {
    sql.get("parameters").and_then(Value::as_map).cloned().unwrap_or_default()
}

fn sql_map(text: &str, parameters: &Map) -> Map {
    let map = Map::new().with("expression", text);
    if parameters.is_empty() { map } else { map.with("parameters", parameters.clone()) }
}

fn described(descriptor: u64, fields: Vec<Value>) -> Value {
    Value::described(Value::Ulong(descriptor), Value::List(fields))
}
