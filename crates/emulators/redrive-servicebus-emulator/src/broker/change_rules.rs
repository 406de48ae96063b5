//! Clients read and change the rules of a subscription.

use super::changes::Change;
use super::rules::Rule;
use super::{Broker, BrokerError, EntityId, EntityKind, Timestamp};

/// Maximum number of characters of a rule's name.
const MAX_NAME: usize = 50;
const MAX_RULES: usize = 2000;

impl Broker {
    /// Returns the rules of a subscription.
    ///
    /// # Errors
    /// [`BrokerError::NotAllowed`] if the entity is no subscription.
    pub fn rules(&self, of: EntityId) -> Result<&[Rule], BrokerError> {
        let entity = self.entity(of);
        match entity.kind {
            EntityKind::Subscription => Ok(&entity.rules),
            _ => Err(entity.not_allowed("Only subscriptions have rules.")),
        }
    }

    /// Adds a rule.
    ///
    /// # Errors
    /// [`BrokerError::RuleExists`]; an empty or too long name; more than 2000 rules; not a subscription.
    pub fn add_rule(&mut self, of: EntityId, rule: Rule, now: Timestamp) -> Result<(), BrokerError> {
        self.advance(now);
        let rules = self.rules(of)?;
        let entity = self.entity(of);
        if rules.iter().any(|other| other.is_named(&rule.name)) {
            return Err(BrokerError::RuleExists { path: entity.path(), rule: rule.name });
        }
        if rule.name.is_empty() || rule.name.chars().count() > MAX_NAME {
            return Err(entity.argument("The name of a rule has 1 to 50 characters."));
        }
        if rules.len() >= MAX_RULES {
            return Err(BrokerError::TooMany { reason: "A subscription has at most 2000 rules." });
        }
        self.entities[of.index()].rules.push(rule);
        self.note_rules(of);
        Ok(())
    }

    /// Removes a rule.
    ///
    /// # Errors
    /// [`BrokerError::RuleNotFound`]; not a subscription.
    pub fn remove_rule(&mut self, of: EntityId, name: &str, now: Timestamp) -> Result<(), BrokerError> {
        self.advance(now);
        let Some(at) = self.rules(of)?.iter().position(|rule| rule.is_named(name)) else {
            return Err(BrokerError::RuleNotFound { path: self.path(of).to_owned(), rule: name.to_owned() });
        };
        self.entities[of.index()].rules.remove(at);
        self.note_rules(of);
        Ok(())
    }

    fn note_rules(&mut self, of: EntityId) {
        let (entity, effects) = self.parts(of);
        effects.note(|| Change::Rules { entity: of, rules: entity.rules.clone() });
    }
}
