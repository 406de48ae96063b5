//! Consuming, and asking for single messages.

use redrive_amqp091::{Method, ShortStr, Value, basic, write_content};

use super::replies::REPLY_TO;
use crate::broker::access::Right;
use crate::broker::connection::{Consumer, Unacked};
use crate::broker::dispatch::properties_of;
use crate::broker::failure::{Failure, Outcome};
use crate::broker::queue::settings::QueueKind;
use crate::broker::reason::Reason;
use crate::broker::{At, Broker, ConsumerId};

impl Broker {
    pub(super) fn qos(&mut self, at: At, qos: &basic::Qos) -> Outcome {
        if qos.prefetch_size != 0 {
            let size = qos.prefetch_size;
            return Err(Failure::not_implemented(&format!("prefetch_size!=0 ({size})")));
        }
        // 4.3 has no limit for a whole channel: it limits each consumer.
        let global = qos.global && self.version().is_3_10();
        let Some(channel) = self.channel(at) else { return Ok(()) };
        if global {
            channel.prefetch_global = qos.prefetch_count;
            let consumers: Vec<_> = channel.consumers.values().copied().collect();
            for consumer in consumers {
                self.unblock(consumer);
            }
        } else {
            channel.prefetch = qos.prefetch_count;
        }
        self.send(at, basic::QosOk {});
        Ok(())
    }

    pub(super) fn consume(&mut self, at: At, consume: &basic::Consume) -> Outcome {
        let tag = if consume.consumer_tag.is_empty() {
            let name = format!("amq.ctag-{}", self.generated_name());
            ShortStr::truncated(&name)
        } else {
            consume.consumer_tag.detached()
        };
        if consume.queue == REPLY_TO {
            return self.consume_replies(at, consume, tag);
        }
        let name = self.queue_or_last(at, &consume.queue)?;
        self.permit(at, Right::Read, "queue", &name)?;
        let id = self.find_queue(at, &name)?;
        let version = self.version();
        let vhost = self.vhost(self.vhost_of(at)).name.clone();
        let Some(channel) = self.connections.get(&at.connection).and_then(|c| c.channels.get(&at.channel))
        else {
            return Ok(());
        };
        if channel.consumers.contains_key(tag.as_bytes()) {
            return Err(Failure::not_allowed(&format!("attempt to reuse consumer tag '{tag}'")));
        }
        let (prefetch, global) = (channel.prefetch, channel.prefetch_global);
        let arguments = consume.arguments.decode();
        let priority = match arguments.get("x-priority") {
            None => 0,
            Some(value) => value.as_i64().ok_or_else(|| {
                Failure::precondition("the consumer argument x-priority must be an integer")
            })?,
        };
        let timeout = arguments.get("x-consumer-timeout").and_then(Value::as_i64);
        let Some(queue) = self.queues.get(&id) else { return Ok(()) };
        if queue.kind == QueueKind::Quorum && global > 0 {
            return Err(Failure::not_implemented(&format!(
                "queue '{name}' in vhost '{vhost}' does not support global qos"
            )));
        }
        if queue.kind == QueueKind::Classic && timeout.is_some() && !version.is_3_10() {
            return Err(Failure::precondition(&format!(
                "invalid arg 'x-consumer-timeout' for queue '{name}' in vhost '{vhost}' of queue type rabbit_classic_queue"
            )));
        }
        // Quorum queues ignore it.
        let taken = queue.kind == QueueKind::Classic
            && (queue.exclusive_consumer.is_some()
                || consume.exclusive
                    && (!queue.consumers.is_empty() || queue.settings.single_active_consumer));
        if taken {
            return Err(Failure::refused(&format!("queue '{name}' in vhost '{vhost}' in exclusive use")));
        }
        let consumer = Consumer {
            at,
            tag: tag.clone(),
            queue: id,
            no_ack: consume.no_ack,
            exclusive: consume.exclusive,
            priority,
            prefetch,
            unacked: 0,
            arguments,
            timeout: timeout.and_then(|timeout| u64::try_from(timeout).ok()).filter(|_| !version.is_3_10()),
        };
        if !consume.no_wait {
            self.send(at, basic::ConsumeOk { consumer_tag: tag.clone() });
        }
        self.add_consumer(consumer, tag);
        Ok(())
    }

    fn add_consumer(&mut self, consumer: Consumer, tag: ShortStr) {
        let (id, version) = (ConsumerId(self.next_id()), self.version());
        let (at, queue_id) = (consumer.at, consumer.queue);
        if let Some(channel) = self.channel(at) {
            channel.consumers.insert(tag, id);
        }
        if let Some(queue) = self.queues.get_mut(&queue_id) {
            queue.consumers.add(id, consumer.priority);
            queue.activate_consumer(version);
            queue.had_consumer = true;
            if consumer.exclusive {
                queue.exclusive_consumer = Some(id);
            }
        }
        self.consumers.insert(id, consumer);
        self.mark_dirty(queue_id);
    }

    pub(super) fn cancel(&mut self, at: At, cancel: basic::Cancel) -> Outcome {
        let Some(channel) = self.channel(at) else { return Ok(()) };
        let id = channel.consumers.get(cancel.consumer_tag.as_bytes()).copied();
        if channel.replies.as_ref().is_some_and(|(tag, _)| *tag == cancel.consumer_tag) {
            channel.replies = None;
        }
        if let Some(id) = id {
            self.cancel_consumer(id);
        }
        if !cancel.no_wait {
            self.send(at, basic::CancelOk { consumer_tag: cancel.consumer_tag });
        }
        Ok(())
    }

    /// RabbitMQ 3.10 does not look at a classic queue when its single active consumer is cancelled: the next one waits until something is
    /// given back, another consumer comes, or a channel with a consumer ends.
    fn cancel_consumer(&mut self, id: ConsumerId) {
        let Some(queue_id) = self.consumers.get(&id).map(|consumer| consumer.queue) else { return };
        let active = |broker: &Self| broker.queues.get(&queue_id).and_then(|queue| queue.consumers.active());
        let was_active = active(self) == Some(id);
        self.remove_consumer(id);
        let is_3_10 = self.version().is_3_10();
        if let Some(queue) = self.queues.get_mut(&queue_id)
            && was_active
            && is_3_10
            && queue.kind == QueueKind::Classic
        {
            queue.consumers.wait();
        }
    }

    pub(super) fn get(&mut self, at: At, get: &basic::Get) -> Outcome {
        let name = self.queue_or_last(at, &get.queue)?;
        self.permit(at, Right::Read, "queue", &name)?;
        let id = self.find_queue(at, &name)?;
        let (now, version) = (self.now, self.version());
        let vhost = self.vhost(self.vhost_of(at)).name.clone();
        let Some(queue) = self.queues.get_mut(&id) else { return Ok(()) };
        if queue.kind == QueueKind::Quorum && queue.settings.single_active_consumer {
            return Err(Failure::locked(&format!(
                "cannot obtain access to locked queue '{name}' in vhost '{vhost}'. basic.get operations are not supported by {} queues with single active consumer",
                if version.is_3_10() { "quorum" } else { "<<\"quorum\">>" }
            )));
        }
        queue.used = now;
        self.mark_dirty(id);
        let Some(queue) = self.queues.get_mut(&id).filter(|queue| !queue.leaderless) else {
            return Ok(());
        };
        let Some(stored) = queue.ready.pop() else {
            self.send(at, basic::GetEmpty::default());
            return Ok(());
        };
        let kind = queue.kind;
        queue.looked = true;
        if !get.no_ack {
            queue.unacked += 1;
        }
        let mut expired = Vec::new();
        if kind == QueueKind::Classic || get.no_ack {
            // What comes to the head too late is not counted any more; a quorum queue looks at it when the message is settled.
            expired.extend(std::iter::from_fn(|| queue.pop_expired(now, version)));
        }
        let message_count = u32::try_from(queue.ready.len()).unwrap_or(u32::MAX);
        for stored in expired {
            self.die(id, stored, Reason::Expired);
        }
        let Some(connection) = self.connections.get_mut(&at.connection) else { return Ok(()) };
        let frame_max = connection.frame_max as usize;
        let Some(channel) = connection.channels.get_mut(&at.channel) else { return Ok(()) };
        channel.last_tag += 1;
        let tag = channel.last_tag;
        Method::from(basic::GetOk {
            delivery_tag: tag,
            redelivered: stored.redelivered,
            exchange: stored.message.exchange.clone(),
            routing_key: stored.message.routing_key.clone(),
            message_count,
        })
        .write_frame(at.channel, &mut connection.out);
        let properties = properties_of(&stored, kind, version, true);
        write_content(at.channel, &properties, &stored.message.body, frame_max, &mut connection.out);
        if get.no_ack {
            self.forget(id, &stored);
        } else {
            channel.unacked.insert(
                tag,
                Unacked {
                    queue: id,
                    stored,
                    consumer: None,
                    consumer_tag: ShortStr::default(),
                    delivered: now,
                },
            );
            if version.is_3_10() {
                self.arm_timeout(at, kind, None);
            }
        }
        self.touch(at.connection);
        Ok(())
    }
}
