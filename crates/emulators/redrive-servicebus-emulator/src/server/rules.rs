//! Requests of a client about the rules of a subscription.

use super::management::{Call, Refusal, missing};
use super::requests::Answer;
use crate::amqp::state::AmqpError;
use crate::amqp::{Map, Value};
use crate::broker::rules::Rule;

impl Call<'_> {
    pub(super) fn add_rule(&self) -> Result<Answer, Refusal> {
        let name = self.rule_name()?;
        let description = self.body.get("rule-description").and_then(Value::as_map);
        let description = description.ok_or_else(|| missing("rule-description"))?;
        let rule = Rule::from_request(name, description)
            .map_err(|error| AmqpError::new("com.microsoft:argument-error", error.to_string()))?;
        self.context.shared.with(|broker, now| broker.add_rule(self.entity, rule, now))?;
        Ok(Answer::ok(Map::new()))
    }

    pub(super) fn remove_rule(&self) -> Result<Answer, Refusal> {
        let name = self.rule_name()?;
        self.context.shared.with(|broker, now| broker.remove_rule(self.entity, name, now))?;
        Ok(Answer::ok(Map::new()))
    }

    pub(super) fn enumerate_rules(&self) -> Result<Answer, Refusal> {
        let (skip, top) = (self.count("skip"), self.count("top"));
        let rules = self.context.shared.with(|broker, _| {
            let rules = broker.rules(self.entity)?.iter().skip(skip).take(top);
            let entry = |rule: &Rule| Value::Map(Map::new().with("rule-description", rule.to_description()));
            Ok::<_, Refusal>(rules.map(entry).collect::<Vec<_>>())
        })?;
        if rules.is_empty() {
            return Ok(Answer::nothing());
        }
        Ok(Answer::ok(Map::new().with("rules", Value::List(rules))))
    }

    fn rule_name(&self) -> Result<&str, AmqpError> {
        self.text("rule-name").ok_or_else(|| missing("rule-name"))
    }
}
