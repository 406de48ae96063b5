//! Creates an empty broker from the description of a namespace.

use std::collections::HashMap;

use thiserror::Error;

use super::effects::Effects;
use super::entity::Entity;
use super::limits;
use super::settings::{Namespace, Queue, Settings};
use super::tokens::Tokens;
use super::transactions::Transactions;
use super::{Broker, BrokerError, EntityId, EntityKind, Timestamp};

/// An invalid namespace: two entities with one name, a setting beyond its limit, or a wrong forwarding target.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{path}': {reason}")]
pub struct SetupError {
    /// The entity.
    pub path: String,
    /// What is wrong, and what to do.
    pub reason: String,
}

impl Broker {
    /// Creates an empty broker. `seed` determines the lock tokens: pass a random one if a client may still hold tokens of an
    /// earlier run.
    ///
    /// # Errors
    /// If two entities have the same name, a name is empty, Azure refuses a setting, or an entity forwards to one that does not
    /// exist or cannot accept its messages.
    pub fn new(namespace: &Namespace, seed: u64) -> Result<Self, SetupError> {
        let mut broker = Self {
            entities: Vec::new(),
            addresses: HashMap::new(),
            holders: HashMap::new(),
            transactions: Transactions::default(),
            tokens: Tokens::new(seed),
            effects: Effects::default(),
            now: Timestamp::EPOCH,
        };
        for queue in &namespace.queues {
            let id = broker.add(queue.name.clone(), EntityKind::Queue, None, &queue.settings)?;
            broker.add_dead_letters(id)?;
        }
        for topic in &namespace.topics {
            let topic_id = broker.add(topic.name.clone(), EntityKind::Topic, None, &topic.settings)?;
            for subscription in &topic.subscriptions {
                let path = format!("{}/Subscriptions/{}", topic.name, subscription.name);
                let settings = Settings { duplicate_detection: None, ..subscription.settings.clone() };
                let id = broker.add(path, EntityKind::Subscription, Some(topic_id), &settings)?;
                broker.entities[id.index()].rules.clone_from(&subscription.rules);
                broker.entities[topic_id.index()].subscriptions.push(id);
                broker.add_dead_letters(id)?;
            }
        }
        broker.connect()?;
        Ok(broker)
    }

    /// Deletes a queue with all of its messages. Messages in flight can no longer be found.
    ///
    /// # Errors
    /// If there is no such queue.
    pub fn delete_queue(&mut self, name: &str) -> Result<(), BrokerError> {
        let deleted = self.find(name)?;
        let below = format!("{}/", self.path(deleted).to_lowercase());
        self.addresses.retain(|path, id| *id != deleted && !path.starts_with(&below));
        Ok(())
    }

    /// Creates a queue beside the existing ones.
    ///
    /// # Errors
    /// The same as [`new`](Self::new).
    pub fn create_queue(&mut self, queue: &Queue) -> Result<(), SetupError> {
        let id = self.add(queue.name.clone(), EntityKind::Queue, None, &queue.settings)?;
        self.add_dead_letters(id)?;
        self.connect_one(id)
    }

    fn add(
        &mut self,
        path: String,
        kind: EntityKind,
        account: Option<EntityId>,
        settings: &Settings,
    ) -> Result<EntityId, SetupError> {
        let id = EntityId(u32::try_from(self.entities.len()).unwrap_or(u32::MAX));
        if path.split('/').any(str::is_empty) {
            return Err(SetupError { path, reason: "a name must not be empty".into() });
        }
        limits::check(settings).map_err(|reason| SetupError { path: path.clone(), reason })?;
        if self.addresses.insert(path.to_lowercase(), id).is_some() {
            return Err(SetupError {
                path,
                reason: "there are two of this name; names are compared without case".into(),
            });
        }
        self.entities.push(Entity::new(id, path, kind, account.unwrap_or(id), settings.clone()));
        self.effects.used.push(0);
        Ok(id)
    }

    fn add_dead_letters(&mut self, of: EntityId) -> Result<(), SetupError> {
        let entity = self.entity(of);
        let (path, account) = (entity.path(), entity.account);
        let settings = Settings {
            requires_session: false,
            default_time_to_live: None,
            duplicate_detection: None,
            forward_to: None,
            forward_dead_lettered_messages_to: None,
            ..entity.settings.clone()
        };
        let dead_letters = self.add(
            format!("{path}/$DeadLetterQueue"),
            EntityKind::DeadLetterQueue,
            Some(account),
            &settings,
        )?;
        let transfer = self.add(
            format!("{path}/$Transfer/$DeadLetterQueue"),
            EntityKind::TransferDeadLetterQueue,
            Some(account),
            &settings,
        )?;
        let entity = &mut self.entities[of.index()];
        entity.dead_letters = Some(dead_letters);
        entity.transfer_dead_letters = Some(transfer);
        Ok(())
    }

    /// Resolves forwarding targets after all entities exist, so that their order does not matter.
    fn connect(&mut self) -> Result<(), SetupError> {
        for at in 0..self.entities.len() {
            self.connect_one(self.entities[at].id)?;
        }
        Ok(())
    }

    fn connect_one(&mut self, from: EntityId) -> Result<(), SetupError> {
        let settings = self.entity(from).settings.clone();
        let forward_to = self.target(from, settings.forward_to.as_deref(), "ForwardTo")?;
        let forward_dead_letters_to = self.target(
            from,
            settings.forward_dead_lettered_messages_to.as_deref(),
            "ForwardDeadLetteredMessagesTo",
        )?;
        if forward_to.is_some() && self.entity(from).kind == EntityKind::Topic {
            return Err(self.wrong(from, "a topic cannot forward its messages; its subscriptions can"));
        }
        if forward_to.is_some() && settings.requires_session {
            return Err(self.wrong(from, "ForwardTo cannot be combined with RequiresSession"));
        }
        let entity = &mut self.entities[from.index()];
        entity.forward_to = forward_to;
        entity.forward_dead_letters_to = forward_dead_letters_to;
        Ok(())
    }

    fn target(&self, from: EntityId, to: Option<&str>, key: &str) -> Result<Option<EntityId>, SetupError> {
        let Some(to) = to.filter(|to| !to.is_empty()) else { return Ok(None) };
        let Ok(target) = self.find(to) else {
            return Err(self.wrong(from, &format!("{key} names '{to}', and there is no such queue or topic")));
        };
        if target == from {
            return Err(self.wrong(from, &format!("{key} names the entity itself")));
        }
        if self.check_sender(target).is_err() {
            return Err(
                self.wrong(from, &format!("{key} names '{to}', which is neither a queue nor a topic"))
            );
        }
        Ok(Some(target))
    }

    fn wrong(&self, entity: EntityId, reason: &str) -> SetupError {
        SetupError { path: self.path(entity).to_owned(), reason: reason.to_owned() }
    }
}
