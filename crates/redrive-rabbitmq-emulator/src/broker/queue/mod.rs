//! A queue: what is ready, who consumes, and what is to happen when.

pub(crate) mod consumers;
pub(crate) mod ready;
pub(crate) mod settings;

use std::collections::{BTreeMap, VecDeque};

use redrive_amqp091::{ShortStr, Table};

use self::consumers::Consumers;
use self::ready::{Ready, Return, Stored};
use self::settings::{Overflow, QueueKind, Settings};
use super::message::Message;
use super::reason::Reason;
use super::time::Timestamp;
use super::{ConnectionId, ConsumerId, QueueId, VHostId, Version};

/// The priority of a message without one in a quorum queue (4.3).
const DEFAULT_PRIORITY: u8 = 4;
/// The highest priority in a quorum queue (4.3).
const MAX_QUORUM_PRIORITY: u8 = 31;

#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) id: QueueId,
    pub(crate) vhost: VHostId,
    pub(crate) name: ShortStr,
    pub(crate) kind: QueueKind,
    pub(crate) durable: bool,
    pub(crate) auto_delete: bool,
    /// The connection that has it exclusively.
    pub(crate) owner: Option<ConnectionId>,
    pub(crate) arguments: Table,
    pub(crate) by_arguments: Settings,
    pub(crate) policy: Option<String>,
    /// What holds: arguments and policy together.
    pub(crate) settings: Settings,

    pub(crate) ready: Ready,
    /// Delivered and not settled.
    pub(crate) unacked: usize,
    /// Given back, and not to be delivered again before their time (4.3).
    pub(crate) delayed: BTreeMap<(Timestamp, u64), Stored>,
    /// Dead letters that found no target, in a queue that keeps them.
    pub(crate) undelivered: VecDeque<(Stored, Reason)>,

    pub(crate) consumers: Consumers,
    /// The consumer that has it exclusively.
    pub(crate) exclusive_consumer: Option<ConsumerId>,
    pub(crate) had_consumer: bool,

    pub(crate) created: Timestamp,
    /// When it was last used, for `x-expires`.
    pub(crate) used: Timestamp,
    /// The deadlines that are registered.
    pub(crate) armed: Armed,
    /// Something was given back since it was served.
    pub(crate) given_back: bool,
    /// It is in the list of queues to serve.
    pub(crate) dirty: bool,
    /// A fault: nothing is delivered and nothing confirmed.
    pub(crate) leaderless: bool,
}

/// The registered deadlines of a queue.
#[derive(Debug, Default)]
pub(crate) struct Armed {
    pub(crate) message: Option<Timestamp>,
    pub(crate) expiry: Option<Timestamp>,
    pub(crate) retry: Option<Timestamp>,
    pub(crate) dead_letters: Option<Timestamp>,
}

impl Queue {
    /// Returns the place of a message's priority.
    pub(crate) fn priority_of(&self, priority: Option<u8>, version: Version) -> u8 {
        match (self.kind, self.settings.max_priority) {
            (QueueKind::Classic, Some(max)) => priority.unwrap_or(0).min(max),
            (QueueKind::Classic, None) => 0,
            (QueueKind::Quorum, _) if version.is_3_10() => 0,
            (QueueKind::Quorum, _) => priority.unwrap_or(DEFAULT_PRIORITY).min(MAX_QUORUM_PRIORITY),
        }
    }

    /// Returns how many bytes of a message count: in a quorum queue of 4.3 the properties too.
    pub(crate) fn size_of(&self, message: &Message, version: Version) -> u64 {
        match self.kind {
            QueueKind::Quorum if !version.is_3_10() => message.size() + message.properties.len() as u64,
            _ => message.size(),
        }
    }

    /// Returns when a message with this time to live expires.
    pub(crate) fn expiry(&self, expiration: Option<u64>, now: Timestamp) -> Option<Timestamp> {
        let ttl = match (expiration, self.settings.message_ttl) {
            (Some(own), Some(queue)) => Some(own.min(queue)),
            (own, queue) => own.or(queue),
        };
        ttl.map(|ttl| now.plus_millis(ttl))
    }

    /// Returns whether the queue refuses one more message of this size.
    pub(crate) fn refuses(&self, size: u64) -> bool {
        match (self.kind, self.settings.overflow.unwrap_or_default()) {
            // Quorum queues do not know `reject-publish-dlx`, and drop the head.
            (_, Overflow::DropHead) | (QueueKind::Quorum, Overflow::RejectPublishDlx) => return false,
            _ => {}
        }
        let (length, bytes) = (self.ready.len() as u64, self.ready.bytes());
        let over = |limit: Option<u64>, value: u64| limit.is_some_and(|limit| value > limit);
        match self.kind {
            QueueKind::Classic => {
                over(self.settings.max_length, length + 1)
                    || over(self.settings.max_length_bytes, bytes + size)
            }
            // The limit is soft: the message that passes it is still taken.
            QueueKind::Quorum => {
                let length = length + self.undelivered.len() as u64;
                over(self.settings.max_length, length) || over(self.settings.max_length_bytes, bytes)
            }
        }
    }

    /// Returns whether priorities expire independently: in quorum queues. A classic queue looks at the message that is next.
    pub(crate) fn has_lanes(&self) -> bool {
        self.kind == QueueKind::Quorum
    }

    /// Takes a message that has expired.
    pub(crate) fn pop_expired(&mut self, now: Timestamp) -> Option<Stored> {
        let lanes = self.has_lanes();
        self.ready.pop_expired(now, lanes)
    }

    /// Takes a message that is too many: the one that would be delivered next, which has the highest priority.
    pub(crate) fn pop_overflow(&mut self) -> Option<Stored> {
        match (self.kind, self.settings.overflow.unwrap_or_default()) {
            (_, Overflow::DropHead) | (QueueKind::Quorum, Overflow::RejectPublishDlx) => {}
            _ => return None,
        }
        let over = |limit: Option<u64>, value: u64| limit.is_some_and(|limit| value > limit);
        let is_over = over(self.settings.max_length, self.ready.len() as u64)
            || over(self.settings.max_length_bytes, self.ready.bytes());
        if is_over { self.ready.pop() } else { None }
    }

    /// Returns where a message goes that a client gave back, or that a client lost.
    pub(crate) fn return_to(&self, by_client: bool, version: Version) -> Option<Return> {
        match self.kind {
            QueueKind::Classic => Some(Return::Place),
            // Without a limit, 3.10 puts it at the end.
            QueueKind::Quorum if version.is_3_10() && by_client && self.settings.delivery_limit.is_none() => {
                None
            }
            QueueKind::Quorum => Some(Return::Front),
        }
    }
}
