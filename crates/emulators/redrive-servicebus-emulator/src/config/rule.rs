//! Rules of a subscription in the file.

use serde::Deserialize;
use serde_json::Value as Json;

use super::ConfigError;
use crate::amqp::{Map, Value};
use crate::broker::rules::{Action, Correlation, Filter, Rule, SqlError, SqlFilter};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct RuleEntry {
    name: String,
    properties: RuleProperties,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RuleProperties {
    filter_type: FilterType,
    #[serde(default)]
    correlation_filter: Option<CorrelationEntry>,
    #[serde(default)]
    sql_filter: Option<Sql>,
    #[serde(default)]
    action: Option<Sql>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
enum FilterType {
    Correlation,
    Sql,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Sql {
    #[serde(default)]
    sql_expression: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct CorrelationEntry {
    content_type: Option<String>,
    correlation_id: Option<String>,
    label: Option<String>,
    message_id: Option<String>,
    reply_to: Option<String>,
    reply_to_session_id: Option<String>,
    session_id: Option<String>,
    to: Option<String>,
    properties: serde_json::Map<String, Json>,
}

impl RuleEntry {
    pub(super) fn rule(self, path: &str) -> Result<Rule, ConfigError> {
        let wrong =
            |key: &str, reason: String| ConfigError { path: format!("{path}.Properties.{key}"), reason };
        let syntax = |key: &'static str| move |error: SqlError| wrong(key, error.to_string());
        let properties = self.properties;
        let filter = match properties.filter_type {
            FilterType::Correlation => match properties.correlation_filter {
                Some(entry) => {
                    Filter::Correlation(entry.correlation().map_err(|(key, reason)| wrong(&key, reason))?)
                }
                None => {
                    return Err(wrong(
                        "CorrelationFilter",
                        "it is missing, for FilterType Correlation".into(),
                    ));
                }
            },
            FilterType::Sql => match properties.sql_filter.and_then(|sql| sql.sql_expression) {
                Some(text) => Filter::Sql(SqlFilter::new(&text).map_err(syntax("SqlFilter.SqlExpression"))?),
                None => {
                    return Err(wrong("SqlFilter.SqlExpression", "it is missing, for FilterType Sql".into()));
                }
            },
        };
        let action =
            properties.action.and_then(|action| action.sql_expression).filter(|text| !text.trim().is_empty());
        let rule = Rule::new(self.name, filter);
        match action {
            None => Ok(rule),
            Some(text) => Ok(rule.with_action(Action::new(&text).map_err(syntax("Action.SqlExpression"))?)),
        }
    }
}

impl CorrelationEntry {
    fn correlation(self) -> Result<Correlation, (String, String)> {
        let mut properties = Map::new();
        for (key, value) in &self.properties {
            let Some(value) = property(value) else {
                let reason = "a property is a text, a number or true or false".to_owned();
                return Err((format!("CorrelationFilter.Properties.{key}"), reason));
            };
            properties.insert(key, value);
        }
        Ok(Correlation {
            content_type: self.content_type,
            correlation_id: self.correlation_id,
            subject: self.label,
            message_id: self.message_id,
            reply_to: self.reply_to,
            reply_to_session_id: self.reply_to_session_id,
            session_id: self.session_id,
            to: self.to,
            properties,
        })
    }
}

fn property(json: &Json) -> Option<Value> {
    Some(match json {
        Json::String(text) => text.as_str().into(),
        Json::Bool(truth) => (*truth).into(),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => whole.into(),
            None => number.as_f64()?.into(),
        },
        _ => return None,
    })
}
