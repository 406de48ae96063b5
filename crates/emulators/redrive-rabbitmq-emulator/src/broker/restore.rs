//! From the state file back into the broker.

use redrive_amqp091::ShortStr;
use serde_json::Value as Json;

use super::definitions::Definitions;
use super::exchange::{Destination, Exchange};
use super::lifecycle::alternate_of;
use super::protocol::queues::{Declared, NewQueue};
use super::vhost::VHost;
use super::{Broker, Change, VHostId};

impl Broker {
    /// Applies a record of the state file. What refers to something that is not there is left out.
    pub(crate) fn restore(&mut self, change: Change) {
        match change {
            Change::Definitions(text) => self.restore_definitions(&text),
            Change::PutExchange(record) => {
                let mut exchange = Exchange::new(record.name, record.kind);
                exchange.auto_delete = record.auto_delete;
                exchange.internal = record.internal;
                exchange.alternate = alternate_of(&record.arguments);
                exchange.arguments = record.arguments;
                self.add_exchange(record.vhost, exchange);
            }
            Change::PutQueue(record) => {
                let Some(vhost) = self.vhosts.get(&record.vhost) else { return };
                let declared = Declared {
                    vhost: record.vhost,
                    name: record.name,
                    named: true,
                    durable: true,
                    auto_delete: record.auto_delete,
                    owner: None,
                    arguments: record.arguments,
                };
                let new = match NewQueue::check(self.version(), &vhost.name, declared) {
                    Ok(new) => new,
                    Err(failure) => {
                        return tracing::warn!(error = failure.text, "a queue of the state file is left out");
                    }
                };
                self.next_id = self.next_id.max(record.id.0);
                self.add_queue_as(record.id, new, record.created);
            }
            Change::PutBinding { vhost, source, binding } => {
                let there = match &binding.destination {
                    Destination::Queue(queue) => self.queues.contains_key(queue),
                    Destination::Exchange(_) => true,
                };
                if there {
                    self.bind(vhost, &source, binding);
                }
            }
            Change::PutMessage { queue, mut stored } => {
                self.next_message = self.next_message.max(stored.number + 1);
                let version = self.version();
                let Some(queue) = self.queues.get_mut(&queue) else { return };
                stored.size = queue.size_of(&stored.message, version);
                match stored.not_before {
                    Some(at) => {
                        queue.delayed.insert((at, stored.number), stored);
                    }
                    None => queue.ready.push(stored),
                }
            }
            Change::RemoveQueue { .. }
            | Change::RemoveExchange { .. }
            | Change::RemoveBinding { .. }
            | Change::RemoveMessage { .. } => {}
        }
    }

    /// Lets time pass over what was restored.
    pub(crate) fn end_restore(&mut self) {
        let vhosts: Vec<_> = self.vhosts.keys().copied().collect();
        for vhost in vhosts {
            self.apply_policies(vhost);
        }
        self.pump();
    }

    fn restore_definitions(&mut self, text: &str) {
        let Ok(json) = serde_json::from_str::<Json>(text) else { return };
        for vhost in json["vhosts"].as_array().into_iter().flatten() {
            if let (Some(name), Some(id)) = (vhost["name"].as_str(), vhost["id"].as_u64()) {
                let id = VHostId(u32::try_from(id).unwrap_or(u32::MAX));
                self.vhosts.insert(id, VHost::new(ShortStr::truncated(name)));
            }
        }
        let restored = serde_json::from_value::<Definitions>(json).map_err(|error| error.to_string());
        let now = self.now;
        if let Err(error) = restored.and_then(|definitions| self.apply_definitions(&definitions, now)) {
            tracing::warn!(error, "definitions of the state file are left out");
        }
    }
}
