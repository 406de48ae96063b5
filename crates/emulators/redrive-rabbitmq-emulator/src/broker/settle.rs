//! From consumers back to queues: acknowledged, given back, or dead.

use std::cmp::Reverse;

use super::connection::{Mode, Settling, Unacked};
use super::failure::{Failure, Outcome};
use super::message::Counts;
use super::queue::ready::{Return, Stored};
use super::queue::settings::QueueKind;
use super::reason::Reason;
use super::{At, Broker, Change, ConsumerId, QueueId, Version};

/// Why a message comes back to its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    Nack,
    Reject,
    /// `basic.recover`
    Recover,
    /// The channel or the connection ended.
    Crash,
    /// It was not settled in time.
    Timeout,
}

impl Cause {
    /// Returns the counts after this return. 4.3 counts every return, and as failures only those that look like one.
    fn count(self, counts: Counts, version: Version) -> Counts {
        let failed = match self {
            Self::Reject | Self::Crash => true,
            Self::Nack | Self::Recover | Self::Timeout => version.is_3_10(),
        };
        Counts {
            delivery: counts.delivery.saturating_add(u32::from(failed)),
            acquired: counts.acquired.saturating_add(u32::from(!version.is_3_10())),
        }
    }

    fn is_failure(self) -> bool {
        matches!(self, Self::Reject | Self::Crash)
    }
}

impl Settling {
    /// Returns true if a transaction hands the two to a queue together. 3.10 does not tell `basic.nack` from `basic.reject` there.
    fn goes_with(self, next: Self, version: Version) -> bool {
        let requeues = |how| match how {
            Self::Ack => None,
            Self::Nack { requeue } | Self::Reject { requeue } => Some(requeue),
        };
        self == next || version.is_3_10() && requeues(self) == requeues(next)
    }
}

impl Broker {
    /// Settles a delivery, or all up to it.
    pub(super) fn settle(&mut self, at: At, tag: u64, multiple: bool, how: Settling) -> Outcome {
        let settled = self.take_unacked(at, tag, multiple)?;
        let version = self.version();
        let Some(channel) = self.channel(at) else { return Ok(()) };
        if channel.mode != Mode::Transaction {
            self.apply_settlement(at, how, settled);
            return Ok(());
        }
        match channel.transaction.settlements.last_mut() {
            Some((last, together)) if last.goes_with(how, version) => together.extend(settled),
            _ => channel.transaction.settlements.push((how, settled)),
        }
        Ok(())
    }

    fn take_unacked(&mut self, at: At, tag: u64, multiple: bool) -> Outcome<Vec<(u64, Unacked)>> {
        let Some(channel) = self.channel(at) else { return Ok(Vec::new()) };
        if !multiple {
            return match channel.unacked.remove(&tag) {
                Some(unacked) => Ok(vec![(tag, unacked)]),
                None if channel.timed_out.remove(&tag) => Ok(Vec::new()),
                None => Err(unknown_tag(tag)),
            };
        }
        if tag != 0 && !channel.unacked.contains_key(&tag) && !channel.timed_out.contains(&tag) {
            return Err(unknown_tag(tag));
        }
        channel.timed_out.retain(|late| tag != 0 && *late > tag);
        if tag == 0 {
            return Ok(std::mem::take(&mut channel.unacked).into_iter().collect());
        }
        let rest = channel.unacked.split_off(&(tag + 1));
        Ok(std::mem::replace(&mut channel.unacked, rest).into_iter().collect())
    }

    pub(super) fn apply_settlement(&mut self, at: At, how: Settling, settled: Vec<(u64, Unacked)>) {
        for (_, unacked) in self.by_consumer(settled) {
            self.release(at, &unacked);
            let Unacked { queue, stored, consumer, .. } = unacked;
            match how {
                Settling::Ack => self.forget(queue, &stored),
                Settling::Nack { requeue: true } => self.give_back(queue, stored, Cause::Nack, consumer),
                Settling::Reject { requeue: true } => self.give_back(queue, stored, Cause::Reject, consumer),
                Settling::Nack { requeue: false } => self.reject(queue, stored, Cause::Nack),
                Settling::Reject { requeue: false } => self.reject(queue, stored, Cause::Reject),
            }
        }
    }

    /// A delivery does not count any more for its consumer and its queue.
    pub(super) fn release(&mut self, at: At, unacked: &Unacked) {
        if let Some(queue) = self.queues.get_mut(&unacked.queue) {
            queue.unacked -= 1;
        }
        if let Some(id) = unacked.consumer {
            if let Some(consumer) = self.consumers.get_mut(&id) {
                consumer.unacked -= 1;
            }
            self.unblock(id);
        }
        let Some(channel) = self.channel(at) else { return };
        if channel.prefetch_global > 0 {
            let consumers: Vec<_> = channel.consumers.values().copied().collect();
            for consumer in consumers {
                self.unblock(consumer);
            }
        }
    }

    fn reject(&mut self, id: QueueId, stored: Stored, cause: Cause) {
        let version = self.version();
        // 4.3 takes the counts along, in classic queues too; `basic.nack` is none that counts.
        let failed = u32::from(cause == Cause::Reject && !version.is_3_10());
        let counts = Counts { delivery: stored.counts.delivery + failed, ..stored.counts };
        self.die(id, Stored { counts, ..stored }, Reason::Rejected);
    }

    /// Puts a message back into its queue. `consumer`: who had it, if it was not `basic.get`.
    pub(super) fn give_back(
        &mut self,
        id: QueueId,
        mut stored: Stored,
        cause: Cause,
        consumer: Option<ConsumerId>,
    ) {
        let (now, version) = (self.now, self.version());
        // A queue that was deleted took its messages with it.
        let Some(queue) = self.queues.get_mut(&id) else { return };
        stored.redelivered = true;
        let mut delay = None;
        if queue.kind == QueueKind::Classic && !version.is_3_10() && cause.is_failure() {
            // Nobody sees it here, but it goes along with a dead letter.
            stored.counts.delivery += 1;
        }
        if queue.kind == QueueKind::Quorum {
            stored.counts = cause.count(stored.counts, version);
            if queue.settings.limit(version).is_some_and(|limit| stored.counts.delivery > limit) {
                let mut counts = stored.counts;
                if version.is_3_10() {
                    counts = Counts::default();
                    self.credit_again(consumer);
                }
                return self.die(id, Stored { counts, ..stored }, Reason::DeliveryLimit);
            }
            delay = queue.settings.retry_delay(stored.counts.delivery, cause.is_failure());
        }
        let by_client = matches!(cause, Cause::Nack | Cause::Reject | Cause::Recover);
        let to = queue.return_to(by_client, version);
        let kept = stored.kept;
        let old = stored.number;
        if to.is_none() {
            stored.number = self.next_message;
            self.next_message += 1;
        }
        stored.not_before = delay.map(|delay| now.plus_millis(delay));
        if kept {
            if stored.number != old {
                self.note(|| Change::RemoveMessage { queue: id, number: old });
            }
            let change = Change::put(id, &stored);
            self.note(|| change);
        }
        let Some(queue) = self.queues.get_mut(&id) else { return };
        match (stored.not_before, to) {
            (Some(at), _) => {
                queue.delayed.insert((at, stored.number), stored);
            }
            (None, Some(to)) => {
                queue.ready.give_back(stored, to);
                queue.consumers.serve();
                (queue.given_back, queue.looked) = (true, true);
            }
            (None, None) => queue.ready.push(stored),
        }
        self.mark_dirty(id);
    }

    /// RabbitMQ 3.10 gives credit twice for a message that reaches the delivery limit: the consumer may have one more from then on.
    fn credit_again(&mut self, consumer: Option<ConsumerId>) {
        if let Some(consumer) = consumer.and_then(|id| self.consumers.get_mut(&id))
            && consumer.prefetch > 0
        {
            consumer.prefetch = consumer.prefetch.saturating_add(1);
        }
    }

    /// Messages whose time to wait is over are delivered again.
    pub(super) fn end_delays(&mut self, id: QueueId) {
        let now = self.now;
        let Some(queue) = self.queues.get_mut(&id) else { return };
        while let Some(entry) = queue.delayed.first_entry()
            && entry.key().0 <= now
        {
            let mut stored = entry.remove();
            stored.not_before = None;
            queue.ready.give_back(stored, Return::Front);
        }
        self.mark_dirty(id);
    }

    /// Orders what is settled at once: queue by queue, first what `basic.get` took, then by the tags of the consumers; what a consumer had of
    /// a classic queue by priority; then in the order of delivery.
    pub(super) fn by_consumer(&self, mut settled: Vec<(u64, Unacked)>) -> Vec<(u64, Unacked)> {
        settled.sort_by_cached_key(|(tag, Unacked { queue, stored, consumer_tag, .. })| {
            let is_classic = self.queues.get(queue).is_some_and(|queue| queue.kind == QueueKind::Classic);
            let priority = if is_classic && !consumer_tag.is_empty() { stored.priority } else { 0 };
            (*queue, consumer_tag.clone(), Reverse(priority), *tag)
        });
        settled
    }

    /// Gives back everything that a channel has not settled, in the order of delivery.
    pub(super) fn give_back_all(&mut self, at: At, unacked: Vec<(u64, Unacked)>, cause: Cause) {
        for (_, unacked) in unacked {
            self.release(at, &unacked);
            self.give_back(unacked.queue, unacked.stored, cause, unacked.consumer);
        }
    }
}

fn unknown_tag(tag: u64) -> Failure {
    Failure::precondition(&format!("unknown delivery tag {tag}"))
}
