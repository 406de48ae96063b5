//! Views that no client notices.

use super::events::{Event, MessageView};
use super::{Broker, QueueId, QueueKind};

/// Number of messages of a queue, by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct QueueCounts {
    /// Waiting for a consumer.
    pub ready: usize,
    /// Delivered and not settled.
    pub unacked: usize,
    /// Given back, and waiting for their time (4.3).
    pub delayed: usize,
    /// Dead letters that are not confirmed by all of their targets (at-least-once), and those that wait behind them.
    pub dead_letters: usize,
    /// Bytes of the bodies that are ready.
    pub ready_bytes: u64,
}

/// A queue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueInfo {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: QueueKind,
    /// How many messages it has.
    pub counts: QueueCounts,
    /// Number of its consumers.
    pub consumers: usize,
    /// The policy that applies to it.
    pub policy: Option<String>,
}

impl Broker {
    pub(crate) fn counts(&self, id: QueueId) -> QueueCounts {
        let Some(queue) = self.queues.get(&id) else { return QueueCounts::default() };
        QueueCounts {
            ready: queue.ready.len(),
            unacked: queue.unacked,
            delayed: queue.delayed.len(),
            dead_letters: queue.undelivered.len(),
            ready_bytes: queue.ready.bytes(),
        }
    }

    pub(crate) fn info(&self, id: QueueId) -> Option<QueueInfo> {
        let queue = self.queues.get(&id)?;
        Some(QueueInfo {
            name: queue.name.to_string(),
            kind: queue.kind,
            counts: self.counts(id),
            consumers: queue.consumers.len(),
            policy: queue.policy.clone(),
        })
    }

    /// Returns the messages that are ready, in the order in which they leave.
    pub(crate) fn ready_messages(&self, id: QueueId) -> Vec<MessageView> {
        let queue = self.queues.get(&id);
        queue
            .into_iter()
            .flat_map(|queue| queue.ready.iter())
            .map(|stored| MessageView::of(&stored.message))
            .collect()
    }

    pub(crate) fn unlogged_events(&mut self) -> Vec<Event> {
        self.events.unlogged()
    }

    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        self.events.take()
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.events.iter().cloned().collect()
    }

    /// Returns all queues of a virtual host, by name.
    pub(crate) fn queue_ids(&self, vhost: super::VHostId) -> Vec<QueueId> {
        let Some(vhost) = self.vhosts.get(&vhost) else { return Vec::new() };
        let mut queues: Vec<_> = vhost.queues.iter().collect();
        queues.sort_unstable();
        queues.into_iter().map(|(_, id)| *id).collect()
    }
}
