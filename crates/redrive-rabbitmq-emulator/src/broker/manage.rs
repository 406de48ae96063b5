//! What RabbitMQ's management API shows and does.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use redrive_amqp091::{Properties, RawTable, ShortStr};
use redrive_emulator_host::Timestamp;
use serde_json::{Map, Value as Json, json};

use super::connection::Connection;
use super::definitions::name;
use super::dispatch::properties_of;
use super::json::{to_json, to_table};
use super::message::Message;
use super::queue::settings::Settings;
use super::reason::Reason;
use super::settle::Cause;
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
    pub(crate) fn queue_json(&self, id: QueueId) -> Option<Json> {
        let queue = self.queues.get(&id)?;
        let counts = self.counts(id);
        let vhost = self.vhosts.get(&queue.vhost)?;
        let policy = queue.policy.as_ref().and_then(|name| vhost.policies.get(name));
        let total = counts.ready + counts.unacked + counts.delayed + counts.dead_letters;
        Some(json!({
            "name": queue.name.to_string(), "vhost": vhost.name.to_string(), "type": queue.kind.name(),
            "durable": queue.durable, "auto_delete": queue.auto_delete, "exclusive": queue.owner.is_some(),
            "arguments": to_json(&queue.arguments), "policy": queue.policy,
            "effective_policy_definition": policy.map_or_else(Map::new, |policy| policy.definition.clone()),
            "messages": total, "messages_ready": counts.ready, "messages_unacknowledged": counts.unacked,
            "messages_delayed": counts.delayed, "messages_dlx": counts.dead_letters,
            "message_bytes_ready": counts.ready_bytes, "consumers": queue.consumers.len(),
            "state": if queue.leaderless { "down" } else { "running" },
            "node": "rabbit@emulator", "leader": if queue.leaderless { Json::Null } else { json!("rabbit@emulator") },
            "members": ["rabbit@emulator"], "online": ["rabbit@emulator"],
        }))
    }

    pub(crate) fn vhosts_json(&self) -> Vec<Json> {
        self.vhosts.keys().filter_map(|id| self.vhost_json(*id)).collect()
    }

    pub(crate) fn vhost_json(&self, id: VHostId) -> Option<Json> {
        let vhost = self.vhosts.get(&id)?;
        let counts: Vec<_> = vhost.queues.values().map(|id| self.counts(*id)).collect();
        let ready: usize = counts.iter().map(|counts| counts.ready).sum();
        let unacked: usize = counts.iter().map(|counts| counts.unacked).sum();
        Some(json!({
            "name": vhost.name.to_string(), "description": "", "tags": [], "default_queue_type": "classic",
            "messages": ready + unacked, "messages_ready": ready, "messages_unacknowledged": unacked,
            "cluster_state": {"rabbit@emulator": "running"}, "tracing": false,
        }))
    }

    /// Returns all virtual hosts, by name.
    pub(crate) fn vhost_ids(&self) -> Vec<VHostId> {
        let mut vhosts: Vec<_> = self.vhosts.iter().collect();
        vhosts.sort_by(|(_, one), (_, other)| one.name.cmp(&other.name));
        vhosts.into_iter().map(|(id, _)| *id).collect()
    }

    /// Its only node. What an emulator does not have is 0: `rabbitmqadmin` refuses an answer without it.
    pub(crate) fn node_json(&self) -> Json {
        let (memory, disk) = match self.alarm.as_deref() {
            None => (false, false),
            Some(reason) => (!reason.contains("disk"), reason.contains("disk")),
        };
        json!({
            "name": "rabbit@emulator", "type": "disc", "running": true, "being_drained": false,
            "mem_alarm": memory, "disk_free_alarm": disk, "mem_limit": 0, "disk_free_limit": 0,
            "uptime": 0, "run_queue": 0, "processors": 1, "os_pid": "1", "fd_total": 0,
            "sockets_total": 0, "proc_total": 0, "rates_mode": "none", "enabled_plugins": [], "applications": [],
        })
    }

    pub(crate) fn overview_json(&self) -> Json {
        let counts: Vec<_> = self.queues.keys().map(|id| self.counts(*id)).collect();
        let ready: usize = counts.iter().map(|counts| counts.ready).sum();
        let unacked: usize = counts.iter().map(|counts| counts.unacked).sum();
        let channels: usize = self.connections.values().map(|connection| connection.channels.len()).sum();
        let exchanges: usize = self.vhosts.values().map(|vhost| vhost.exchanges.len()).sum();
        let number = self.version().number();
        json!({
            "management_version": number, "rabbitmq_version": number, "product_name": "RabbitMQ", "product_version": number,
            "cluster_name": "rabbit@emulator", "node": "rabbit@emulator", "erlang_version": "none",
            "queue_totals": {"messages": ready + unacked, "messages_ready": ready, "messages_unacknowledged": unacked},
            "object_totals": {
                "connections": self.connections.len(), "channels": channels, "exchanges": exchanges,
                "queues": self.queues.len(), "consumers": self.consumers.len(),
            },
            "message_stats": {}, "listeners": [], "contexts": [], "exchange_types": [
                {"name": "direct", "enabled": true}, {"name": "fanout", "enabled": true},
                {"name": "topic", "enabled": true}, {"name": "headers", "enabled": true},
            ],
        })
    }

    pub(crate) fn connections_json(&self) -> Vec<Json> {
        let connections = self.connection_ids().into_iter().filter_map(|id| {
            let connection = self.connections.get(&id)?;
            let (peer_host, peer_port) = host_and_port(&connection.peer);
            Some(json!({
                "name": connection_name(&connection.peer, id), "peer_host": peer_host, "peer_port": peer_port,
                "user": user_of(connection), "vhost": self.vhost_name(connection), "channels": connection.channels.len(), "connected_at": connection.connected.millis(),
                "client_properties": to_json(&connection.client_properties),
                "state": if connection.blocked { "blocked" } else { "running" },
                "frame_max": connection.frame_max, "channel_max": connection.channel_max, "timeout": connection.heartbeat,
                "node": "rabbit@emulator", "protocol": "AMQP 0-9-1",
            }))
        });
        connections.collect()
    }

    fn vhost_name(&self, connection: &Connection) -> Option<String> {
        self.vhosts.get(&connection.vhost).map(|vhost| vhost.name.to_string())
    }

    pub(crate) fn channels_json(&self) -> Vec<Json> {
        let mut channels = Vec::new();
        for id in self.connection_ids() {
            let Some(connection) = self.connections.get(&id) else { continue };
            let name = connection_name(&connection.peer, id);
            let (user, vhost) = (user_of(connection), self.vhost_name(connection));
            let (peer_host, peer_port) = host_and_port(&connection.peer);
            channels.extend(connection.channels.iter().map(|(number, channel)| {
                json!({
                    "name": format!("{name} ({number})"), "number": number, "user": user, "vhost": vhost,
                    "connection_details": {"name": name, "peer_host": peer_host, "peer_port": peer_port},
                    "consumer_count": channel.consumers.len(), "messages_unacknowledged": channel.unacked.len(),
                    "prefetch_count": channel.prefetch, "global_prefetch_count": channel.prefetch_global,
                    "confirm": channel.mode == super::connection::Mode::Confirm,
                    "transactional": channel.mode == super::connection::Mode::Transaction,
                    "messages_unconfirmed": channel.confirms.len(), "node": "rabbit@emulator", "state": "running",
                })
            }));
        }
        channels
    }

    pub(crate) fn consumers_json(&self, vhost: Option<VHostId>) -> Vec<Json> {
        let mut consumers: Vec<_> = self.consumers.iter().collect();
        consumers.sort_by_key(|(id, _)| **id);
        let consumers = consumers.into_iter().filter_map(|(id, consumer)| {
            let queue = self.queues.get(&consumer.queue)?;
            let of = self.vhosts.get(&queue.vhost)?;
            let connection = self.connections.get(&consumer.at.connection)?;
            let name = connection_name(&connection.peer, consumer.at.connection);
            let (peer_host, peer_port) = host_and_port(&connection.peer);
            let default = self.options.consumer_timeout.map(|timeout| timeout.as_millis() as u64);
            vhost.is_none_or(|vhost| vhost == queue.vhost).then(|| {
                json!({
                    "consumer_tag": consumer.tag.to_string(), "ack_required": !consumer.no_ack,
                    "exclusive": consumer.exclusive, "prefetch_count": consumer.prefetch,
                    "arguments": to_json(&consumer.arguments), "active": !queue.consumers.is_blocked(*id),
                    "queue": {"name": queue.name.to_string(), "vhost": of.name.to_string()},
                    "consumer_timeout": consumer.timeout.or(queue.settings.consumer_timeout).or(default),
                    "channel_details": {
                        "name": format!("{name} ({})", consumer.at.channel), "number": consumer.at.channel,
                        "connection_name": name, "user": user_of(connection), "node": "rabbit@emulator",
                        "peer_host": peer_host, "peer_port": peer_port,
                    },
                })
            })
        });
        consumers.collect()
    }

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

fn connection_name(peer: &str, id: super::ConnectionId) -> String {
    format!("{peer} -> emulator ({})", id.0)
}

fn user_of(connection: &Connection) -> Option<&str> {
    connection.user.as_ref().map(|user| &*user.name)
}

/// A connection in the same process has no port.
fn host_and_port(peer: &str) -> (String, u16) {
    match peer.parse::<std::net::SocketAddr>() {
        Ok(address) => (address.ip().to_string(), address.port()),
        Err(_) => (peer.to_owned(), 0),
    }
}

fn message_json(
    message: &Message,
    properties: &Properties,
    redelivered: bool,
    left: usize,
    base64: bool,
) -> Json {
    let text = std::str::from_utf8(&message.body).ok().filter(|_| !base64);
    let (payload, encoding) = match text {
        Some(text) => (text.to_owned(), "string"),
        None => (STANDARD.encode(&message.body), "base64"),
    };
    json!({
        "payload_bytes": message.body.len(), "redelivered": redelivered, "exchange": message.exchange.to_string(),
        "routing_key": message.routing_key.to_string(), "message_count": left, "properties": properties_json(properties),
        "payload": payload, "payload_encoding": encoding,
    })
}

fn properties_json(properties: &Properties) -> Json {
    let mut json = Map::new();
    let texts = [
        ("content_type", &properties.content_type),
        ("content_encoding", &properties.content_encoding),
        ("correlation_id", &properties.correlation_id),
        ("reply_to", &properties.reply_to),
        ("expiration", &properties.expiration),
        ("message_id", &properties.message_id),
        ("type", &properties.kind),
        ("user_id", &properties.user_id),
        ("app_id", &properties.app_id),
        ("cluster_id", &properties.cluster_id),
    ];
    for (key, text) in texts {
        if let Some(text) = text {
            json.insert(key.to_owned(), Json::String(text.to_string()));
        }
    }
    for (key, number) in [("delivery_mode", properties.delivery_mode), ("priority", properties.priority)] {
        if let Some(number) = number {
            json.insert(key.to_owned(), number.into());
        }
    }
    if let Some(timestamp) = properties.timestamp {
        json.insert("timestamp".to_owned(), timestamp.into());
    }
    if let Some(headers) = &properties.headers {
        json.insert("headers".to_owned(), to_json(&headers.decode()));
    }
    Json::Object(json)
}

fn properties_of_json(json: Option<&Map<String, Json>>) -> Result<Properties, String> {
    let Some(json) = json else { return Ok(Properties::default()) };
    let text = |key: &str| json.get(key).and_then(Json::as_str).map(name).transpose();
    let small = |key: &str| {
        let number = json.get(key).and_then(Json::as_u64);
        number.map(|number| u8::try_from(number).map_err(|_| format!("{key} is too large"))).transpose()
    };
    Ok(Properties {
        content_type: text("content_type")?,
        content_encoding: text("content_encoding")?,
        headers: json
            .get("headers")
            .and_then(Json::as_object)
            .map(|headers| RawTable::from(to_table(headers))),
        delivery_mode: small("delivery_mode")?,
        priority: small("priority")?,
        correlation_id: text("correlation_id")?,
        reply_to: text("reply_to")?,
        expiration: text("expiration")?,
        message_id: text("message_id")?,
        timestamp: json.get("timestamp").and_then(Json::as_u64),
        kind: text("type")?,
        user_id: text("user_id")?,
        app_id: text("app_id")?,
        cluster_id: text("cluster_id")?,
    })
}
