//! What RabbitMQ's management API shows.

use serde_json::{Map, Value as Json, json};

use super::connection::{Connection, Mode};
use super::exchange::Destination;
use super::json::to_json;
use super::{Broker, QueueId, VHostId};

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
                    "confirm": channel.mode == Mode::Confirm,
                    "transactional": channel.mode == Mode::Transaction,
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

    pub(crate) fn users_json(&self) -> Vec<Json> {
        let users = self.users.values().map(|user| {
            let (hash, algorithm) = user.password.exported();
            json!({"name": user.name, "password_hash": hash, "hashing_algorithm": algorithm, "tags": user.tags, "limits": {}})
        });
        users.collect()
    }

    pub(crate) fn permissions_json(&self) -> Vec<Json> {
        let mut permissions = Vec::new();
        for user in self.users.values() {
            let mut by_vhost: Vec<_> = user.permissions.iter().collect();
            by_vhost.sort_by_key(|(vhost, _)| *vhost);
            permissions.extend(by_vhost.into_iter().map(|(vhost, permission)| {
                json!({
                    "user": user.name, "vhost": vhost, "configure": permission.configure.text,
                    "write": permission.write.text, "read": permission.read.text,
                })
            }));
        }
        permissions
    }

    pub(crate) fn policies_json(&self, vhost: VHostId) -> Vec<Json> {
        let Some(vhost) = self.vhosts.get(&vhost) else { return Vec::new() };
        let policies = vhost.policies.values().map(|policy| {
            json!({
                "vhost": vhost.name.to_string(), "name": policy.name, "pattern": policy.pattern,
                "apply-to": policy.apply_to, "definition": policy.definition, "priority": policy.priority,
            })
        });
        policies.collect()
    }

    pub(crate) fn exchanges_json(&self, vhost: VHostId) -> Vec<Json> {
        let Some(vhost) = self.vhosts.get(&vhost) else { return Vec::new() };
        let mut exchanges: Vec<_> = vhost.exchanges.values().collect();
        exchanges.sort_by(|one, other| one.name.cmp(&other.name));
        let exchanges = exchanges.into_iter().map(|exchange| {
            let mut json = json!({
                "name": exchange.name.to_string(), "vhost": vhost.name.to_string(), "type": exchange.kind.name(),
                "durable": exchange.durable, "auto_delete": exchange.auto_delete, "internal": exchange.internal,
                "arguments": to_json(&exchange.arguments),
            });
            if let Some(policy) = &exchange.policy {
                json["policy"] = Json::String(policy.clone());
            }
            json
        });
        exchanges.collect()
    }

    /// Returns all bindings, those of the default exchange included.
    pub(crate) fn bindings_json(&self, id: VHostId) -> Vec<Json> {
        let Some(vhost) = self.vhosts.get(&id) else { return Vec::new() };
        let mut bindings = Vec::new();
        for queue in self.queue_ids(id).iter().filter_map(|queue| self.queues.get(queue)) {
            let name = queue.name.to_string();
            bindings.push(json!({
                "source": "", "vhost": vhost.name.to_string(), "destination": name, "destination_type": "queue",
                "routing_key": name, "arguments": {}, "properties_key": name,
            }));
        }
        let mut exchanges: Vec<_> = vhost.exchanges.values().collect();
        exchanges.sort_by(|one, other| one.name.cmp(&other.name));
        for exchange in exchanges {
            for binding in exchange.bindings() {
                let (destination, kind) = match &binding.destination {
                    Destination::Queue(queue) => {
                        (self.queues.get(queue).map(|queue| queue.name.to_string()), "queue")
                    }
                    Destination::Exchange(name) => (Some(name.to_string()), "exchange"),
                };
                let key = binding.key.to_string();
                bindings.push(json!({
                    "source": exchange.name.to_string(), "vhost": vhost.name.to_string(),
                    "destination": destination, "destination_type": kind, "routing_key": key,
                    "arguments": to_json(&binding.arguments),
                    "properties_key": if key.is_empty() { "~" } else { &key },
                }));
            }
        }
        bindings
    }
}

pub(super) fn connection_name(peer: &str, id: super::ConnectionId) -> String {
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
