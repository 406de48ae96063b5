//! From queues to consumers.

use bytes::Bytes;
use redrive_amqp091::{Method, RawTable, ShortStr, basic, write_content};
use redrive_emulator_host::Timestamp;

use super::connection::{Phase, Unacked};
use super::queue::ready::Stored;
use super::queue::settings::QueueKind;
use super::reason::Reason;
use super::{Broker, ConsumerId, QueueId, Version};

/// With this much output that a client has not read, its consumers take nothing more.
const UNREAD_LIMIT: usize = 1 << 20;

impl Broker {
    /// Gives consumers what is ready, and removes what is too old or too many.
    pub(super) fn serve(&mut self, id: QueueId) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.dirty = false;
        // What is given back to a classic queue must fit before it is delivered again; what is published need not.
        if std::mem::take(&mut queue.given_back) && queue.kind == QueueKind::Classic {
            self.drop_surplus(id);
        }
        self.deliver_ready(id);
        self.drop_surplus(id);
        let version = self.version();
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.tell_publishers(version);
        }
        self.arm(id);
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.looked = false;
        }
    }

    pub(super) fn drop_surplus(&mut self, id: QueueId) {
        let now = self.now;
        // Of a message that is both too old and one too many, a quorum queue says that it is too old, except at the very time of its end:
        // with a time to live of 0 a publish is one too many.
        if self.queues.get(&id).is_some_and(|queue| queue.kind == QueueKind::Quorum) {
            self.drop_expired(id, Timestamp::from_millis(now.millis().saturating_sub(1)));
        }
        let version = self.version();
        if let Some(queue) = self.queues.get_mut(&id) {
            let mut surplus: Vec<_> = std::iter::from_fn(|| queue.pop_overflow()).collect();
            queue.looked |= !surplus.is_empty();
            // Quorum queues of 3.10 dead-letter what one command drops from the last to the first.
            if queue.kind == QueueKind::Quorum && version.is_3_10() {
                surplus.reverse();
            }
            for stored in surplus {
                self.die(id, stored, Reason::MaxLength);
            }
        }
        self.drop_expired(id, now);
    }

    fn drop_expired(&mut self, id: QueueId, by: Timestamp) {
        let version = self.version();
        while let Some(queue) = self.queues.get_mut(&id)
            && queue.looks()
            && let Some(stored) = queue.pop_expired(by, version)
        {
            self.die(id, stored, Reason::Expired);
        }
    }

    fn deliver_ready(&mut self, id: QueueId) {
        let (now, version) = (self.now, self.version());
        loop {
            let Some(queue) = self.queues.get_mut(&id) else { return };
            if queue.leaderless || !queue.consumers.is_served() {
                return;
            }
            let Some(first) = queue.ready.first() else { return };
            // A time to live of 0 lets a message reach a consumer that waits for it.
            if first.arrived < now && queue.looks() && first.expires.is_some_and(|expires| expires <= now) {
                let Some(stored) = queue.pop_expired(now, version) else { return };
                self.die(id, stored, Reason::Expired);
                continue;
            }
            let Some(consumer) = self.next_consumer(id) else { return };
            let Some(queue) = self.queues.get_mut(&id) else { return };
            let kind = queue.kind;
            queue.consumers.took(consumer);
            queue.looked = true;
            let Some(stored) = queue.ready.pop() else { return };
            self.deliver(consumer, stored);
            // A quorum queue forgets the turn of a consumer that is full; a classic queue notices it at its next turn.
            if kind == QueueKind::Quorum && !self.can_take(consumer) {
                self.block(id, consumer);
            }
        }
    }

    /// Returns the consumer that gets the next message, if one can take it.
    pub(super) fn next_consumer(&mut self, id: QueueId) -> Option<ConsumerId> {
        loop {
            let queue = self.queues.get(&id)?;
            let consumer = if queue.settings.single_active_consumer {
                self.single_active(id).filter(|active| !self.is_blocked(id, *active))?
            } else {
                queue.consumers.next()?
            };
            if self.can_take(consumer) {
                return Some(consumer);
            }
            self.block(id, consumer);
        }
    }

    /// Returns the single active consumer. In a quorum queue of 4.3 one of higher priority takes over as soon as the active one has nothing.
    fn single_active(&mut self, id: QueueId) -> Option<ConsumerId> {
        let version = self.version();
        let queue = self.queues.get_mut(&id)?;
        let active = queue.consumers.active()?;
        if queue.kind == QueueKind::Classic || version.is_3_10() {
            return Some(active);
        }
        let Some(higher) = queue.consumers.above_active() else { return Some(active) };
        if self.consumers.get(&active).is_some_and(|consumer| consumer.unacked > 0) {
            return None;
        }
        queue.consumers.hand_over(higher);
        Some(higher)
    }

    fn is_blocked(&self, queue: QueueId, consumer: ConsumerId) -> bool {
        self.queues.get(&queue).is_some_and(|queue| queue.consumers.is_blocked(consumer))
    }

    fn block(&mut self, queue: QueueId, consumer: ConsumerId) {
        if let Some(queue) = self.queues.get_mut(&queue) {
            queue.consumers.block(consumer);
        }
    }

    /// Returns whether a consumer can take a message now.
    pub(super) fn can_take(&mut self, id: ConsumerId) -> bool {
        let Some(consumer) = self.consumers.get(&id) else { return false };
        let Some(connection) = self.connections.get_mut(&consumer.at.connection) else { return false };
        if connection.phase != Phase::Open {
            return false;
        }
        if connection.out.len() > UNREAD_LIMIT {
            connection.stalled = true;
            return false;
        }
        let Some(channel) = connection.channels.get(&consumer.at.channel) else { return false };
        if channel.closing {
            return false;
        }
        let below = |limit: u16, count: usize| limit == 0 || count < usize::from(limit);
        consumer.no_ack
            || below(consumer.prefetch, consumer.unacked as usize)
                && below(channel.prefetch_global, channel.unacked.len())
    }

    fn deliver(&mut self, id: ConsumerId, stored: Stored) {
        let (now, version) = (self.now, self.version());
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        let (at, queue_id, no_ack) = (consumer.at, consumer.queue, consumer.no_ack);
        let Some(queue) = self.queues.get_mut(&queue_id) else { return };
        let Some(connection) = self.connections.get_mut(&at.connection) else { return };
        let frame_max = connection.frame_max as usize;
        let Some(channel) = connection.channels.get_mut(&at.channel) else { return };
        channel.last_tag += 1;
        let tag = channel.last_tag;
        let message = &stored.message;
        Method::from(basic::Deliver {
            consumer_tag: consumer.tag.clone(),
            delivery_tag: tag,
            redelivered: stored.redelivered,
            exchange: message.exchange.clone(),
            routing_key: message.routing_key.clone(),
        })
        .write_frame(at.channel, &mut connection.out);
        let properties = properties_of(&stored, queue.kind, version, false);
        write_content(at.channel, &properties, &message.body, frame_max, &mut connection.out);
        if no_ack {
            self.forget(queue_id, &stored);
        } else {
            consumer.unacked += 1;
            queue.unacked += 1;
            let timeout = consumer.timeout.or(queue.settings.consumer_timeout);
            let kind = queue.kind;
            channel.unacked.insert(
                tag,
                Unacked {
                    queue: queue_id,
                    stored,
                    consumer: Some(id),
                    consumer_tag: consumer.tag.clone(),
                    delivered: now,
                },
            );
            self.arm_timeout(at, kind, timeout);
        }
        self.touch(at.connection);
    }

    /// A client has read its output: its consumers may go on.
    pub(super) fn unstall(&mut self, id: super::ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if !std::mem::take(&mut connection.stalled) {
            return;
        }
        let consumers: Vec<_> =
            connection.channels.values().flat_map(|channel| channel.consumers.values().copied()).collect();
        for consumer in consumers {
            self.unblock(consumer);
        }
        self.pump();
    }

    /// A consumer may be able to take something again.
    pub(super) fn unblock(&mut self, id: ConsumerId) {
        let Some(queue) = self.consumers.get(&id).map(|consumer| consumer.queue) else { return };
        if self.queues.get_mut(&queue).is_some_and(|queue| queue.consumers.unblock(id)) {
            self.mark_dirty(queue);
        }
    }
}

/// Returns the encoded properties of a delivery: quorum queues add how often it was given back.
pub(super) fn properties_of(stored: &Stored, kind: QueueKind, version: Version, got: bool) -> Bytes {
    let message = &stored.message;
    let counts = stored.counts;
    let mut added: [Option<(&'static str, u32)>; 2] = [None, None];
    if kind == QueueKind::Quorum {
        if version.is_3_10() {
            // `basic.get` always says it.
            added[0] = (counts.delivery > 0 || got).then_some(("x-delivery-count", counts.delivery));
        } else {
            let acquired = stored.acquired();
            added = [
                (acquired > 0).then_some(("x-acquired-count", acquired)),
                (counts.delivery > 0).then_some(("x-delivery-count", counts.delivery)),
            ];
        }
    }
    if added == [None, None] {
        return message.properties.clone();
    }
    let mut properties = message.decode_properties().unwrap_or_default();
    let mut headers = message.table();
    for (name, count) in added.into_iter().flatten() {
        headers.insert(ShortStr::from_static(name), i64::from(count));
    }
    properties.headers = Some(RawTable::from(headers));
    properties.encode()
}
