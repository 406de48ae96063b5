//! Changes that time causes.

use super::connection::Phase;
use super::events::EventKind;
use super::failure::Failure;
use super::queue::settings::QueueKind;
use super::settle::Cause;
use super::{At, Broker, QueueId, UnpromisedOrder};
use redrive_amqp091::basic;
use redrive_emulator_host::Timestamp;

/// What becomes due. Ordered, so that what is due at the same time happens in the same order on every run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// The first message of a queue expires.
    Message(QueueId),
    /// A delayed message is to be delivered again.
    Retry(QueueId),
    /// Dead letters without a target are tried again.
    DeadLetters(QueueId),
    /// A queue was unused for its time.
    Expiry(QueueId),
    /// A delivery was not settled for its time.
    Timeout(At),
}

/// How long a dead letter waits for another try.
const DEAD_LETTER_RETRY: u64 = 180_000;
/// How often a quorum queue looks at the clock for `x-expires`.
const QUORUM_TICK: i64 = 5_000;
/// How often a channel of 3.10 looks at the clock for the consumer timeout.
const CHANNEL_TICK: i64 = 60_000;

impl Broker {
    /// Returns when time alone will change something next, if ever.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Applies everything that was due until `now`, each change at its own time: one large step has the result of many small ones.
    /// Every other call does this first.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        while let Some((at, due)) = self.next_due()
            && at <= now
        {
            self.due.remove(&(at, due));
            self.now = self.now.max(at);
            match due {
                Due::Message(id) => {
                    self.with_armed(id, |armed| armed.message = None);
                    self.look(id);
                }
                Due::Retry(id) => {
                    self.with_armed(id, |armed| armed.retry = None);
                    self.end_delays(id);
                }
                Due::DeadLetters(id) => {
                    self.with_armed(id, |armed| armed.dead_letters = None);
                    self.retry_dead_letters(id);
                }
                Due::Expiry(id) => {
                    self.with_armed(id, |armed| armed.expiry = None);
                    self.expire_queue(id);
                }
                Due::Timeout(at) => self.time_out(at),
            }
            if let Due::Message(id) | Due::Retry(id) | Due::DeadLetters(id) | Due::Expiry(id) = due {
                self.mark_dirty(id);
            }
            self.pump();
        }
        self.now = self.now.max(now);
    }

    fn next_due(&self) -> Option<(Timestamp, Due)> {
        let first = *self.due.first()?;
        if matches!(self.options.order, UnpromisedOrder::Together | UnpromisedOrder::OneByOne) {
            return Some(first);
        }
        let together: Vec<_> = self.due.iter().take_while(|(at, _)| *at == first.0).collect();
        let chosen = self.options.order.choose(together.len(), first.0.millis());
        together.get(chosen).map(|due| **due)
    }

    fn with_armed(&mut self, id: QueueId, change: impl FnOnce(&mut super::queue::Armed)) {
        if let Some(queue) = self.queues.get_mut(&id) {
            change(&mut queue.armed);
        }
    }

    fn look(&mut self, id: QueueId) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.looked = true;
        }
    }

    /// Registers the deadlines of a queue as they are now.
    pub(super) fn arm(&mut self, id: QueueId) {
        let version = self.version();
        let Some(queue) = self.queues.get_mut(&id) else { return };
        let message = match queue.armed.message {
            at if !queue.looks() => at,
            _ => queue.ready.next_expiry(queue.has_lanes(version)),
        };
        let retry = queue.delayed.first_key_value().map(|((at, _), _)| *at);
        let expiry = match queue.settings.expires {
            Some(expires) if queue.consumers.is_empty() => {
                let due = queue.used.plus_millis(expires);
                Some(match queue.kind {
                    QueueKind::Classic => due,
                    QueueKind::Quorum => next_tick(queue.created, due, QUORUM_TICK),
                })
            }
            _ => None,
        };
        let armed = &mut queue.armed;
        for (slot, wanted, due) in [
            (&mut armed.message, message, Due::Message(id)),
            (&mut armed.retry, retry, Due::Retry(id)),
            (&mut armed.expiry, expiry, Due::Expiry(id)),
        ] {
            if *slot == wanted {
                continue;
            }
            if let Some(old) = slot.take() {
                self.due.remove(&(old, due));
            }
            if let Some(at) = wanted {
                self.due.insert((at, due));
            }
            *slot = wanted;
        }
    }

    pub(super) fn arm_dead_letters(&mut self, id: QueueId) {
        let at = self.now.plus_millis(DEAD_LETTER_RETRY);
        if let Some(queue) = self.queues.get_mut(&id)
            && queue.armed.dead_letters.is_none()
        {
            queue.armed.dead_letters = Some(at);
            self.due.insert((at, Due::DeadLetters(id)));
        }
    }

    /// Removes the deadlines of a queue that is deleted.
    pub(super) fn disarm(&mut self, id: QueueId, armed: &super::queue::Armed) {
        for (slot, due) in [
            (armed.message, Due::Message(id)),
            (armed.retry, Due::Retry(id)),
            (armed.expiry, Due::Expiry(id)),
            (armed.dead_letters, Due::DeadLetters(id)),
        ] {
            if let Some(at) = slot {
                self.due.remove(&(at, due));
            }
        }
    }

    fn expire_queue(&mut self, id: QueueId) {
        let Some(queue) = self.queues.get(&id) else { return };
        let Some(expires) = queue.settings.expires else { return };
        if !queue.consumers.is_empty() || queue.used.plus_millis(expires) > self.now {
            return;
        }
        let (name, messages) = (queue.name.to_string(), queue.ready.len());
        let (vhost, now) = (self.vhost(queue.vhost).name.clone(), self.now);
        self.events.add(now, &vhost, || EventKind::QueueExpired { queue: name, messages });
        self.delete_queue(id, super::DropReason::QueueExpired);
    }

    /// A delivery with this timeout of its own has begun.
    pub(super) fn arm_timeout(&mut self, at: At, kind: QueueKind, timeout: Option<u64>) {
        let version = self.version();
        if !version.is_3_10() && kind == QueueKind::Classic {
            return;
        }
        let Some(timeout) =
            timeout.or(self.options.consumer_timeout.map(|timeout| timeout.as_millis() as u64))
        else {
            return;
        };
        let mut due = self.now.plus_millis(timeout);
        let Some(channel) = self.channel(at) else { return };
        if version.is_3_10() {
            due = next_tick(channel.opened, due, CHANNEL_TICK);
        }
        self.arm_channel(at, due);
    }

    fn arm_channel(&mut self, at: At, due: Timestamp) {
        let Some(channel) = self.channel(at) else { return };
        match channel.armed {
            Some(armed) if armed <= due => {}
            armed => {
                channel.armed = Some(due);
                if let Some(armed) = armed {
                    self.due.remove(&(armed, Due::Timeout(at)));
                }
                self.due.insert((due, Due::Timeout(at)));
            }
        }
    }

    pub(super) fn disarm_channel(&mut self, at: At, armed: Option<Timestamp>) {
        if let Some(armed) = armed {
            self.due.remove(&(armed, Due::Timeout(at)));
        }
    }

    fn time_out(&mut self, at: At) {
        let (now, version) = (self.now, self.version());
        let default = self.options.consumer_timeout.map(|timeout| timeout.as_millis() as u64);
        let Some(channel) = self.connections.get_mut(&at.connection).and_then(|connection| {
            connection.channels.get_mut(&at.channel).filter(|_| connection.phase == Phase::Open)
        }) else {
            return;
        };
        channel.armed = None;
        let (mut late, mut next) = (Vec::new(), None::<Timestamp>);
        for unacked in channel.unacked.values() {
            let Some(queue) = self.queues.get(&unacked.queue) else { continue };
            if !version.is_3_10() && queue.kind == QueueKind::Classic {
                continue;
            }
            let consumer = unacked.consumer.and_then(|id| self.consumers.get(&id));
            let own = consumer.and_then(|consumer| consumer.timeout).or(queue.settings.consumer_timeout);
            let Some(timeout) = (if version.is_3_10() { default } else { own.or(default) }) else { continue };
            let due = unacked.delivered.plus_millis(timeout);
            if due <= now {
                late.push((unacked.queue, unacked.consumer));
            } else {
                next = Some(next.map_or(due, |next| next.min(due)));
            }
            if version.is_3_10() {
                // Deliveries are in order: the first one decides.
                break;
            }
        }
        if let Some(next) = next {
            let next = if version.is_3_10() { next_tick(channel.opened, next, CHANNEL_TICK) } else { next };
            self.arm_channel(at, next);
        }
        if late.is_empty() {
            return;
        }
        if let Some(queue) = late.first().and_then(|(queue, _)| self.queues.get(queue)) {
            let (name, vhost) = (queue.name.to_string(), self.vhost(queue.vhost).name.clone());
            self.events.add(now, &vhost, || EventKind::ConsumerTimedOut { queue: name });
        }
        let cancels =
            self.connections.get(&at.connection).is_some_and(|connection| connection.notifies_cancel);
        if version.is_3_10() || !cancels {
            let timeout = default.unwrap_or_default();
            self.fail(at, &Failure::precondition(&format!(
                "delivery acknowledgement on channel {} timed out. Timeout value used: {timeout} ms. This timeout value can be configured, see consumers doc guide to learn more",
                at.channel
            )), (0, 0));
            return;
        }
        self.time_out_consumers(at, late);
    }

    /// 4.3 ends the consumers, and takes back what they have.
    fn time_out_consumers(&mut self, at: At, mut late: Vec<(QueueId, Option<super::ConsumerId>)>) {
        late.sort_unstable();
        late.dedup();
        for (_, consumer) in late {
            let Some(channel) = self.channel(at) else { return };
            let tags: Vec<u64> = channel
                .unacked
                .iter()
                .filter(|(_, unacked)| unacked.consumer == consumer)
                .map(|(tag, _)| *tag)
                .collect();
            let taken: Vec<_> = tags
                .iter()
                .filter_map(|tag| channel.unacked.remove(tag).map(|unacked| (*tag, unacked)))
                .collect();
            channel.timed_out.extend(tags);
            if let Some(id) = consumer
                && let Some(tag) = self.consumers.get(&id).map(|consumer| consumer.tag.clone())
            {
                self.send(at, basic::Cancel { consumer_tag: tag, no_wait: true });
                self.remove_consumer(id);
            }
            self.give_back_all(at, taken, Cause::Timeout);
        }
    }
}

/// Returns the first tick since `start` that is not before `due`.
fn next_tick(start: Timestamp, due: Timestamp, tick: i64) -> Timestamp {
    let since = due.millis().saturating_sub(start.millis()).max(0);
    let ticks = (since / tick + i64::from(since % tick != 0)).max(1);
    Timestamp::from_millis(start.millis().saturating_add(ticks.saturating_mul(tick)))
}
