//! RabbitMQ as a value: no sockets, no clock, no randomness. Frames that a client sent go in as [`Command`]s with the time; what clients
//! are to receive is taken out as bytes.
//!
//! Read it in this order: `message`, `queue` and `exchange` are the data; `route` brings a message into queues, `dispatch` to
//! consumers, `settle` takes it back or away, `dead_letter` moves it on, `deadlines` lets time pass. `protocol` translates AMQP.

pub(crate) mod access;
mod changes;
mod connection;
mod dead_letter;
mod deadlines;
pub(crate) mod definitions;
mod dispatch;
mod events;
pub(crate) mod exchange;
mod failure;
mod inspect;
pub(crate) mod json;
mod lifecycle;
pub(crate) mod manage;
pub(crate) mod message;
mod message_json;
mod operate;
mod options;
mod protocol;
pub(crate) mod queue;
mod reason;
mod restore;
mod route;
mod settle;
mod shown;
mod topology;
mod version;
pub(crate) mod vhost;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use foldhash::fast::RandomState;
use redrive_amqp091::ShortStr;

pub(crate) use changes::{Change, ExchangeRecord, QueueRecord};
pub(crate) use connection::{Command, Content};
pub(crate) use definitions::Definitions;
pub use events::{DropReason, Event, EventKind, MessageView};
pub(crate) use failure::Failure;
pub use inspect::{QueueCounts, QueueInfo};
pub(crate) use options::Options;
pub use options::UnpromisedOrder;
pub use queue::settings::QueueKind;
pub use redrive_emulator_host::Timestamp;
pub use version::Version;

use access::User;
use connection::{Connection, Consumer};
use deadlines::Due;
use events::Events;
use queue::Queue;
use vhost::VHost;

type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;

/// A queue, from its declaration to its deletion. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct QueueId(pub(crate) u64);

/// A connection. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnectionId(pub(crate) u64);

/// A consumer. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConsumerId(pub(crate) u64);

/// A virtual host; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct VHostId(pub(crate) u32);

/// A channel of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct At {
    pub(crate) connection: ConnectionId,
    pub(crate) channel: u16,
}

/// A whole RabbitMQ.
#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) options: Options,
    /// Never decreases, whatever the caller's clock does.
    now: Timestamp,
    vhosts: BTreeMap<VHostId, VHost>,
    users: BTreeMap<String, User>,
    queues: HashMap<QueueId, Queue>,
    connections: HashMap<ConnectionId, Connection>,
    consumers: HashMap<ConsumerId, Consumer>,
    due: BTreeSet<(Timestamp, Due)>,
    /// Queues to serve, each once.
    dirty: VecDeque<QueueId>,
    /// Dead letters to route: in a list, because one may cause the next.
    dead: VecDeque<dead_letter::DeadLetter>,
    /// Since the pump began.
    deaths_in_long_chains: u32,
    /// Connections with output, each once.
    touched: Vec<ConnectionId>,
    events: Events,
    /// Changes for the state file; `None` if there is none.
    changes: Option<Vec<Change>>,
    /// Why publishers are blocked, if they are.
    alarm: Option<String>,
    /// A fault: what publishers wait for.
    confirms: ConfirmFault,
    next_id: u64,
    next_message: u64,
}

/// What happens to confirms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ConfirmFault {
    #[default]
    None,
    /// They wait until the fault ends.
    Hold,
    /// This many publishes are refused: not stored, and answered by `basic.nack`.
    Refuse(u32),
}

impl Broker {
    pub(crate) fn new(options: Options) -> Self {
        let events = Events::new(options.max_events);
        Self {
            options,
            now: Timestamp::default(),
            vhosts: BTreeMap::new(),
            users: BTreeMap::new(),
            queues: HashMap::default(),
            connections: HashMap::default(),
            consumers: HashMap::default(),
            due: BTreeSet::new(),
            dirty: VecDeque::new(),
            dead: VecDeque::new(),
            deaths_in_long_chains: 0,
            touched: Vec::new(),
            events,
            changes: None,
            alarm: None,
            confirms: ConfirmFault::None,
            next_id: 1,
            next_message: 1,
        }
    }

    fn version(&self) -> Version {
        self.options.version
    }

    /// Returns a number that was not used before.
    fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn vhost(&self, id: VHostId) -> &VHost {
        // A virtual host is removed after everything that refers to it.
        &self.vhosts[&id]
    }

    pub(crate) fn vhost_named(&self, name: &str) -> Option<VHostId> {
        self.vhosts.iter().find(|(_, vhost)| vhost.name == name).map(|(id, _)| *id)
    }

    pub(crate) fn queue_named(&self, vhost: VHostId, name: &ShortStr) -> Option<QueueId> {
        self.vhosts.get(&vhost)?.queues.get(name.as_bytes()).copied()
    }

    /// Serves queues and routes dead letters until nothing is left to do.
    fn pump(&mut self) {
        self.deaths_in_long_chains = 0;
        self.serve_all();
    }

    /// Serves the queues, and routes their dead letters, until nothing moves any more.
    fn serve_all(&mut self) {
        loop {
            // A queue delivers what it has before its dead letters arrive anywhere, and be it in the same queue.
            if let Some(queue) = self.dirty.pop_front() {
                self.serve(queue);
            } else if let Some(dead) = self.dead.pop_front() {
                self.route_dead_letter(dead);
            } else {
                return;
            }
        }
    }

    fn mark_dirty(&mut self, id: QueueId) {
        if let Some(queue) = self.queues.get_mut(&id)
            && !queue.dirty
        {
            queue.dirty = true;
            self.dirty.push_back(id);
        }
    }

    fn note(&mut self, change: impl FnOnce() -> Change) {
        if let Some(changes) = &mut self.changes {
            changes.push(change());
        }
    }
}
