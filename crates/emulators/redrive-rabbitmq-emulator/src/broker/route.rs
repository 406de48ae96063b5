//! From an exchange into queues.

use std::sync::Arc;

use redrive_amqp091::{ShortStr, Table};

use super::exchange::{Destination, ExchangeKind};
use super::message::{Counts, Message};
use super::queue::ready::Stored;
use super::queue::settings::{Overflow, QueueKind};
use super::reason::Reason;
use super::{At, Broker, Change, QueueId, VHostId};

impl Broker {
    /// Returns the queues that a message reaches, each once; `None` if the exchange does not exist.
    pub(super) fn route(
        &self,
        vhost: VHostId,
        exchange: &ShortStr,
        message: &Message,
    ) -> Option<Vec<QueueId>> {
        let vhost = self.vhosts.get(&vhost)?;
        let mut queues = Vec::new();
        if exchange.is_empty() {
            queues.extend(message.keys().filter_map(|key| vhost.queues.get(key.as_bytes()).copied()));
        } else {
            let first = vhost.exchanges.get(exchange.as_bytes())?;
            let mut headers = None;
            let mut seen = vec![first.name.clone()];
            let mut next = 0;
            while let Some(name) = seen.get(next).cloned() {
                next += 1;
                let Some(exchange) = vhost.exchanges.get(name.as_bytes()) else { continue };
                let mut matched = false;
                // The default exchange routes only what clients publish to it: as an alternate exchange it leads nowhere.
                let headers: &Table = match exchange.kind {
                    ExchangeKind::Headers => headers.get_or_insert_with(|| message.table()),
                    _ => &Table::new(),
                };
                for key in message.keys() {
                    exchange.route(key, headers, |destination| {
                        matched = true;
                        match destination {
                            Destination::Queue(queue) => queues.push(*queue),
                            Destination::Exchange(other) => {
                                if !seen.contains(other) {
                                    seen.push(other.clone());
                                }
                            }
                        }
                    });
                    if matches!(exchange.kind, ExchangeKind::Fanout | ExchangeKind::Headers) {
                        break;
                    }
                }
                if let (false, Some(alternate)) = (matched, &exchange.alternate)
                    && !seen.contains(alternate)
                {
                    seen.push(alternate.clone());
                }
            }
        }
        queues.sort_unstable();
        queues.dedup();
        Some(queues)
    }

    /// Returns whether a queue would refuse a dead letter whose queue keeps it then.
    pub(super) fn is_full(&self, id: QueueId, size: u64) -> bool {
        self.queues.get(&id).is_none_or(|queue| queue.refuses(size) || queue.is_full())
    }

    /// Returns whether a queue refuses what a channel publishes. A quorum queue refuses nothing else: dead letters always fit.
    fn refuses(&mut self, id: QueueId, size: u64, publisher: Option<At>) -> bool {
        let Some(queue) = self.queues.get(&id) else { return false };
        if queue.kind == QueueKind::Classic {
            return queue.refuses(size);
        }
        let Some(channel) = publisher.and_then(|at| {
            self.connections
                .get_mut(&at.connection)
                .and_then(|connection| connection.channels.get_mut(&at.channel))
        }) else {
            return false;
        };
        let known = match channel.publishes_to.get(&id) {
            Some(known) => *known,
            None => {
                if channel.publishes_to.len() == channel.publishes_to.capacity() {
                    channel.publishes_to.retain(|queue, _| self.queues.contains_key(queue));
                }
                let registration = queue.flow.register(queue.is_full());
                channel.publishes_to.insert(id, registration);
                registration
            }
        };
        queue.flow.refuses(known)
    }

    /// Puts a message into a queue. `publisher`: the channel that publishes it; none for a dead letter.
    ///
    /// # Errors
    /// The type of the queue, if it refuses the message.
    pub(super) fn enqueue(
        &mut self,
        id: QueueId,
        message: &Arc<Message>,
        publisher: Option<At>,
    ) -> Result<(), QueueKind> {
        let (now, version) = (self.now, self.version());
        let number = self.next_message;
        self.next_message += 1;
        let refused = self.refuses(id, message.size(), publisher);
        let starts_failed = message.carried.delivery > 0;
        // Of 4.3: a message that failed elsewhere has been delivered before, except if it meets a waiting consumer of a classic queue.
        let is_met = starts_failed
            && self
                .queues
                .get(&id)
                .is_some_and(|queue| queue.kind == QueueKind::Classic && queue.ready.len() == 0)
            && self.next_consumer(id).is_some();
        let redelivered = starts_failed && !is_met;
        let Some(queue) = self.queues.get_mut(&id) else { return Ok(()) };
        let kept = queue.durable && (message.persistent || queue.kind == QueueKind::Quorum);
        let stored = Stored {
            number,
            arrived: now,
            expires: queue.expiry(message.expiration, now),
            not_before: None,
            redelivered,
            // Failures count on; how often it was taken is counted by each queue.
            counts: Counts { delivery: message.carried.delivery, acquired: 0 },
            priority: queue.priority_of(message.priority, version),
            size: queue.size_of(message, version),
            kept: kept && self.changes.is_some(),
            message: Arc::clone(message),
        };
        let kind = queue.kind;
        if refused {
            if queue.settings.overflow == Some(Overflow::RejectPublishDlx) {
                self.die(id, Stored { kept: false, ..stored }, Reason::MaxLength);
            }
            return Err(kind);
        }
        if stored.kept {
            let change = Change::put(id, &stored);
            self.note(|| change);
        }
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.looked |= queue.ready.len() == 0;
            queue.ready.push(stored);
            queue.consumers.serve();
        }
        self.mark_dirty(id);
        Ok(())
    }
}
