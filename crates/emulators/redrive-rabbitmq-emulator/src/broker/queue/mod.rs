//! A queue: what is ready, who consumes, and what is to happen when.

pub(crate) mod consumers;
pub(crate) mod dying;
pub(crate) mod flow;
pub(crate) mod ready;
pub(crate) mod settings;

use std::collections::{BTreeMap, VecDeque};

use redrive_amqp091::{ShortStr, Table};
use redrive_emulator_host::Timestamp;

use self::consumers::Consumers;
use self::dying::Dying;
use self::flow::{Fill, Flow};
use self::ready::{Ready, Return, Stored};
use self::settings::{Overflow, QueueKind, Settings};
use super::message::Message;
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
    /// Dead letters that are not confirmed by all of their targets, in a queue that keeps them, and those that wait behind them.
    pub(crate) undelivered: VecDeque<Dying>,
    /// Dead letters on their way, of a queue that keeps them until they arrived.
    pub(crate) leaving: Leaving,

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
    /// Its head was looked at since it was served, and expires in time.
    pub(crate) looked: bool,
    /// Which publishers a quorum queue refuses.
    pub(crate) flow: Flow,
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

/// Number and bytes of messages that leave a queue, and still count in it.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    messages: usize,
    bytes: u64,
}

impl Leaving {
    pub(crate) fn begin(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes += bytes;
    }

    pub(crate) fn end(&mut self, bytes: u64) {
        self.messages -= 1;
        self.bytes -= bytes;
    }
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
            QueueKind::Quorum if !version.is_3_10() => message.size() + message.published_size as u64,
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

    /// Returns whether a classic queue refuses one more message of this size.
    pub(crate) fn refuses(&self, size: u64) -> bool {
        if self.kind == QueueKind::Quorum || self.settings.overflow.unwrap_or_default() == Overflow::DropHead
        {
            return false;
        }
        let over = |limit: Option<u64>, value: u64| limit.is_some_and(|limit| value > limit);
        over(self.settings.max_length, self.ready.len() as u64 + 1)
            || over(self.settings.max_length_bytes, self.ready.bytes() + size)
    }

    /// Returns whether a quorum queue tells its publishers when it is full. It does not know `reject-publish-dlx`, and drops its head.
    fn tells_publishers(&self) -> bool {
        self.kind == QueueKind::Quorum && self.settings.overflow == Some(Overflow::RejectPublish)
    }

    /// Returns whether a quorum queue refuses those that publish to it for the first time.
    pub(crate) fn is_full(&self) -> bool {
        self.tells_publishers() && self.fill() == Fill::Over
    }

    /// Tells the publishers of a quorum queue what has changed.
    pub(crate) fn tell_publishers(&mut self, version: Version) {
        if self.kind == QueueKind::Quorum {
            let (fill, tells) = (self.fill(), self.tells_publishers());
            self.flow.update(fill, tells, !version.is_3_10());
        }
    }

    /// Returns how full a quorum queue is: delayed messages and dead letters that have not arrived count.
    fn fill(&self) -> Fill {
        let length = self.ready.len() + self.delayed.len() + self.undelivered.len() + self.leaving.messages;
        let mut bytes = 0;
        if self.settings.max_length_bytes.is_some() {
            let elsewhere = self.delayed.values().chain(self.undelivered.iter().map(|dying| &dying.stored));
            bytes =
                self.ready.bytes() + self.leaving.bytes + elsewhere.map(|stored| stored.size).sum::<u64>();
        }
        Fill::of([(length as u64, self.settings.max_length), (bytes, self.settings.max_length_bytes)])
    }

    /// Returns whether the head expires in time, whatever comes before it. A classic queue with priorities does not notice that a publish
    /// has become its head: that expires only when the queue looks at its head for another reason.
    pub(crate) fn looks(&self) -> bool {
        self.looked || self.kind == QueueKind::Quorum || self.settings.max_priority.is_none()
    }

    /// Returns whether priorities expire independently, and what was returned beside them: in quorum queues of 4.3. Other queues look at
    /// the message that is next.
    pub(crate) fn has_lanes(&self, version: Version) -> bool {
        self.kind == QueueKind::Quorum && !version.is_3_10()
    }

    /// Takes a message that has expired.
    pub(crate) fn pop_expired(&mut self, now: Timestamp, version: Version) -> Option<Stored> {
        let lanes = self.has_lanes(version);
        self.ready.pop_expired(now, lanes)
    }

    /// Takes a message that is too many: the one that would be delivered next, which has the highest priority.
    pub(crate) fn pop_overflow(&mut self) -> Option<Stored> {
        match (self.kind, self.settings.overflow.unwrap_or_default()) {
            (_, Overflow::DropHead) | (QueueKind::Quorum, Overflow::RejectPublishDlx) => {}
            _ => return None,
        }
        let is_over = match self.kind {
            QueueKind::Quorum => self.fill() == Fill::Over,
            QueueKind::Classic => {
                let over = |limit: Option<u64>, value: u64| limit.is_some_and(|limit| value > limit);
                over(self.settings.max_length, self.ready.len() as u64)
                    || over(self.settings.max_length_bytes, self.ready.bytes())
            }
        };
        if is_over { self.ready.pop() } else { None }
    }

    /// Chooses a single active consumer if there is none: quorum queues of 3.10 do not know priorities there.
    pub(crate) fn activate_consumer(&mut self, version: Version) {
        if self.settings.single_active_consumer {
            self.consumers.activate(self.kind == QueueKind::Classic || !version.is_3_10());
        }
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
