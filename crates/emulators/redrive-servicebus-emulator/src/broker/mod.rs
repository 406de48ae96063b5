//! All semantics of Service Bus as one pure state machine: no I/O, no clock, no randomness.
//!
//! The caller passes the time to every call. Changes that time causes (locks that expire, messages that expire or become active)
//! happen at the beginning of the next call, or by [`Broker::advance`] at [`Broker::next_deadline`]. After a call the server
//! asks [`Broker::take_wakes`] which clients it may serve now, and `Broker::take_changes` what to write to the state file before
//! the client gets its answer.
//!
//! Read it in the order in which a message passes: `send`, `route`, `receive`, `settle`; `entity` holds the indexes.

mod change_rules;
mod changes;
mod content;
mod deadlines;
mod delivered;
mod duplicates;
mod effects;
mod entity;
mod error;
mod hold;
mod inspect;
pub(crate) mod limits;
mod receive;
mod restore;
mod route;
pub mod rules;
mod send;
mod sessions;
mod settings;
mod settle;
mod setup;
mod stored;
mod tokens;
mod transactions;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

pub(crate) use changes::Change;
pub use content::Incoming;
#[cfg(feature = "http")]
pub(crate) use content::time_to_live;
pub use delivered::{AcceptedSession, Delivered, ReceiveMode};
pub use effects::Wake;
pub use entity::{EntityKind, Tally};
pub use error::BrokerError;
pub use inspect::Counts;
pub use redrive_emulator_host::Timestamp;
pub use settings::{EntityStatus, Namespace, Queue, Settings, Subscription, Topic};
pub use settle::Settlement;
pub use setup::SetupError;
pub(crate) use stored::Meta;
pub use stored::{Place, SequenceNumber};
pub use transactions::{Operation, TransactionId};

use effects::Effects;
use entity::Entity;
use tokens::Tokens;
use transactions::Transactions;

/// Identifies an entity of one broker; returned by [`Broker::find`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityId(u32);

impl EntityId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Identifies a client's connection, by a number from the server. Limits of one client are counted per connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Identifies a receiving link, by a number from the server that is never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiverId(pub u64);

/// A namespace of Service Bus.
#[derive(Debug)]
pub struct Broker {
    entities: Vec<Entity>,
    /// Every address of every entity, in lower case.
    addresses: HashMap<String, EntityId>,
    /// The session that each receiver holds.
    holders: HashMap<ReceiverId, (EntityId, Arc<str>)>,
    transactions: Transactions,
    tokens: Tokens,
    effects: Effects,
    /// Never decreases, whatever the caller's clock does.
    now: Timestamp,
}

impl Broker {
    /// Finds the entity of an address such as `orders`, `orders/$DeadLetterQueue`, `orders/$Transfer/$DeadLetterQueue` or
    /// `events/Subscriptions/audit`, in upper or lower case.
    ///
    /// # Errors
    /// [`BrokerError::EntityNotFound`].
    pub fn find(&self, address: &str) -> Result<EntityId, BrokerError> {
        self.addresses
            .get(&address.trim_matches('/').to_lowercase())
            .copied()
            .ok_or_else(|| BrokerError::EntityNotFound { path: address.to_owned() })
    }

    /// All entities: queues, topics, subscriptions and the dead-letter queues of each.
    pub fn entities(&self) -> impl Iterator<Item = EntityId> + '_ {
        self.entities.iter().map(|entity| entity.id)
    }

    /// Returns the entity's address.
    #[must_use]
    pub fn path(&self, entity: EntityId) -> &str {
        &self.entity(entity).path
    }

    /// Returns the kind of the entity.
    #[must_use]
    pub fn kind(&self, entity: EntityId) -> EntityKind {
        self.entity(entity).kind
    }

    /// Returns the settings of the entity.
    #[must_use]
    pub fn settings(&self, entity: EntityId) -> &Settings {
        &self.entity(entity).settings
    }

    /// Changes what clients may do with a queue, a topic or a subscription.
    pub fn set_status(&mut self, entity: EntityId, status: EntityStatus) {
        self.entities[entity.index()].status = status;
    }

    /// Checks that a client may attach to send.
    ///
    /// # Errors
    /// [`BrokerError::NotAllowed`] for subscriptions and dead-letter queues.
    pub fn check_sender(&self, entity: EntityId) -> Result<(), BrokerError> {
        let entity = self.entity(entity);
        entity.check_status(EntityStatus::SendDisabled)?;
        match entity.kind {
            EntityKind::Queue | EntityKind::Topic => Ok(()),
            EntityKind::Subscription => {
                Err(entity.not_allowed("A subscription takes no messages; send to its topic."))
            }
            EntityKind::DeadLetterQueue | EntityKind::TransferDeadLetterQueue => {
                Err(entity
                    .not_allowed("A dead-letter queue takes no messages; dead-letter them in its queue."))
            }
        }
    }

    /// Checks that a client may attach to receive; `session`: whether it asks for a session.
    ///
    /// # Errors
    /// [`BrokerError::NotAllowed`] for topics, for entities that forward their messages, and if sessions are required but not asked
    /// for, or asked for but not required.
    pub fn check_receiver(&self, entity: EntityId, session: bool) -> Result<(), BrokerError> {
        let entity = self.entity(entity);
        entity.check_status(EntityStatus::ReceiveDisabled)?;
        if entity.kind == EntityKind::Topic {
            return Err(
                entity.not_allowed("A topic gives no messages; receive from one of its subscriptions.")
            );
        }
        if entity.forward_to.is_some() {
            return Err(entity.not_allowed(
                "Can not create a message receiver on an entity with auto-forwarding enabled (ForwardTo); receive from its target.",
            ));
        }
        match (entity.settings.requires_session, session) {
            (true, false) => Err(entity.not_allowed(
                "It is not possible for an entity that requires sessions to create a non-sessionful message receiver.",
            )),
            (false, true) => Err(entity.not_allowed(
                "It is not possible for an entity that does not require sessions to create a sessionful receiver.",
            )),
            _ => Ok(()),
        }
    }

    /// Returns the clients to wake, each once. Wakes that nobody takes are kept, and take no more memory than there are entities
    /// and receivers.
    pub fn take_wakes(&mut self) -> Vec<Wake> {
        std::mem::take(&mut self.effects.wakes).into_iter().collect()
    }

    /// Returns the changes for the state file, in order; always empty unless [`Broker::keep_changes`] was called.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        self.effects.journal.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Starts collecting changes.
    pub(crate) fn keep_changes(&mut self) {
        self.effects.journal.get_or_insert_default();
    }

    fn entity(&self, id: EntityId) -> &Entity {
        &self.entities[id.index()]
    }

    /// Returns the entity, and the collector of the effects of its changes.
    fn parts(&mut self, id: EntityId) -> (&mut Entity, &mut Effects) {
        (&mut self.entities[id.index()], &mut self.effects)
    }
}
