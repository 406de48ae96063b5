//! The ends of consumers, channels, connections, queues and exchanges, and what each takes with it.

use redrive_amqp091::{ShortStr, basic, channel, connection};
use redrive_emulator_host::Timestamp;

use super::connection::{Connection, Phase, Unacked};
use super::events::{DropReason, EventKind};
use super::exchange::Destination;
use super::failure::{Failure, Scope};
use super::queue::settings::{QueueKind, Settings};
use super::settle::Cause;
use super::{At, Broker, Change, ConnectionId, ConsumerId, QueueId, VHostId};

impl Broker {
    /// Registers a client.
    pub(crate) fn connect(&mut self, peer: String, now: Timestamp) -> ConnectionId {
        self.advance(now);
        let id = ConnectionId(self.next_id());
        let frame_max = self.options.frame_max;
        self.connections.insert(id, Connection::new(peer, self.now, frame_max));
        id
    }

    /// The socket of a client is gone.
    pub(crate) fn disconnect(&mut self, id: ConnectionId, now: Timestamp) {
        self.advance(now);
        self.end_connection(id);
        self.connections.remove(&id);
        self.pump();
    }

    /// A method was refused: closes the channel or the connection, and tells the client. `method`: its class and number.
    pub(super) fn fail(&mut self, at: At, failure: &Failure, (class_id, method_id): (u16, u16)) {
        let reply_text = ShortStr::truncated(&failure.text);
        if failure.scope == Scope::Channel && at.channel != 0 {
            self.flush_confirms(at);
            self.end_channel(at);
            let opened = self.now;
            if let Some(connection) = self.connection(at.connection) {
                // Until the client has confirmed it, whatever it sends on this channel is ignored.
                let closing = super::connection::Channel { closing: true, opened, ..Default::default() };
                connection.channels.insert(at.channel, closing);
            }
            self.send(at, channel::Close { reply_code: failure.code, reply_text, class_id, method_id });
        } else {
            // What comes back from one of its channels is not delivered on another.
            if let Some(connection) = self.connection(at.connection) {
                connection.phase = Phase::Closing;
            }
            self.end_connection(at.connection);
            let at = At { channel: 0, ..at };
            self.send(at, connection::Close { reply_code: failure.code, reply_text, class_id, method_id });
        }
    }

    /// Gives back what a connection has, and deletes what is its own.
    pub(super) fn end_connection(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let channels: Vec<u16> = connection.channels.keys().copied().collect();
        connection.held.clear();
        for channel in channels {
            self.end_channel(At { connection: id, channel });
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let mut queues: Vec<_> = std::mem::take(&mut connection.exclusive_queues).into_iter().collect();
        queues.sort_unstable();
        for queue in queues {
            self.delete_queue(queue, DropReason::QueueDeleted);
        }
    }

    /// Removes a channel, its consumers and transaction, and gives back what it has not settled.
    pub(super) fn end_channel(&mut self, at: At) {
        let Some(connection) = self.connections.get_mut(&at.connection) else { return };
        let Some(mut channel) = connection.channels.remove(&at.channel) else { return };
        self.disarm_channel(at, channel.armed);
        let mut unacked = channel.unacked;
        for (_, settled) in channel.transaction.settlements.drain(..) {
            unacked.extend(settled);
        }
        let unacked: Vec<_> = unacked.into_iter().collect();
        let mut consumers: Vec<_> = channel.consumers.values().copied().collect();
        consumers.sort_unstable();
        // Classic queues of 3.10, and those with a single active consumer, take everything back first; elsewhere the next consumer is
        // served in between.
        let is_3_10 = self.version().is_3_10();
        let (first, then): (Vec<_>, Vec<_>) = unacked.into_iter().partition(|(_, unacked)| {
            self.queues.get(&unacked.queue).is_some_and(|queue| {
                queue.kind == QueueKind::Classic && (is_3_10 || queue.settings.single_active_consumer)
            })
        });
        let mut then = then;
        then.sort_by_cached_key(|(tag, unacked)| self.place_at_the_end(*tag, unacked));
        self.give_back_all(at, first, Cause::Crash);
        for consumer in consumers {
            let queue = self.consumers.get(&consumer).map(|consumer| consumer.queue);
            self.remove_consumer(consumer);
            if let Some(queue) = queue.and_then(|queue| self.queues.get_mut(&queue)) {
                queue.consumers.serve();
            }
        }
        self.pump();
        self.give_back_all(at, then, Cause::Crash);
    }

    /// Orders what a channel has in a quorum queue when it ends: consumer by consumer. Each `basic.get` is a consumer of its own, named by
    /// its tag: on 3.10 before the others, on 4.3 after them.
    fn place_at_the_end(&self, tag: u64, unacked: &Unacked) -> (u8, u64, String) {
        let is_quorum = self.queues.get(&unacked.queue).is_some_and(|queue| queue.kind == QueueKind::Quorum);
        match unacked.consumer {
            _ if !is_quorum => (0, 0, String::new()),
            Some(consumer) => (1, consumer.0, String::new()),
            None => (if self.version().is_3_10() { 0 } else { 2 }, 0, tag.to_string()),
        }
    }

    /// Removes a consumer; what it has stays with its channel.
    pub(super) fn remove_consumer(&mut self, id: ConsumerId) {
        let Some(consumer) = self.consumers.remove(&id) else { return };
        if let Some(channel) = self.channel(consumer.at) {
            channel.consumers.remove(consumer.tag.as_bytes());
        }
        let (now, version) = (self.now, self.version());
        let Some(queue) = self.queues.get_mut(&consumer.queue) else { return };
        queue.consumers.remove(id);
        queue.activate_consumer(version);
        if queue.exclusive_consumer == Some(id) {
            queue.exclusive_consumer = None;
        }
        if queue.consumers.is_empty() {
            queue.used = now;
            if queue.auto_delete {
                return self.delete_queue(consumer.queue, DropReason::QueueDeleted);
            }
        }
        self.mark_dirty(consumer.queue);
    }

    /// Deletes a queue with its messages, and ends its consumers.
    pub(super) fn delete_queue(&mut self, id: QueueId, why: DropReason) {
        let Some(mut queue) = self.queues.remove(&id) else { return };
        self.disarm(id, &queue.armed);
        for consumer in queue.consumers.ids().collect::<Vec<_>>() {
            self.cancel_by_server(consumer);
        }
        if let Some(owner) = queue.owner
            && let Some(connection) = self.connection(owner)
        {
            connection.exclusive_queues.remove(&id);
        }
        if let Some(vhost) = self.vhosts.get_mut(&queue.vhost) {
            vhost.queues.remove(queue.name.as_bytes());
        }
        self.unbind_destination(queue.vhost, &Destination::Queue(id));
        if queue.durable && queue.owner.is_none() {
            self.note(|| Change::RemoveQueue { queue: id });
        }
        for stored in queue.ready.drain() {
            self.dropped(queue.vhost, &queue.name, why, &stored.message);
        }
    }

    fn cancel_by_server(&mut self, id: ConsumerId) {
        let Some(consumer) = self.consumers.remove(&id) else { return };
        if let Some(channel) = self.channel(consumer.at) {
            channel.consumers.remove(consumer.tag.as_bytes());
        }
        let tells = self
            .connections
            .get(&consumer.at.connection)
            .is_some_and(|connection| connection.notifies_cancel && connection.phase == Phase::Open);
        if tells {
            self.send(consumer.at, basic::Cancel { consumer_tag: consumer.tag, no_wait: true });
        }
    }

    /// Removes all bindings that lead to a queue or an exchange; exchanges that delete themselves go with their last one.
    pub(super) fn unbind_destination(&mut self, vhost_id: VHostId, destination: &Destination) {
        let Some(vhost) = self.vhosts.get_mut(&vhost_id) else { return };
        let mut removed = Vec::new();
        for exchange in vhost.exchanges.values_mut() {
            for binding in exchange.unbind_all(destination) {
                removed.push((exchange.name.clone(), exchange.durable, binding));
            }
        }
        for (source, durable, binding) in removed {
            if durable {
                self.note(|| Change::RemoveBinding { vhost: vhost_id, source: source.clone(), binding });
            }
            self.delete_if_unused(vhost_id, &source);
        }
    }

    /// Deletes an exchange that deletes itself with its last binding.
    pub(super) fn delete_if_unused(&mut self, vhost: VHostId, name: &ShortStr) {
        let exchange = self.vhosts.get(&vhost).and_then(|vhost| vhost.exchanges.get(name.as_bytes()));
        if exchange.is_some_and(|exchange| exchange.auto_delete && !exchange.is_bound()) {
            self.delete_exchange(vhost, name);
        }
    }

    pub(super) fn delete_exchange(&mut self, vhost_id: VHostId, name: &ShortStr) {
        let Some(vhost) = self.vhosts.get_mut(&vhost_id) else { return };
        let Some(exchange) = vhost.exchanges.remove(name.as_bytes()) else { return };
        if exchange.durable {
            self.note(|| Change::RemoveExchange { vhost: vhost_id, name: name.clone() });
        }
        self.unbind_destination(vhost_id, &Destination::Exchange(name.clone()));
    }

    /// Determines again what policies make of every queue and exchange.
    pub(super) fn apply_policies(&mut self, vhost_id: VHostId) {
        let Some(vhost) = self.vhosts.get(&vhost_id) else { return };
        let ids: Vec<_> = vhost.queues.values().copied().collect();
        let names: Vec<_> = vhost.exchanges.keys().cloned().collect();
        for id in ids {
            self.apply_policy(id);
        }
        let Some(vhost) = self.vhosts.get_mut(&vhost_id) else { return };
        for name in names {
            let policy = vhost.exchange_policy(&name);
            let alternate = policy
                .and_then(|policy| policy.definition.get("alternate-exchange"))
                .and_then(serde_json::Value::as_str)
                .and_then(|name| ShortStr::try_from(name).ok());
            let policy = policy.map(|policy| policy.name.clone());
            if let Some(exchange) = vhost.exchanges.get_mut(name.as_bytes()) {
                exchange.policy = policy;
                exchange.alternate = alternate_of(&exchange.arguments).or(alternate);
            }
        }
        self.pump();
    }

    /// Determines again what holds for a queue.
    pub(super) fn apply_policy(&mut self, id: QueueId) {
        let version = self.version();
        let Some(queue) = self.queues.get_mut(&id) else { return };
        let Some(vhost) = self.vhosts.get(&queue.vhost) else { return };
        let policy = vhost.queue_policy(&queue.name, queue.kind);
        let by_policy =
            policy.map_or_else(Settings::default, |policy| Settings::from_policy(&policy.definition));
        queue.policy = policy.map(|policy| policy.name.clone());
        let settings = queue.by_arguments.under(&by_policy, queue.kind, version);
        if settings.dead_letter_exchange.is_some() && !self.options.dead_lettering {
            let (name, vhost, now) = (queue.name.to_string(), vhost.name.clone(), self.now);
            tracing::warn!(
                queue = name,
                "dead-lettering is off: the queue's dead-letter exchange is ignored"
            );
            self.events.add(now, &vhost, || EventKind::DeadLetteringIgnored { queue: name });
        }
        let before = std::mem::replace(&mut queue.settings, settings);
        if queue.kind == QueueKind::Classic && queue.settings != before {
            self.limit_as_before(id, &before);
        }
        self.mark_dirty(id);
    }

    /// A classic queue applies its new settings one after the other: what is too many for a new limit still overflows as before.
    fn limit_as_before(&mut self, id: QueueId, before: &Settings) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.looked = true;
        let settings = queue.settings.clone();
        queue.settings.overflow = before.overflow;
        queue.settings.max_length_bytes = before.max_length_bytes;
        self.drop_surplus(id);
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.settings.max_length_bytes = settings.max_length_bytes;
        }
        self.drop_surplus(id);
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.settings = settings;
        }
    }

    /// Removes all messages that are ready. Returns how many.
    pub(super) fn purge(&mut self, id: QueueId) -> usize {
        let version = self.version();
        let Some(queue) = self.queues.get_mut(&id) else { return 0 };
        let mut purged = queue.ready.drain();
        let ready = purged.len();
        let mut count = ready;
        purged.extend(std::mem::take(&mut queue.delayed).into_values());
        // 3.10 leaves dead letters that wait for their target.
        if !version.is_3_10() {
            count += queue.undelivered.len();
            purged.extend(std::mem::take(&mut queue.undelivered).into_iter().map(|dying| dying.stored));
        }
        let (vhost, name) = (queue.vhost, queue.name.clone());
        for stored in purged {
            self.forget(id, &stored);
            self.dropped(vhost, &name, DropReason::Purged, &stored.message);
        }
        self.mark_dirty(id);
        count
    }
}

/// Reads the argument `alternate-exchange`.
pub(super) fn alternate_of(arguments: &redrive_amqp091::Table) -> Option<ShortStr> {
    let name = arguments.get("alternate-exchange")?.as_str()?;
    ShortStr::try_from(name).ok()
}
