//! RabbitMQ's exported definitions: what exists, without messages.

use redrive_amqp091::ShortStr;
use redrive_emulator_host::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value as Json, json};

use super::access::{Algorithm, Password, Pattern, Permission};
use super::exchange::{Binding, Destination, Exchange, ExchangeKind};
use super::json::{to_json, to_table};
use super::lifecycle::alternate_of;
use super::protocol::queues::{Declared, NewQueue};
use super::vhost::Policy;
use super::{Broker, Change, VHostId};

/// The JSON of `rabbitmqctl export_definitions` and of `/api/definitions`. Keys that are not known are ignored.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Definitions {
    pub(crate) users: Vec<UserDefinition>,
    pub(crate) vhosts: Vec<VHostDefinition>,
    pub(crate) permissions: Vec<PermissionDefinition>,
    pub(crate) policies: Vec<PolicyDefinition>,
    pub(crate) exchanges: Vec<ExchangeDefinition>,
    pub(crate) queues: Vec<QueueDefinition>,
    pub(crate) bindings: Vec<BindingDefinition>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct UserDefinition {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) password: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) password_hash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hashing_algorithm: Option<String>,
    /// A list, or, from older versions, a text with commas.
    #[serde(default)]
    pub(crate) tags: Json,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct VHostDefinition {
    pub(crate) name: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PermissionDefinition {
    pub(crate) user: String,
    #[serde(default = "default_vhost")]
    pub(crate) vhost: String,
    pub(crate) configure: String,
    pub(crate) write: String,
    pub(crate) read: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PolicyDefinition {
    #[serde(default = "default_vhost")]
    pub(crate) vhost: String,
    pub(crate) name: String,
    pub(crate) pattern: String,
    #[serde(rename = "apply-to", default = "everything")]
    pub(crate) apply_to: String,
    #[serde(default)]
    pub(crate) priority: i64,
    pub(crate) definition: Map<String, Json>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ExchangeDefinition {
    pub(crate) name: String,
    #[serde(default = "default_vhost")]
    pub(crate) vhost: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default = "yes", deserialize_with = "boolean")]
    pub(crate) durable: bool,
    #[serde(default, deserialize_with = "boolean")]
    pub(crate) auto_delete: bool,
    #[serde(default, deserialize_with = "boolean")]
    pub(crate) internal: bool,
    #[serde(default)]
    pub(crate) arguments: Map<String, Json>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct QueueDefinition {
    pub(crate) name: String,
    #[serde(default = "default_vhost")]
    pub(crate) vhost: String,
    #[serde(default = "yes", deserialize_with = "boolean")]
    pub(crate) durable: bool,
    #[serde(default, deserialize_with = "boolean")]
    pub(crate) auto_delete: bool,
    #[serde(default)]
    pub(crate) arguments: Map<String, Json>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BindingDefinition {
    pub(crate) source: String,
    #[serde(default = "default_vhost")]
    pub(crate) vhost: String,
    pub(crate) destination: String,
    pub(crate) destination_type: String,
    #[serde(default)]
    pub(crate) routing_key: String,
    #[serde(default)]
    pub(crate) arguments: Map<String, Json>,
}

fn default_vhost() -> String {
    "/".to_owned()
}

fn everything() -> String {
    "all".to_owned()
}

fn yes() -> bool {
    true
}

/// Reads `true`, or `"true"`, which `rabbitmqadmin` sends.
fn boolean<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    match Json::deserialize(from)? {
        Json::Bool(value) => Ok(value),
        Json::String(text) if text == "true" => Ok(true),
        Json::String(text) if text == "false" => Ok(false),
        other => Err(serde::de::Error::custom(format!("{other} is neither true nor false"))),
    }
}

/// Reads a name.
///
/// # Errors
/// If it is too long.
pub(crate) fn name(text: &str) -> Result<ShortStr, String> {
    ShortStr::try_from(text).map_err(|error| format!("'{text}': {error}"))
}

impl Broker {
    /// Adds everything that is defined; what exists already stays, or is replaced where RabbitMQ does so (users, permissions,
    /// policies).
    ///
    /// # Errors
    /// What is wrong with which definition. Those before it were applied.
    pub(crate) fn apply_definitions(
        &mut self,
        definitions: &Definitions,
        now: Timestamp,
    ) -> Result<(), String> {
        self.advance(now);
        for vhost in &definitions.vhosts {
            name(&vhost.name)?;
            self.add_vhost(&vhost.name);
        }
        for user in &definitions.users {
            self.define_user(user)?;
        }
        for permission in &definitions.permissions {
            self.define_permission(permission)?;
        }
        for policy in &definitions.policies {
            self.define_policy(policy, now)?;
        }
        for exchange in &definitions.exchanges {
            self.define_exchange(exchange)
                .map_err(|error| format!("exchange '{}': {error}", exchange.name))?;
        }
        for queue in &definitions.queues {
            self.define_queue(queue).map_err(|error| format!("queue '{}': {error}", queue.name))?;
        }
        for binding in &definitions.bindings {
            self.define_binding(binding).map_err(|error| {
                format!("binding of '{}' to '{}': {error}", binding.source, binding.destination)
            })?;
        }
        self.pump();
        self.note_definitions();
        Ok(())
    }

    pub(crate) fn find_vhost(&self, name: &str) -> Result<VHostId, String> {
        self.vhost_named(name).ok_or_else(|| format!("there is no virtual host '{name}'"))
    }

    pub(crate) fn define_user(&mut self, user: &UserDefinition) -> Result<(), String> {
        let password = match (&user.password, &user.password_hash) {
            (Some(password), _) => Password::Plain(password.clone()),
            (None, Some(hash)) => {
                let algorithm = match user.hashing_algorithm.as_deref() {
                    None | Some("rabbit_password_hashing_sha256") => Algorithm::Sha256,
                    Some("rabbit_password_hashing_sha512") => Algorithm::Sha512,
                    Some(other) => {
                        return Err(format!(
                            "user '{}': passwords hashed by {other} cannot be checked",
                            user.name
                        ));
                    }
                };
                Password::Hashed { hash: hash.clone(), algorithm }
            }
            (None, None) => {
                return Err(format!("user '{}' has neither password nor password_hash", user.name));
            }
        };
        let tags = match &user.tags {
            Json::String(tags) => {
                tags.split(',').map(|tag| tag.trim().to_owned()).filter(|tag| !tag.is_empty()).collect()
            }
            Json::Array(tags) => tags.iter().filter_map(|tag| tag.as_str().map(str::to_owned)).collect(),
            _ => Vec::new(),
        };
        self.add_user(&user.name, password, tags);
        Ok(())
    }

    pub(crate) fn define_permission(&mut self, permission: &PermissionDefinition) -> Result<(), String> {
        self.find_vhost(&permission.vhost)?;
        if !self.users.contains_key(&permission.user) {
            return Err(format!("there is no user '{}'", permission.user));
        }
        let rights = Permission {
            configure: Pattern::parse(&permission.configure)?,
            write: Pattern::parse(&permission.write)?,
            read: Pattern::parse(&permission.read)?,
        };
        self.set_permission(&permission.user, &permission.vhost, rights);
        Ok(())
    }

    pub(crate) fn define_policy(&mut self, policy: &PolicyDefinition, now: Timestamp) -> Result<(), String> {
        let vhost = self.find_vhost(&policy.vhost)?;
        let PolicyDefinition { name, pattern, apply_to, priority, definition, .. } = policy.clone();
        let number = |key: &str| definition.get(key).and_then(Json::as_u64);
        if let (Some(min), Some(max)) = (number("delayed-retry-min"), number("delayed-retry-max"))
            && max < min
        {
            return Err(format!("delayed-retry-max {max} is below delayed-retry-min {min}"));
        }
        if self.version().is_3_10()
            && definition.get("delivery-limit").and_then(Json::as_i64).is_some_and(|limit| limit < 0)
        {
            return Err("delivery-limit is negative".to_owned());
        }
        let policy = Policy::new(name, pattern, apply_to, priority, definition)?;
        self.set_policy(vhost, policy, now);
        Ok(())
    }

    pub(crate) fn define_exchange(&mut self, definition: &ExchangeDefinition) -> Result<(), String> {
        let vhost = self.find_vhost(&definition.vhost)?;
        let name = name(&definition.name)?;
        if self.vhost(vhost).exchanges.contains_key(name.as_bytes()) {
            return Ok(());
        }
        let kind = ExchangeKind::parse(&definition.kind)
            .ok_or_else(|| format!("unknown exchange type '{}'", definition.kind))?;
        let arguments = to_table(&definition.arguments);
        let mut exchange = Exchange::new(name, kind);
        exchange.durable = definition.durable;
        exchange.auto_delete = definition.auto_delete;
        exchange.internal = definition.internal;
        exchange.alternate = alternate_of(&arguments);
        exchange.arguments = arguments;
        self.add_exchange(vhost, exchange);
        Ok(())
    }

    pub(crate) fn define_queue(&mut self, definition: &QueueDefinition) -> Result<(), String> {
        let vhost = self.find_vhost(&definition.vhost)?;
        let name = name(&definition.name)?;
        if self.queue_named(vhost, &name).is_some() {
            return Ok(());
        }
        let declared = Declared {
            vhost,
            name,
            named: true,
            durable: definition.durable,
            auto_delete: definition.auto_delete,
            owner: None,
            arguments: to_table(&definition.arguments),
        };
        let vhost = &self.vhost(vhost).name;
        let new = NewQueue::check(self.version(), vhost, declared).map_err(|failure| failure.text)?;
        self.add_queue(new);
        Ok(())
    }

    pub(crate) fn define_binding(&mut self, definition: &BindingDefinition) -> Result<(), String> {
        let vhost = self.find_vhost(&definition.vhost)?;
        let (source, binding) = self.binding_of(vhost, definition)?;
        self.bind(vhost, &source, binding);
        Ok(())
    }

    /// Finds both ends of a binding.
    pub(crate) fn binding_of(
        &self,
        vhost: VHostId,
        definition: &BindingDefinition,
    ) -> Result<(ShortStr, Binding), String> {
        let (source, destination) = (name(&definition.source)?, name(&definition.destination)?);
        if !self.vhost(vhost).exchanges.contains_key(source.as_bytes()) {
            return Err(format!("there is no exchange '{source}'"));
        }
        let destination = match &*definition.destination_type {
            "queue" | "q" => Destination::Queue(
                self.queue_named(vhost, &destination)
                    .ok_or_else(|| format!("there is no queue '{destination}'"))?,
            ),
            "exchange" | "e" => Destination::Exchange(destination),
            other => return Err(format!("'{other}' is neither queue nor exchange")),
        };
        let key = name(&definition.routing_key)?;
        Ok((source, Binding { destination, key, arguments: to_table(&definition.arguments) }))
    }

    /// Returns everything that is durable, as RabbitMQ exports it.
    pub(crate) fn export_definitions(&self, only: Option<VHostId>) -> Json {
        let vhosts: Vec<_> =
            self.vhosts.keys().copied().filter(|id| only.is_none_or(|only| only == *id)).collect();
        let mut exported = json!({
            "rabbit_version": self.version().number(),
            "rabbitmq_version": self.version().number(),
            "product_name": "RabbitMQ",
            "parameters": [],
            "global_parameters": [],
            "topic_permissions": [],
        });
        let (mut policies, mut queues, mut exchanges, mut bindings) = (vec![], vec![], vec![], vec![]);
        for id in &vhosts {
            policies.extend(self.policies_json(*id));
            for queue in self.queue_ids(*id).iter().filter_map(|queue| self.queues.get(queue)) {
                if queue.durable && queue.owner.is_none() {
                    queues.push(json!({
                        "name": queue.name.to_string(),
                        "vhost": self.vhost(*id).name.to_string(),
                        "durable": true,
                        "auto_delete": queue.auto_delete,
                        "type": queue.kind.name(),
                        "arguments": to_json(&queue.arguments),
                    }));
                }
            }
            for exchange in self.exchanges_json(*id) {
                let name = exchange["name"].as_str().unwrap_or_default();
                if exchange["durable"] == true && !name.is_empty() && !name.starts_with("amq.") {
                    exchanges.push(exchange);
                }
            }
            bindings.extend(self.bindings_json(*id).into_iter().filter(|binding| binding["source"] != ""));
        }
        if only.is_none() {
            exported["users"] = Json::Array(self.users_json());
            exported["vhosts"] =
                self.vhosts.values().map(|vhost| json!({"name": vhost.name.to_string()})).collect();
            exported["permissions"] = Json::Array(self.permissions_json());
        }
        exported["policies"] = Json::Array(policies);
        exported["queues"] = Json::Array(queues);
        exported["exchanges"] = Json::Array(exchanges);
        exported["bindings"] = Json::Array(bindings);
        exported
    }

    /// Records virtual hosts, users, permissions and policies for the state file.
    pub(crate) fn note_definitions(&mut self) {
        if self.changes.is_none() {
            return;
        }
        let vhosts: Vec<_> = self.vhosts.keys().copied().collect();
        let policies: Vec<Json> = vhosts.iter().flat_map(|vhost| self.policies_json(*vhost)).collect();
        let names: Vec<Json> = self
            .vhosts
            .iter()
            .map(|(id, vhost)| json!({"name": vhost.name.to_string(), "id": id.0}))
            .collect();
        let text = json!({
            "users": self.users_json(), "vhosts": names, "permissions": self.permissions_json(), "policies": policies,
        });
        self.note(|| Change::Definitions(text.to_string()));
    }
}
