//! Publishing.

use std::sync::Arc;

use bytes::Bytes;
use redrive_amqp091::{Method, RawTable, ShortStr, basic, reply, write_content};

use crate::broker::access::Right;
use crate::broker::connection::{Content, Mode, StagedPublish};
use crate::broker::events::DropReason;
use crate::broker::failure::{Failure, Outcome};
use crate::broker::message::{Message, header_keys, parse_expiration};
use crate::broker::{At, Broker, ConfirmFault, QueueKind};

/// A body up to this many bytes is copied out of the buffer that it came in: a small message must not keep a large buffer alive.
const COPIED_BODY: usize = 16 * 1024;

impl Broker {
    pub(super) fn publish(&mut self, at: At, publish: &basic::Publish, content: Box<Content>) -> Outcome {
        if publish.immediate {
            return Err(Failure::not_implemented("immediate=true"));
        }
        let limit = self.options.max_message_size;
        if content.size > limit {
            let size = content.size;
            return Err(Failure::precondition(&format!(
                "message size {size} is larger than configured max size {limit}"
            )));
        }
        self.permit(at, Right::Write, "exchange", &publish.exchange)?;
        self.check_target(at, publish)?;
        let message = self.accept(at, publish, content)?;
        let number = self.count_publish(at);
        self.block_publisher(at.connection);
        if let Some(channel) = self.channel(at)
            && channel.mode == Mode::Transaction
        {
            let publish = StagedPublish { message: Arc::new(message), mandatory: publish.mandatory };
            channel.transaction.publishes.push(publish);
            return Ok(());
        }
        if let ConfirmFault::Refuse(left) = self.confirms
            && number.is_some()
        {
            self.confirms = if left > 1 { ConfirmFault::Refuse(left - 1) } else { ConfirmFault::None };
            self.confirm(at, number, false);
            return Ok(());
        }
        let refused = self.deliver_publish(at, &Arc::new(message), publish.mandatory)?;
        self.confirm(at, number, refused.is_none());
        Ok(())
    }

    /// Brings a published message into its queues. Returns the type of a queue that refused it.
    pub(super) fn deliver_publish(
        &mut self,
        at: At,
        message: &Arc<Message>,
        mandatory: bool,
    ) -> Outcome<Option<QueueKind>> {
        if message.exchange.is_empty() && self.deliver_reply(message) {
            return Ok(None);
        }
        let vhost = self.vhost_of(at);
        let Some(queues) = self.route(vhost, &message.exchange, message) else {
            // It was deleted since; only a transaction can come here.
            return Err(self.not_found(at, "exchange", &message.exchange));
        };
        if queues.is_empty() {
            if mandatory {
                self.return_message(at, message);
            } else {
                self.dropped(vhost, &ShortStr::default(), DropReason::Unroutable, message);
            }
            return Ok(None);
        }
        let order = self.options.order;
        let mut queues = queues;
        if !order.keeps_together() && order.choose(2, self.now.millis()) == 1 {
            queues.reverse();
        }
        let mut refused = None;
        for queue in queues {
            refused = self.enqueue(queue, message, Some(at)).err().or(refused);
            if !order.keeps_together() {
                self.pump();
            }
        }
        Ok(refused)
    }

    fn check_target(&self, at: At, publish: &basic::Publish) -> Outcome {
        let vhost = self.vhost(self.vhost_of(at));
        match vhost.exchanges.get(publish.exchange.as_bytes()) {
            None => Err(self.not_found(at, "exchange", &publish.exchange)),
            Some(exchange) if exchange.internal => Err(Failure::refused(&format!(
                "cannot publish to internal exchange '{}' in vhost '{}'",
                publish.exchange, vhost.name
            ))),
            Some(_) => Ok(()),
        }
    }

    /// Checks the properties of a message, and builds it.
    fn accept(&mut self, at: At, publish: &basic::Publish, content: Box<Content>) -> Outcome<Message> {
        let Content { mut properties, encoded, body, .. } = *content;
        let mut changed = false;
        if let Some(claimed) = &properties.user_id {
            let user = self.connections.get(&at.connection).and_then(|connection| connection.user.as_deref());
            let (name, tags) = user.map_or(("", &[][..]), |user| (&user.name, &user.tags[..]));
            if *claimed != name && !tags.iter().any(|tag| tag == "impersonator") {
                return Err(Failure::precondition(&format!(
                    "user_id property set to '{claimed}' but authenticated user was '{name}'"
                )));
            }
        }
        if let Some(expiration) = &properties.expiration {
            parse_expiration(&expiration.to_str()).map_err(|error| {
                Failure::precondition(&format!("invalid expiration '{expiration}': {error}"))
            })?;
        }
        let (mut more_keys, mut blind_keys) = (Vec::new(), Vec::new());
        if let Some(headers) = &properties.headers
            && (headers.contains("CC") || headers.contains("BCC"))
        {
            let mut table = headers.decode();
            for header in ["CC", "BCC"] {
                let keys = header_keys(&table, header)
                    .map_err(|error| Failure::precondition(&format!("invalid message: {error}")))?;
                more_keys.extend(keys.iter().map(ShortStr::detached));
                if header == "BCC" {
                    blind_keys.extend(keys.iter().map(ShortStr::detached));
                }
            }
            if table.remove("BCC").is_some() {
                properties.headers = Some(RawTable::from(table));
                changed = true;
            }
        }
        changed |= self.rewrite_reply_to(at, &mut properties)?;
        let encoded = if changed { properties.encode() } else { Bytes::copy_from_slice(&encoded) };
        let body = if body.len() <= COPIED_BODY { Bytes::copy_from_slice(&body) } else { body };
        let exchange = self.vhost(self.vhost_of(at)).exchanges.get(publish.exchange.as_bytes());
        let exchange = exchange.map_or_else(|| publish.exchange.detached(), |known| known.name.clone());
        let key = self.shared_key(at, &publish.routing_key);
        let mut message = Message::new(exchange, key, more_keys.into(), &properties, encoded, body);
        message.blind_keys = blind_keys.into();
        Ok(message)
    }

    /// Copies a routing key, or shares the copy of the publish before.
    fn shared_key(&mut self, at: At, key: &ShortStr) -> ShortStr {
        let Some(channel) = self.channel(at) else { return key.detached() };
        if channel.last_key != *key {
            channel.last_key = key.detached();
        }
        channel.last_key.clone()
    }

    fn return_message(&mut self, at: At, message: &Message) {
        let Some(connection) = self.connection(at.connection) else { return };
        let frame_max = connection.frame_max as usize;
        Method::from(basic::Return {
            reply_code: reply::NO_ROUTE,
            reply_text: ShortStr::from_static("NO_ROUTE"),
            exchange: message.exchange.clone(),
            routing_key: message.routing_key.clone(),
        })
        .write_frame(at.channel, &mut connection.out);
        write_content(at.channel, &message.properties, &message.body, frame_max, &mut connection.out);
        self.touch(at.connection);
    }
}
