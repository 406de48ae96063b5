//! RabbitMQ's management API: the part that tools use.

use redrive_amqp091::ShortStr;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

use super::call::{Call, Reply};
use crate::broker::definitions::{
    BindingDefinition, ExchangeDefinition, PermissionDefinition, PolicyDefinition, QueueDefinition,
    UserDefinition, name,
};
use crate::broker::manage::AckMode;
use crate::broker::{Broker, QueueId, Timestamp, VHostId};

type Answer = Result<Reply, Reply>;

/// Answers a request below `/api`.
pub(super) fn answer(broker: &mut Broker, now: Timestamp, call: &Call) -> Reply {
    let path: Vec<&str> = call.path.iter().map(String::as_str).collect();
    let Some(user) = user_of(broker, call) else { return Reply::unauthorized() };
    broker.advance(now);
    let mut api = Api { broker, now, call, user };
    let answered = match path[..] {
        ["api", ref rest @ ..] => api.route(rest),
        _ => Err(Reply::not_found()),
    };
    answered.unwrap_or_else(|refused| refused)
}

/// Returns the user whose password the request has.
pub(super) fn user_of(broker: &Broker, call: &Call) -> Option<String> {
    let (user, password) = call.credentials.as_ref()?;
    let known = broker.user_named(user).filter(|known| known.password.is(password.as_bytes()));
    known.map(|_| user.clone())
}

struct Api<'a> {
    broker: &'a mut Broker,
    now: Timestamp,
    call: &'a Call,
    user: String,
}

impl Api<'_> {
    fn route(&mut self, path: &[&str]) -> Answer {
        let method = &*self.call.method;
        match (method, path) {
            ("GET", ["overview"]) => Ok(Reply::json(self.broker.overview_json())),
            ("GET", ["whoami"]) => {
                let tags = self.broker.user_named(&self.user).map(|user| user.tags.clone());
                Ok(Reply::json(json!({"name": self.user, "tags": tags, "is_internal_user": true})))
            }
            ("GET", ["cluster-name"]) => Ok(Reply::json(json!({"name": "rabbit@emulator"}))),
            ("GET", ["nodes"]) => Ok(Reply::list(vec![self.broker.node_json()])),
            ("GET", ["extensions"]) => Ok(Reply::list(vec![])),
            ("GET", ["aliveness-test", _] | ["health", "checks", ..] | ["healthchecks", ..]) => {
                Ok(Reply::json(json!({"status": "ok"})))
            }
            ("GET", ["connections"]) => Ok(Reply::list(self.broker.connections_json())),
            ("DELETE", ["connections", name]) => self.close_connection(name),
            ("GET", ["channels"]) => Ok(Reply::list(self.broker.channels_json())),
            ("GET", ["consumers"]) => Ok(Reply::list(self.broker.consumers_json(None))),
            ("GET", ["consumers", vhost]) => {
                let vhost = self.vhost(vhost)?;
                Ok(Reply::list(self.broker.consumers_json(Some(vhost))))
            }
            (_, ["vhosts", rest @ ..]) => self.vhosts(rest),
            (_, ["users", rest @ ..]) => self.users(rest),
            (_, ["permissions", rest @ ..]) => self.permissions(rest),
            (_, ["policies", rest @ ..]) => self.policies(rest),
            ("GET", ["operator-policies" | "parameters" | "global-parameters" | "topic-permissions", ..]) => {
                Ok(Reply::list(vec![]))
            }
            (_, ["definitions", rest @ ..]) => self.definitions(rest),
            (_, ["exchanges", rest @ ..]) => self.exchanges(rest),
            (_, ["queues", rest @ ..]) => self.queues(rest),
            (_, ["bindings", rest @ ..]) => self.bindings(rest),
            _ => Err(Reply::not_found()),
        }
    }

    fn vhosts(&mut self, path: &[&str]) -> Answer {
        match (&*self.call.method, path) {
            ("GET", []) => Ok(Reply::list(self.broker.vhosts_json())),
            ("GET", [name]) => {
                let vhost = self.vhost(name)?;
                self.broker.vhost_json(vhost).map(Reply::json).ok_or_else(Reply::not_found)
            }
            ("GET", [name, "permissions"]) => {
                let wanted = *name;
                let all = self.broker.permissions_json();
                Ok(Reply::list(all.into_iter().filter(|permission| permission["vhost"] == wanted).collect()))
            }
            ("PUT", [vhost]) => {
                name(vhost).map_err(|error| Reply::bad_request(&error))?;
                self.broker.add_vhost(vhost);
                let everything = json!({"user": self.user, "vhost": vhost, "configure": ".*", "write": ".*", "read": ".*"});
                self.apply::<PermissionDefinition>(everything, |broker, _, permission| {
                    broker.define_permission(&permission)
                })
            }
            ("DELETE", [name]) => {
                let vhost = self.vhost(name)?;
                self.broker.remove_vhost(vhost, self.now);
                self.changed(Reply::done())
            }
            _ => Err(Reply::not_found()),
        }
    }

    fn users(&mut self, path: &[&str]) -> Answer {
        match (&*self.call.method, path) {
            ("GET", []) => Ok(Reply::list(self.broker.users_json())),
            ("GET", [name]) => {
                let wanted = *name;
                let found = self.broker.users_json().into_iter().find(|user| user["name"] == wanted);
                found.map(Reply::json).ok_or_else(Reply::not_found)
            }
            ("PUT", [name]) => {
                let body = with(self.call.json()?, &[("name", name)]);
                self.apply::<UserDefinition>(body, |broker, _, user| broker.define_user(&user))
            }
            ("DELETE", [name]) => {
                if !self.broker.remove_user(name) {
                    return Err(Reply::not_found());
                }
                self.changed(Reply::done())
            }
            _ => Err(Reply::not_found()),
        }
    }

    fn permissions(&mut self, path: &[&str]) -> Answer {
        match (&*self.call.method, path) {
            ("GET", []) => Ok(Reply::list(self.broker.permissions_json())),
            ("GET", [vhost, user]) => {
                let (vhost, user) = (*vhost, *user);
                let mut all = self.broker.permissions_json().into_iter();
                let found = all.find(|one| one["vhost"] == vhost && one["user"] == user);
                found.map(Reply::json).ok_or_else(Reply::not_found)
            }
            ("PUT", [vhost, user]) => {
                let body = with(self.call.json()?, &[("vhost", vhost), ("user", user)]);
                self.apply::<PermissionDefinition>(body, |broker, _, permission| {
                    broker.define_permission(&permission)
                })
            }
            ("DELETE", [vhost, user]) => {
                if !self.broker.remove_permission(user, vhost) {
                    return Err(Reply::not_found());
                }
                self.changed(Reply::done())
            }
            _ => Err(Reply::not_found()),
        }
    }

    fn policies(&mut self, path: &[&str]) -> Answer {
        match (&*self.call.method, path) {
            ("GET", []) => self.everywhere(Broker::policies_json),
            ("GET", [vhost]) => {
                let vhost = self.vhost(vhost)?;
                Ok(Reply::list(self.broker.policies_json(vhost)))
            }
            ("GET", [vhost, name]) => {
                let (vhost, wanted) = (self.vhost(vhost)?, *name);
                let found =
                    self.broker.policies_json(vhost).into_iter().find(|policy| policy["name"] == wanted);
                found.map(Reply::json).ok_or_else(Reply::not_found)
            }
            ("PUT", [vhost, name]) => {
                let body = with(self.call.json()?, &[("vhost", vhost), ("name", name)]);
                for key in body["definition"].as_object().into_iter().flat_map(|definition| definition.keys())
                {
                    if !Broker::is_known_policy_key(key, self.broker.options.version) {
                        return Err(Reply::bad_request(&format!(
                            "Validation failed\n\n[{{<<\"{key}\">>}}] are not recognised policy settings\n"
                        )));
                    }
                }
                self.apply::<PolicyDefinition>(body, |broker, now, policy| broker.define_policy(&policy, now))
            }
            ("DELETE", [vhost, name]) => {
                let vhost = self.vhost(vhost)?;
                if !self.broker.remove_policy(vhost, name, self.now) {
                    return Err(Reply::not_found());
                }
                self.changed(Reply::done())
            }
            _ => Err(Reply::not_found()),
        }
    }

    fn definitions(&mut self, path: &[&str]) -> Answer {
        let vhost = match path {
            [] => None,
            [vhost] => Some(self.vhost(vhost)?),
            _ => return Err(Reply::not_found()),
        };
        match &*self.call.method {
            "GET" => Ok(Reply::json(self.broker.export_definitions(vhost))),
            "POST" => {
                let body = self.call.json()?;
                self.apply(body, |broker, now, definitions| broker.apply_definitions(&definitions, now))
            }
            _ => Err(Reply::not_found()),
        }
    }

    fn exchanges(&mut self, path: &[&str]) -> Answer {
        match (&*self.call.method, path) {
            ("GET", []) => self.everywhere(Broker::exchanges_json),
            ("GET", [vhost]) => {
                let vhost = self.vhost(vhost)?;
                Ok(Reply::list(self.broker.exchanges_json(vhost)))
            }
            ("GET", [vhost, exchange]) => {
                let (vhost, wanted) = (self.vhost(vhost)?, default_name(exchange));
                let found = self.broker.exchanges_json(vhost).into_iter().find(|one| one["name"] == wanted);
                found.map(Reply::json).ok_or_else(Reply::not_found)
            }
            ("GET", [vhost, exchange, "bindings", end @ ("source" | "destination")]) => {
                let (vhost, wanted, end) = (self.vhost(vhost)?, default_name(exchange), *end);
                let bindings = self.broker.bindings_json(vhost).into_iter();
                let of = |one: &Json| {
                    one[end] == wanted && (end == "source" || one["destination_type"] == "exchange")
                };
                Ok(Reply::list(bindings.filter(of).collect()))
            }
            ("PUT", [vhost, exchange]) => {
                let body = with(self.call.json()?, &[("vhost", vhost), ("name", exchange)]);
                self.apply::<ExchangeDefinition>(body, |broker, _, exchange| {
                    broker.define_exchange(&exchange)
                })
            }
            ("DELETE", [vhost, exchange]) => {
                let (vhost, exchange) = (self.vhost(vhost)?, short(exchange)?);
                if exchange.is_empty() || exchange.as_bytes().starts_with(b"amq.") {
                    return Err(Reply::bad_request("this exchange cannot be deleted"));
                }
                let removed = self.broker.remove_exchange(vhost, &exchange, self.now);
                if removed { Ok(Reply::done()) } else { Err(Reply::not_found()) }
            }
            ("POST", [vhost, exchange, "publish"]) => {
                let (vhost, body) = (self.vhost(vhost)?, self.call.json()?);
                let routed = self.broker.publish_by_operator(vhost, exchange, &body, self.now);
                routed
                    .map(|routed| Reply::json(json!({"routed": routed})))
                    .map_err(|error| Reply::bad_request(&error))
            }
            _ => Err(Reply::not_found()),
        }
    }

    fn queues(&mut self, path: &[&str]) -> Answer {
        match (&*self.call.method, path) {
            ("GET", []) => {
                let ids = self.broker.vhost_ids();
                let queues = ids.into_iter().flat_map(|vhost| self.broker.queue_ids(vhost)).collect();
                Ok(self.page(queues))
            }
            ("GET", [vhost]) => {
                let vhost = self.vhost(vhost)?;
                Ok(self.page(self.broker.queue_ids(vhost)))
            }
            ("GET", [vhost, queue]) => {
                let (_, id) = self.queue(vhost, queue)?;
                self.broker.queue_json(id).map(Reply::json).ok_or_else(Reply::not_found)
            }
            ("GET", [vhost, queue, "bindings"]) => {
                let (vhost, _) = self.queue(vhost, queue)?;
                let wanted = *queue;
                let bindings = self.broker.bindings_json(vhost).into_iter();
                let of = |one: &Json| one["destination"] == wanted && one["destination_type"] == "queue";
                Ok(Reply::list(bindings.filter(of).collect()))
            }
            ("PUT", [vhost, queue]) => {
                let body = with(self.call.json()?, &[("vhost", vhost), ("name", queue)]);
                self.apply::<QueueDefinition>(body, |broker, _, queue| broker.define_queue(&queue))
            }
            ("DELETE", [vhost, queue]) => {
                let (_, id) = self.queue(vhost, queue)?;
                self.broker.remove_queue(id, self.now);
                Ok(Reply::done())
            }
            ("DELETE", [vhost, queue, "contents"]) => {
                let (_, id) = self.queue(vhost, queue)?;
                self.broker.purge_by_operator(id, self.now);
                Ok(Reply::done())
            }
            ("POST", [vhost, queue, "get"]) => {
                let ((_, id), body) = (self.queue(vhost, queue)?, self.call.json()?);
                let mode = body["ackmode"].as_str().and_then(AckMode::parse);
                let mode =
                    mode.ok_or_else(|| Reply::bad_request("ackmode is missing, or not one of RabbitMQ's"))?;
                let count = body["count"].as_u64().unwrap_or(1);
                let base64 = body["encoding"] == "base64";
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                Ok(Reply::list(self.broker.get_messages(id, count, mode, base64, self.now)))
            }
            ("POST", [vhost, queue, "actions"]) => {
                self.queue(vhost, queue)?;
                Ok(Reply::done())
            }
            _ => Err(Reply::not_found()),
        }
    }

    fn bindings(&mut self, path: &[&str]) -> Answer {
        match (&*self.call.method, path) {
            ("GET", []) => self.everywhere(Broker::bindings_json),
            ("GET", [vhost]) => {
                let vhost = self.vhost(vhost)?;
                Ok(Reply::list(self.broker.bindings_json(vhost)))
            }
            ("GET", [vhost, "e", source, kind @ ("q" | "e"), destination]) => {
                let kind = if *kind == "q" { "queue" } else { "exchange" };
                let (vhost, source, destination) = (self.vhost(vhost)?, default_name(source), *destination);
                let bindings = self.broker.bindings_json(vhost).into_iter();
                let of = |one: &Json| {
                    one["source"] == source
                        && one["destination"] == destination
                        && one["destination_type"] == kind
                };
                Ok(Reply::list(bindings.filter(of).collect()))
            }
            ("POST", [vhost, "e", source, kind @ ("q" | "e"), destination]) => {
                let ends = [
                    ("vhost", *vhost),
                    ("source", *source),
                    ("destination_type", *kind),
                    ("destination", *destination),
                ];
                let body = with(self.call.json()?, &ends);
                self.apply::<BindingDefinition>(body, |broker, _, binding| broker.define_binding(&binding))
            }
            ("DELETE", [vhost, "e", source, kind @ ("q" | "e"), destination, key]) => {
                let key = if *key == "~" { "" } else { *key };
                let body = with(
                    json!({"routing_key": key}),
                    &[
                        ("vhost", *vhost),
                        ("source", *source),
                        ("destination_type", *kind),
                        ("destination", *destination),
                    ],
                );
                let vhost = self.vhost(vhost)?;
                let definition: BindingDefinition =
                    serde_json::from_value(body).map_err(|error| Reply::bad_request(&error.to_string()))?;
                let (source, binding) =
                    self.broker.binding_of(vhost, &definition).map_err(|_| Reply::not_found())?;
                let removed = self.broker.remove_binding_by_operator(vhost, &source, &binding);
                if removed { Ok(Reply::done()) } else { Err(Reply::not_found()) }
            }
            _ => Err(Reply::not_found()),
        }
    }

    fn close_connection(&mut self, name: &str) -> Answer {
        let reason = "Closed via management plugin";
        if self.broker.close_named(name, reason, self.now) {
            Ok(Reply::done())
        } else {
            Err(Reply::not_found())
        }
    }

    /// Applies a definition of the body.
    fn apply<T: DeserializeOwned>(
        &mut self,
        body: Json,
        define: impl FnOnce(&mut Broker, Timestamp, T) -> Result<(), String>,
    ) -> Answer {
        let definition =
            serde_json::from_value(body).map_err(|error| Reply::bad_request(&error.to_string()))?;
        define(self.broker, self.now, definition).map_err(|error| Reply::bad_request(&error))?;
        self.changed(Reply::created())
    }

    fn changed(&mut self, reply: Reply) -> Answer {
        self.broker.note_definitions();
        Ok(reply)
    }

    fn everywhere(&self, list: impl Fn(&Broker, VHostId) -> Vec<Json>) -> Answer {
        let vhosts = self.broker.vhost_ids();
        Ok(Reply::list(vhosts.into_iter().flat_map(|vhost| list(self.broker, vhost)).collect()))
    }

    /// Returns queues, or one page of them.
    fn page(&self, ids: Vec<QueueId>) -> Reply {
        let number = |key: &str| self.call.query.get(key).and_then(|text| text.parse::<usize>().ok());
        let total = ids.len();
        let Some(page) = number("page") else {
            return Reply::list(ids.into_iter().filter_map(|id| self.broker.queue_json(id)).collect());
        };
        let size = number("page_size").unwrap_or(100).clamp(1, 500);
        let skipped = page.max(1).saturating_sub(1).saturating_mul(size);
        let items: Vec<_> =
            ids.into_iter().skip(skipped).take(size).filter_map(|id| self.broker.queue_json(id)).collect();
        Reply::json(json!({
            "filtered_count": total, "item_count": items.len(), "items": items, "page": page.max(1),
            "page_count": total.div_ceil(size), "page_size": size, "total_count": total,
        }))
    }

    fn vhost(&self, name: &str) -> Result<VHostId, Reply> {
        self.broker.vhost_named(name).ok_or_else(Reply::not_found)
    }

    fn queue(&self, vhost: &str, name: &str) -> Result<(VHostId, QueueId), Reply> {
        let vhost = self.vhost(vhost)?;
        let id = self.broker.queue_named(vhost, &short(name)?).ok_or_else(Reply::not_found)?;
        Ok((vhost, id))
    }
}

fn short(text: &str) -> Result<ShortStr, Reply> {
    name(text).map_err(|error| Reply::bad_request(&error))
}

/// In paths the default exchange has a name.
fn default_name(exchange: &str) -> &str {
    if exchange == "amq.default" { "" } else { exchange }
}

/// Adds what the path says to a body.
fn with(mut body: Json, entries: &[(&str, &str)]) -> Json {
    if let Some(object) = body.as_object_mut() {
        for (key, value) in entries {
            object.insert((*key).to_owned(), Json::String((*value).to_owned()));
        }
    }
    body
}
