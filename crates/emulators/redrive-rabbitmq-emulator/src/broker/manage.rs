//! What RabbitMQ's management API does.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use redrive_amqp091::{Properties, ShortStr};
use redrive_emulator_host::Timestamp;
use serde_json::{Map, Value as Json, json};

use super::definitions::name;
use super::dispatch::properties_of;
use super::message::Message;
use super::message_json::{message_json, properties_of_json};
use super::queue::settings::Settings;
use super::reason::Reason;
use super::settle::Cause;
use super::shown::connection_name;
use super::{Broker, QueueId, VHostId, Version};

/// What happens to messages that were looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AckMode {
    AckRequeue,
    RejectRequeue,
    Ack,
    Reject,
}

impl AckMode {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "ack_requeue_true" => Some(Self::AckRequeue),
            "reject_requeue_true" => Some(Self::RejectRequeue),
            "ack_requeue_false" => Some(Self::Ack),
            "reject_requeue_false" => Some(Self::Reject),
            _ => None,
        }
    }
}

impl Broker {
    /// Closes the connection of this name. Returns false if there is none.
    pub(crate) fn close_named(&mut self, wanted: &str, reason: &str, now: Timestamp) -> bool {
        let found = self
            .connection_ids()
            .into_iter()
            .find(|id| self.connections.get(id).is_some_and(|one| connection_name(&one.peer, *id) == wanted));
        if let Some(id) = found {
            self.close_by_operator(id, reason, now);
        }
        found.is_some()
    }

    pub(crate) fn user_named(&self, name: &str) -> Option<&super::access::User> {
        self.users.get(name)
    }

    pub(crate) fn remove_user(&mut self, name: &str) -> bool {
        self.users.remove(name).is_some()
    }

    pub(crate) fn remove_permission(&mut self, user: &str, vhost: &str) -> bool {
        self.users.get_mut(user).is_some_and(|user| user.permissions.remove(vhost).is_some())
    }

    /// Removes a virtual host with everything in it.
    pub(crate) fn remove_vhost(&mut self, id: VHostId, now: Timestamp) {
        self.advance(now);
        for connection in self.connection_ids() {
            if self.connections.get(&connection).is_some_and(|connection| connection.vhost == id) {
                self.close_by_operator(connection, "vhost is deleted", now);
            }
        }
        for queue in self.queue_ids(id) {
            self.delete_queue(queue, super::DropReason::QueueDeleted);
        }
        self.pump();
        let exchanges: Vec<_> =
            self.vhosts.get(&id).into_iter().flat_map(|vhost| vhost.exchanges.keys().cloned()).collect();
        for exchange in exchanges {
            self.delete_exchange(id, &exchange);
        }
        if let Some(vhost) = self.vhosts.remove(&id) {
            for user in self.users.values_mut() {
                user.permissions.remove(&*vhost.name.to_str());
            }
        }
        // What still refers to it belongs to connections that end.
        self.vhosts.entry(VHostId(0)).or_insert_with(|| super::vhost::VHost::new(ShortStr::default()));
        for connection in self.connections.values_mut().filter(|connection| connection.vhost == id) {
            connection.vhost = VHostId(0);
        }
    }

    pub(crate) fn remove_queue(&mut self, id: QueueId, now: Timestamp) {
        self.advance(now);
        self.delete_queue(id, super::DropReason::QueueDeleted);
        self.pump();
    }

    pub(crate) fn purge_by_operator(&mut self, id: QueueId, now: Timestamp) {
        self.advance(now);
        self.purge(id);
        self.pump();
    }

    pub(crate) fn remove_exchange(&mut self, vhost: VHostId, name: &ShortStr, now: Timestamp) -> bool {
        self.advance(now);
        let there =
            self.vhosts.get(&vhost).is_some_and(|vhost| vhost.exchanges.contains_key(name.as_bytes()));
        self.delete_exchange(vhost, name);
        self.pump();
        there
    }

    pub(crate) fn remove_binding_by_operator(
        &mut self,
        vhost: VHostId,
        source: &ShortStr,
        binding: &super::exchange::Binding,
    ) -> bool {
        let exchange =
            self.vhosts.get_mut(&vhost).and_then(|vhost| vhost.exchanges.get_mut(source.as_bytes()));
        let Some(exchange) = exchange else { return false };
        let durable = exchange.durable;
        let removed = exchange.unbind(binding);
        if removed && durable {
            let (source, binding) = (source.clone(), binding.clone());
            self.note(|| super::Change::RemoveBinding { vhost, source, binding });
        }
        self.delete_if_unused(vhost, source);
        removed
    }

    /// Takes up to `count` messages, and puts them back or not.
    pub(crate) fn get_messages(
        &mut self,
        id: QueueId,
        count: usize,
        mode: AckMode,
        base64: bool,
        now: Timestamp,
    ) -> Vec<Json> {
        self.advance(now);
        let version = self.version();
        let mut taken = Vec::new();
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.used = now;
            while taken.len() < count
                && let Some(stored) = queue.ready.pop()
            {
                let left = queue.ready.len();
                taken.push((stored, left, queue.kind));
            }
        }
        let mut shown = Vec::new();
        for (stored, left, kind) in taken {
            let encoded = properties_of(&stored, kind, version, true);
            let properties = Properties::decode(&encoded).unwrap_or_default();
            shown.push(message_json(&stored.message, &properties, stored.redelivered, left, base64));
            match mode {
                AckMode::AckRequeue => self.give_back(id, stored, Cause::Nack, None),
                AckMode::RejectRequeue => self.give_back(id, stored, Cause::Reject, None),
                AckMode::Ack => self.forget(id, &stored),
                AckMode::Reject => self.die(id, stored, Reason::Rejected),
            }
        }
        self.mark_dirty(id);
        self.pump();
        shown
    }

    /// Publishes a message; returns whether it reached a queue.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn publish_by_operator(
        &mut self,
        vhost: VHostId,
        exchange: &str,
        call: &Json,
        now: Timestamp,
    ) -> Result<bool, String> {
        self.advance(now);
        let text = |key: &str| call.get(key).and_then(Json::as_str);
        let exchange = name(if exchange == "amq.default" { "" } else { exchange })?;
        let key = name(text("routing_key").ok_or("routing_key is missing")?)?;
        let payload = text("payload").ok_or("payload is missing")?;
        let body = match text("payload_encoding") {
            Some("base64") => {
                STANDARD.decode(payload).map_err(|error| format!("the payload is not base64: {error}"))?
            }
            _ => payload.as_bytes().to_vec(),
        };
        let properties = properties_of_json(call.get("properties").and_then(Json::as_object))?;
        let (encoded, body) = (properties.encode(), Bytes::from(body));
        let message = Message::new(exchange.clone(), key, Box::default(), &properties, encoded, body);
        let queues = self
            .route(vhost, &exchange, &message)
            .ok_or_else(|| format!("there is no exchange '{exchange}'"))?;
        let message = Arc::new(message);
        for queue in &queues {
            // An operator is not told of a queue that is full.
            let _ = self.enqueue(*queue, &message, None);
        }
        self.pump();
        Ok(!queues.is_empty())
    }

    /// Returns whether a policy may have this key.
    pub(crate) fn is_known_policy_key(key: &str, version: Version) -> bool {
        if version.is_3_10() && (key.starts_with("delayed-retry") || key == "consumer-timeout") {
            return false;
        }
        let mut definition = Map::new();
        for value in [json!(1), json!("all"), json!("drop-head"), json!("at-least-once")] {
            definition.insert(key.to_owned(), value);
            if Settings::from_policy(&definition) != Settings::default() {
                return true;
            }
        }
        matches!(
            key,
            "alternate-exchange"
                | "queue-mode"
                | "queue-version"
                | "ha-mode"
                | "ha-params"
                | "ha-sync-mode"
                | "max-in-memory-length"
                | "max-in-memory-bytes"
                | "target-group-size"
                | "queue-leader-locator"
                | "federation-upstream"
                | "federation-upstream-set"
        )
    }
}
