use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redrive_amqp091::ShortStr;
#[cfg(feature = "http")]
use redrive_emulator_host::Door;
use redrive_emulator_host::{Accepting, Clock, Host, Journal, Listeners};
use serde_json::{Map, Value as Json};

use crate::broker::definitions::PolicyDefinition;
use crate::broker::{
    Broker, Change, Definitions, Event, MessageView, Options, QueueId, QueueInfo, Timestamp, VHostId,
};
use crate::error::StartError;
use crate::server::listener;
use crate::server::protocol_detect::ProtocolDetect;
use crate::server::shared_state::SharedState;
use crate::store;

/// A running emulator. Dropping it ends it like a killed process; [`Emulator::stop`] ends it in order.
#[derive(Debug)]
pub struct Emulator {
    pub(crate) host: Host<Plan>,
}

/// What stays the same over a crash.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) options: Options,
    pub(crate) definitions: Vec<Definitions>,
    pub(crate) state_file: Option<PathBuf>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) logs_events: bool,
    pub(crate) protocols: Arc<ProtocolDetect>,
    #[cfg(feature = "http")]
    pub(crate) door: Arc<Door>,
}

/// There is no queue, exchange or virtual host of this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no {what} '{name}' on the emulator")]
pub struct NotFound {
    what: &'static str,
    name: String,
}

impl redrive_emulator_host::Plan for Plan {
    type Shared = SharedState;
    type Change = Change;
    type Error = StartError;

    fn open(&self) -> Result<Arc<SharedState>, StartError> {
        let mut broker = Broker::new(self.options.clone());
        let now = self.clock.now();
        broker.advance(now);
        let opened = self.state_file.as_ref().map(|path| store::open(path, &mut broker)).transpose()?;
        let new = opened.as_ref().is_none_or(|(_, new)| *new);
        broker.keep_changes(opened.is_some());
        if new && self.definitions.iter().all(|definitions| definitions.users.is_empty()) {
            broker.add_defaults();
            broker.note_definitions();
        }
        for definitions in &self.definitions {
            broker.apply_definitions(definitions, now).map_err(StartError::definitions)?;
        }
        let journal = opened.map(|(file, _)| store::journal(file).map_err(StartError::thread)).transpose()?;
        let shared = SharedState::new(broker, journal, Arc::clone(&self.clock));
        Ok(Arc::new(shared.logging_events(self.logs_events)))
    }

    fn accept(&self, listeners: Listeners, shared: &Arc<SharedState>) -> Accepting {
        listener::accept(listeners, &self.protocols, shared, self.options.max_message_size)
    }

    #[cfg(feature = "http")]
    fn accept_http(&self, listeners: Listeners, shared: &Arc<SharedState>) -> Option<Accepting> {
        Some(crate::server::http::accept(listeners, &self.door, shared))
    }

    fn pass_time(shared: Arc<SharedState>) -> impl Future<Output = ()> + Send + 'static {
        listener::pass_time(shared)
    }

    fn journal(shared: &SharedState) -> Option<&Journal<Change>> {
        shared.journal.as_ref()
    }
}

impl Emulator {
    /// Returns the first address for AMQP.
    pub fn address(&self) -> SocketAddr {
        self.host.address()
    }

    /// Returns all addresses for AMQP.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.host.addresses()
    }

    /// Returns the first address for HTTP, if enabled.
    #[cfg(feature = "http")]
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_addresses().first().copied()
    }

    /// Returns all addresses for HTTP; empty if it is not enabled.
    #[cfg(feature = "http")]
    pub fn http_addresses(&self) -> Vec<SocketAddr> {
        self.host.http_addresses()
    }

    /// Returns a URL for clients: user `guest`, virtual host `/`.
    pub fn url(&self) -> String {
        format!("amqp://guest:guest@{}/%2f", reachable(self.address()))
    }

    /// Returns the URL of the management API with user `guest`; `None` without HTTP.
    #[cfg(feature = "http")]
    pub fn management_url(&self) -> Option<String> {
        self.http_address().map(|address| format!("http://guest:guest@{}", reachable(address)))
    }

    /// Returns the emulator's current time.
    pub fn now(&self) -> Timestamp {
        self.host.plan().clock.now()
    }

    /// Advances the clock, and applies everything that is due by then, each at its own time: messages and queues expire, delayed
    /// messages return, deliveries time out.
    ///
    /// The last time is the end of the year 9999. A step that would pass it is not made, and logged as an error.
    pub fn advance(&self, by: Duration) {
        if let Err(error) = self.shared().put_forward(by) {
            tracing::error!(%error, ?by, "advancing the clock");
        }
    }

    /// Returns when time alone will change something next, if ever.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.with(|broker, _| broker.next_deadline())
    }

    /// Returns what happened since the last call that no client is told, such as every dropped message with its reason.
    pub fn take_events(&self) -> Vec<Event> {
        self.with(|broker, _| broker.take_events())
    }

    /// Returns what happened since the last [`take_events`](Self::take_events), and keeps it.
    pub fn events(&self) -> Vec<Event> {
        self.with(|broker, _| broker.events())
    }

    /// Returns the number of connected clients.
    pub fn connections(&self) -> usize {
        self.with(|broker, _| broker.connection_ids().len())
    }

    /// Returns the virtual host `/`.
    ///
    /// # Errors
    /// If there is none: definitions may leave it out.
    pub fn default_vhost(&self) -> Result<VHostView<'_>, NotFound> {
        self.vhost("/")
    }

    /// Returns a virtual host.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn vhost(&self, name: &str) -> Result<VHostView<'_>, NotFound> {
        let id = self.with(|broker, _| broker.vhost_named(name));
        let id = id.ok_or_else(|| NotFound { what: "virtual host", name: name.to_owned() })?;
        Ok(VHostView { emulator: self, id, name: name.to_owned() })
    }

    /// Adds definitions as RabbitMQ exports them; what exists already stays.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn import_definitions(&self, json: &str) -> Result<(), StartError> {
        let definitions =
            serde_json::from_str(json).map_err(|error| StartError::definitions(error.to_string()))?;
        self.with(|broker, now| broker.apply_definitions(&definitions, now)).map_err(StartError::definitions)
    }

    /// Returns everything that is durable, as JSON that RabbitMQ can import.
    pub fn export_definitions(&self) -> String {
        self.with(|broker, _| broker.export_definitions(None)).to_string()
    }

    /// Ends like a killed process: sends no close, and writes nothing more. Nothing listens when this returns; the port stays
    /// reserved for a [`restart`](Self::restart) until this value is dropped.
    pub async fn crash(&self) {
        self.host.crash().await;
    }

    /// Starts again at the same address after [`crash`](Self::crash) or [`stop`](Self::stop), with the content of the state file;
    /// without one, empty. A running emulator crashes first.
    ///
    /// # Errors
    /// The same as [`Builder::start`](crate::Builder::start).
    pub async fn restart(&self) -> Result<(), StartError> {
        self.host.restart().await
    }

    /// Closes all connections in order, and ends. Nothing listens when this returns; the port stays reserved for a
    /// [`restart`](Self::restart) until this value is dropped.
    pub async fn stop(&self) {
        self.host.stop().await;
    }

    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Broker, Timestamp) -> T) -> T {
        self.shared().with(act)
    }

    pub(crate) fn shared(&self) -> Arc<SharedState> {
        self.host.shared()
    }
}

/// A virtual host of a running emulator, as no client sees it.
#[derive(Debug, Clone)]
pub struct VHostView<'a> {
    emulator: &'a Emulator,
    id: VHostId,
    name: String,
}

impl VHostView<'_> {
    /// Returns all queues, by name.
    pub fn queues(&self) -> Vec<QueueInfo> {
        self.emulator.with(|broker, _| {
            broker.queue_ids(self.id).into_iter().filter_map(|id| broker.info(id)).collect()
        })
    }

    /// Returns a queue.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn queue(&self, name: &str) -> Result<QueueInfo, NotFound> {
        let info = self.queue_with(name, |broker, id, _| broker.info(id))?;
        info.ok_or_else(|| NotFound { what: "queue", name: name.to_owned() })
    }

    /// Returns the messages of a queue that are ready, in the order in which they leave.
    ///
    /// # Errors
    /// If there is no such queue.
    pub fn messages(&self, queue: &str) -> Result<Vec<MessageView>, NotFound> {
        self.queue_with(queue, |broker, id, _| broker.ready_messages(id))
    }

    /// Draws exchanges, queues, bindings and dead-letter routes as a Mermaid flowchart.
    pub fn mermaid(&self) -> String {
        self.emulator.with(|broker, _| broker.mermaid(self.id))
    }

    /// Draws the same in the language of Graphviz.
    pub fn dot(&self) -> String {
        self.emulator.with(|broker, _| broker.dot(self.id))
    }

    /// Sets a policy for the queues and exchanges whose names match the regular expression. It applies at once. `definition`: a JSON
    /// object such as `{"message-ttl": 1000}`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn set_policy(
        &self,
        name: &str,
        pattern: &str,
        definition: &str,
        priority: i64,
    ) -> Result<(), StartError> {
        let definition: Map<String, Json> =
            serde_json::from_str(definition).map_err(|error| StartError::definitions(error.to_string()))?;
        let policy = PolicyDefinition {
            vhost: self.name.clone(),
            name: name.to_owned(),
            pattern: pattern.to_owned(),
            apply_to: "all".to_owned(),
            priority,
            definition,
        };
        self.emulator.with(|broker, now| {
            broker.define_policy(&policy, now).map_err(StartError::definitions)?;
            broker.note_definitions();
            Ok(())
        })
    }

    /// Removes a policy. Returns false if there is none of this name.
    pub fn remove_policy(&self, name: &str) -> bool {
        self.emulator.with(|broker, now| {
            let removed = broker.remove_policy(self.id, name, now);
            broker.note_definitions();
            removed
        })
    }

    pub(crate) fn queue_with<T>(
        &self,
        name: &str,
        act: impl FnOnce(&mut Broker, QueueId, Timestamp) -> T,
    ) -> Result<T, NotFound> {
        let not_found = || NotFound { what: "queue", name: name.to_owned() };
        let short = ShortStr::try_from(name).map_err(|_| not_found())?;
        self.emulator.with(|broker, now| {
            let id = broker.queue_named(self.id, &short).ok_or_else(not_found)?;
            Ok(act(broker, id, now))
        })
    }
}

/// Returns an address that clients can connect to; they cannot connect to `0.0.0.0`.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        ip if ip.is_unspecified() => SocketAddr::from(([127, 0, 0, 1], address.port())),
        ip => SocketAddr::new(ip, address.port()),
    }
}
