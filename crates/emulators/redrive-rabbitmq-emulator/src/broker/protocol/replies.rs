//! Direct replies: a consumer without a queue, whose address travels in `reply-to`.

use std::sync::Arc;

use redrive_amqp091::{Method, Properties, ShortStr, basic, write_content};

use crate::broker::failure::{Failure, Outcome};
use crate::broker::message::Message;
use crate::broker::{At, Broker, ConnectionId};

/// The name that clients consume from, and set as `reply-to`.
pub(super) const REPLY_TO: &str = "amq.rabbitmq.reply-to";

impl Broker {
    pub(super) fn consume_replies(&mut self, at: At, consume: &basic::Consume, tag: ShortStr) -> Outcome {
        if !consume.no_ack {
            return Err(Failure::precondition("reply consumer cannot acknowledge"));
        }
        let secret = self.next_id();
        let Some(channel) = self.channel(at) else { return Ok(()) };
        if channel.replies.is_some() {
            return Err(Failure::precondition("reply consumer already set"));
        }
        channel.replies = Some((tag.clone(), secret));
        if !consume.no_wait {
            self.send(at, basic::ConsumeOk { consumer_tag: tag });
        }
        Ok(())
    }

    /// Puts the channel's address into a request. Returns whether it was one.
    pub(super) fn rewrite_reply_to(&mut self, at: At, properties: &mut Properties) -> Outcome<bool> {
        if properties.reply_to.as_ref().is_none_or(|reply_to| *reply_to != REPLY_TO) {
            return Ok(false);
        }
        let Some((_, secret)) = self.channel(at).and_then(|channel| channel.replies.clone()) else {
            return Err(Failure::precondition("fast reply consumer does not exist"));
        };
        let address = format!("{REPLY_TO}.{}.{}.{secret}", at.connection.0, at.channel);
        properties.reply_to = Some(ShortStr::truncated(&address));
        Ok(true)
    }

    /// Returns whether an address of direct replies exists.
    pub(super) fn reply_consumer(&self, address: &ShortStr) -> Option<At> {
        let address = address.to_str();
        let mut parts = address.strip_prefix(REPLY_TO)?.strip_prefix('.')?.splitn(3, '.');
        let connection = ConnectionId(parts.next()?.parse().ok()?);
        let channel = parts.next()?.parse().ok()?;
        let secret: u64 = parts.next()?.parse().ok()?;
        let consumer = self.connections.get(&connection)?.channels.get(&channel)?.replies.as_ref()?;
        (consumer.1 == secret).then_some(At { connection, channel })
    }

    /// Delivers a reply; returns false if its key is no such address, or the client does not read its replies.
    pub(super) fn deliver_reply(&mut self, message: &Arc<Message>) -> bool {
        if !message.routing_key.as_bytes().starts_with(REPLY_TO.as_bytes()) {
            return false;
        }
        let Some(at) = self.reply_consumer(&message.routing_key) else { return false };
        let Some(connection) = self.connection(at.connection) else { return false };
        if connection.is_unread() {
            return false;
        }
        let frame_max = connection.frame_max as usize;
        let Some(channel) = connection.channels.get_mut(&at.channel) else { return false };
        let Some((tag, _)) = channel.replies.clone() else { return false };
        channel.last_tag += 1;
        let deliver = basic::Deliver {
            consumer_tag: tag,
            delivery_tag: channel.last_tag,
            redelivered: false,
            exchange: message.exchange.clone(),
            routing_key: message.routing_key.clone(),
        };
        Method::from(deliver).write_frame(at.channel, &mut connection.out);
        write_content(at.channel, &message.properties, &message.body, frame_max, &mut connection.out);
        self.touch(at.connection);
        true
    }
}
