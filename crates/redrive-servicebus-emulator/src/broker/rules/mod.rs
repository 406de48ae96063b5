//! Which messages of a topic a subscription takes, and what it changes in them.

use std::sync::Arc;

use crate::amqp::Message;

/// One rule of a subscription.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Rule {
    /// Compared without case.
    pub name: String,
    /// What it takes.
    pub filter: Filter,
}

/// What a rule takes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Filter {
    /// Everything.
    True,
    /// Nothing.
    False,
}

impl Rule {
    /// The rule `$Default`, which takes everything.
    #[must_use]
    pub fn all() -> Self {
        Self { name: "$Default".into(), filter: Filter::True }
    }
}

/// What a subscription takes of one message.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Copies {
    Of(Vec<Arc<Message>>),
    /// A rule could not be evaluated.
    Failed(String),
}

pub(super) fn copies(rules: &[Rule], message: &Arc<Message>) -> Copies {
    let taken = rules.iter().any(|rule| rule.filter == Filter::True);
    Copies::Of(if taken { vec![Arc::clone(message)] } else { Vec::new() })
}
