//! Rules: which messages of a topic a subscription receives, and how they are changed.

mod action;
mod correlation;
mod described;
mod property;
mod sql;

#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use action::Action;
pub use correlation::Correlation;
pub use described::RuleDecodeError;
pub use sql::{SqlError, SqlFilter};

use super::content::Incoming;
use crate::amqp::Message;

/// One rule of a subscription.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Rule {
    /// Name, compared without case.
    pub name: String,
    /// Which messages match.
    pub filter: Filter,
    /// How matching messages are changed.
    pub action: Option<Action>,
}

/// Which messages a rule matches.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Filter {
    /// Everything.
    True,
    /// Nothing.
    False,
    /// Messages whose properties equal the given ones.
    Correlation(Correlation),
    /// Messages for which an expression is true.
    Sql(SqlFilter),
}

impl Rule {
    /// Creates a rule.
    #[must_use]
    pub fn new(name: impl Into<String>, filter: Filter) -> Self {
        Self { name: name.into(), filter, action: None }
    }

    /// Creates the rule `$Default`, which matches everything.
    #[must_use]
    pub fn all() -> Self {
        Self::new("$Default", Filter::True)
    }

    /// Adds a change of matching messages.
    #[must_use]
    pub fn with_action(self, action: Action) -> Self {
        Self { action: Some(action), ..self }
    }
}

impl Filter {
    fn matches(&self, message: &Message) -> Result<bool, SqlError> {
        match self {
            Self::True => Ok(true),
            Self::False => Ok(false),
            Self::Correlation(correlation) => Ok(correlation.matches(message)),
            Self::Sql(sql) => sql.matches(message),
        }
    }
}

/// The copies of one message for a subscription.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Copies {
    Of(Vec<Arc<Message>>),
    /// A rule could not be evaluated.
    Failed(String),
}

/// Returns one copy for all rules without an action together, and one for each rule with an action.
pub(super) fn copies(rules: &[Rule], message: &Arc<Message>) -> Copies {
    match try_copies(rules, message) {
        Ok(copies) => Copies::Of(copies),
        Err(error) => Copies::Failed(error.to_string()),
    }
}

fn try_copies(rules: &[Rule], message: &Arc<Message>) -> Result<Vec<Arc<Message>>, SqlError> {
    let mut copies = Vec::new();
    let mut taken_as_it_is = false;
    for rule in rules {
        if (taken_as_it_is && rule.action.is_none()) || !rule.filter.matches(message)? {
            continue;
        }
        match &rule.action {
            None => {
                taken_as_it_is = true;
                copies.push(Arc::clone(message));
            }
            Some(action) => {
                let mut copy = Message::clone(message);
                action.apply(&mut copy)?;
                copy.application_properties.insert("RuleName", rule.name.as_str());
                copies.push(Arc::new(copy));
            }
        }
    }
    Ok(copies)
}

/// Returns the size of a copy, which an action may have changed.
pub(super) fn size_of_copy(original: &Arc<Message>, size: u64, copy: &Arc<Message>) -> u64 {
    if Arc::ptr_eq(original, copy) { size } else { Incoming::from(Message::clone(copy)).size }
}

impl Rule {
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.name.to_lowercase() == name.to_lowercase()
    }
}
