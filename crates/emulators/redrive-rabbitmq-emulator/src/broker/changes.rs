//! Changes to write to the state file, in the order in which they happened.

use redrive_amqp091::{ShortStr, Table};
use redrive_emulator_host::Timestamp;

use super::exchange::{Binding, Exchange, ExchangeKind};
use super::queue::Queue;
use super::queue::ready::Stored;
use super::queue::settings::QueueKind;
use super::{QueueId, VHostId};

/// One change to be kept over a restart. Deliveries are not kept: their receivers are gone too.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    PutQueue(QueueRecord),
    RemoveQueue {
        queue: QueueId,
    },
    PutExchange(ExchangeRecord),
    RemoveExchange {
        vhost: VHostId,
        name: ShortStr,
    },
    PutBinding {
        vhost: VHostId,
        source: ShortStr,
        binding: Binding,
    },
    RemoveBinding {
        vhost: VHostId,
        source: ShortStr,
        binding: Binding,
    },
    PutMessage {
        queue: QueueId,
        stored: Stored,
    },
    RemoveMessage {
        queue: QueueId,
        number: u64,
    },
    /// Virtual hosts, users, permissions and policies, all of them, as RabbitMQ exports them.
    Definitions(String),
}

impl Change {
    pub(crate) fn put(queue: QueueId, stored: &Stored) -> Self {
        Self::PutMessage { queue, stored: stored.clone() }
    }
}

/// A durable queue.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct QueueRecord {
    pub(crate) id: QueueId,
    pub(crate) vhost: VHostId,
    pub(crate) name: ShortStr,
    pub(crate) kind: QueueKind,
    pub(crate) auto_delete: bool,
    pub(crate) arguments: Table,
    pub(crate) created: Timestamp,
}

impl QueueRecord {
    pub(crate) fn of(queue: &Queue) -> Self {
        Self {
            id: queue.id,
            vhost: queue.vhost,
            name: queue.name.clone(),
            kind: queue.kind,
            auto_delete: queue.auto_delete,
            arguments: queue.arguments.clone(),
            created: queue.created,
        }
    }
}

/// A durable exchange.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExchangeRecord {
    pub(crate) vhost: VHostId,
    pub(crate) name: ShortStr,
    pub(crate) kind: ExchangeKind,
    pub(crate) auto_delete: bool,
    pub(crate) internal: bool,
    pub(crate) arguments: Table,
}

impl ExchangeRecord {
    pub(crate) fn of(vhost: VHostId, exchange: &Exchange) -> Self {
        Self {
            vhost,
            name: exchange.name.clone(),
            kind: exchange.kind,
            auto_delete: exchange.auto_delete,
            internal: exchange.internal,
            arguments: exchange.arguments.clone(),
        }
    }
}
