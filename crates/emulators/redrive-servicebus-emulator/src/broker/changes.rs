//! Changes to write to the state file, in the order in which they happened.

use std::sync::Arc;

use bytes::Bytes;
use redrive_emulator_host::Timestamp;

use super::rules::Rule;
use super::stored::Meta;
use super::{EntityId, SequenceNumber};
use crate::amqp::Message;

/// One change to be kept over a restart. Locks are not kept: their holders are gone too.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    /// A message arrived, or its content changed.
    Put { entity: EntityId, sequence: SequenceNumber, content: Arc<Message>, size: u64, meta: Meta },
    /// Only what the broker knows about the message changed.
    Update { entity: EntityId, sequence: SequenceNumber, size: u64, meta: Meta },
    /// A message left this entity.
    Remove { entity: EntityId, sequence: SequenceNumber },
    /// The number of the next message. No number is assigned twice, even after a restart.
    NextSequence { entity: EntityId, next: SequenceNumber },
    /// The state of a session; `None`: it was removed.
    SessionState { entity: EntityId, session: Arc<str>, state: Option<(Bytes, Timestamp)> },
    /// A message id was seen at that time.
    Seen { entity: EntityId, message_id: Arc<str>, at: Timestamp },
    /// The message id is no duplicate any more.
    Forget { entity: EntityId, message_id: Arc<str> },
    /// A client changed the rules of a subscription.
    Rules { entity: EntityId, rules: Vec<Rule> },
}

impl Change {
    /// The entity that changed.
    pub(crate) fn entity(&self) -> EntityId {
        match self {
            Self::Put { entity, .. }
            | Self::Update { entity, .. }
            | Self::Remove { entity, .. }
            | Self::NextSequence { entity, .. }
            | Self::SessionState { entity, .. }
            | Self::Seen { entity, .. }
            | Self::Forget { entity, .. }
            | Self::Rules { entity, .. } => *entity,
        }
    }
}
