use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[cfg(feature = "http")]
use redrive_emulator_host::Door;
use redrive_emulator_host::{Accepting, Clock, Host, Journal, Listeners};

use crate::broker::{
    Broker, BrokerError, Change, EntityStatus, Namespace, Queue, Settings, SetupError, Timestamp,
};
use crate::error::StartError;
use crate::faults::{Fault, Faults};
use crate::inspect::EntityView;
use crate::server::keys::Keys;
use crate::server::listener;
use crate::server::mailbox::Detaching;
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
    pub(crate) namespace: Namespace,
    pub(crate) seed: u64,
    /// Number of starts, so that no token of an earlier start is used again.
    pub(crate) starts: AtomicU64,
    pub(crate) state_file: Option<PathBuf>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) protocols: Arc<ProtocolDetect>,
    /// `None`: tokens are checked, and every request by HTTP is let in.
    #[cfg(feature = "http")]
    pub(crate) door: Arc<Option<Door>>,
    pub(crate) idle_links: Option<Duration>,
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

    /// Returns the connection string for SDKs.
    pub fn connection_string(&self) -> String {
        self.connection_string_for(self.address().port())
    }

    fn connection_string_for(&self, port: u16) -> String {
        let (name, key) =
            self.host.plan().keys.first().unwrap_or(("RootManageSharedAccessKey", "SAS_KEY_VALUE"));
        // SDKs connect to this host, and cannot connect to an address such as 0.0.0.0.
        format!(
            "Endpoint=sb://localhost:{port};SharedAccessKeyName={name};SharedAccessKey={key};UseDevelopmentEmulator=true;"
        )
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

    /// Returns the connection string for clients of the run-time REST API; `None` without HTTP.
    #[cfg(feature = "http")]
    pub fn http_connection_string(&self) -> Option<String> {
        self.http_address().map(|address| self.connection_string_for(address.port()))
    }

    /// Returns a view of a queue, a subscription (`topic/Subscriptions/name`) or a dead-letter queue (`orders/$DeadLetterQueue`).
    ///
    /// # Errors
    /// If there is none at this path.
    pub fn entity(&self, path: &str) -> Result<EntityView, BrokerError> {
        let shared = self.shared();
        let entity = shared.with(|broker, _| broker.find(path))?;
        Ok(EntityView::new(shared, entity))
    }

    /// Returns the emulator's current time.
    pub fn now(&self) -> Timestamp {
        self.host.plan().clock.now()
    }

    /// Advances the clock, and applies everything that is due by then: locks expire, messages expire or become active.
    ///
    /// The last time is the end of the year 9999. A step that would pass it is not made, and logged as an error.
    pub fn advance(&self, by: Duration) {
        if let Err(error) = self.shared().put_forward(by) {
            tracing::error!(%error, ?by, "advancing the clock");
        }
    }

    /// Returns the number of connected clients.
    pub fn connections(&self) -> usize {
        self.shared().connections()
    }

    /// Adds a fault.
    pub fn inject(&self, fault: Fault) {
        self.host.plan().faults.add(fault);
    }

    /// Removes the faults that have not happened yet.
    pub fn clear_faults(&self) {
        self.host.plan().faults.clear();
    }

    /// Closes all connections at once, without an AMQP close.
    pub fn drop_connections(&self) {
        self.shared().post_to_all(|mail| mail.drop = true);
    }

    /// Detaches all links to this entity at once by `amqp:link:detach-forced`, as Azure does with idle links.
    pub fn detach(&self, path: &str) {
        self.detach_links(&Detaching::forced(path));
    }

    /// Changes the status of a queue, a topic or a subscription. Its links for what is no longer allowed are detached. Not kept in the
    /// state file.
    ///
    /// # Errors
    /// If there is none at this path.
    pub fn set_status(&self, path: &str, status: EntityStatus) -> Result<(), BrokerError> {
        self.shared().with(|broker, _| broker.find(path).map(|entity| broker.set_status(entity, status)))?;
        let detaching = Detaching::forced(path)
            .with_error(&BrokerError::EntityDisabled { path: path.to_owned(), status });
        self.detach_links(&Detaching {
            receivers: matches!(status, EntityStatus::Disabled | EntityStatus::ReceiveDisabled),
            senders: matches!(status, EntityStatus::Disabled | EntityStatus::SendDisabled),
            ..detaching
        });
        Ok(())
    }

    /// Deletes a queue with its messages, and detaches its links. Not kept in the state file.
    ///
    /// # Errors
    /// If there is no such queue.
    pub fn delete_queue(&self, name: &str) -> Result<(), BrokerError> {
        self.shared().with(|broker, _| broker.delete_queue(name))?;
        let detaching =
            Detaching::forced(name).with_error(&BrokerError::EntityNotFound { path: name.to_owned() });
        self.detach_links(&Detaching { management: true, ..detaching });
        Ok(())
    }

    /// Creates a queue. Not kept in the state file.
    ///
    /// # Errors
    /// If there is one of this name, or Azure refuses a setting.
    pub fn create_queue(&self, name: &str, settings: Settings) -> Result<(), SetupError> {
        let queue = Queue { name: name.to_owned(), settings };
        self.shared().with(|broker, _| broker.create_queue(&queue))
    }

    fn detach_links(&self, detaching: &Detaching) {
        self.shared().post_to_all(|mail| mail.detach.push(detaching.clone()));
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

    fn shared(&self) -> Arc<SharedState> {
        self.host.shared()
    }
}

impl redrive_emulator_host::Plan for Plan {
    type Shared = SharedState;
    type Change = Change;
    type Error = StartError;

    fn open(&self) -> Result<Arc<SharedState>, StartError> {
        let start = self.starts.fetch_add(1, Ordering::Relaxed);
        let mut broker = Broker::new(&self.namespace, self.seed.wrapping_add(start << 32))?;
        let journal = self.state_file.as_ref().map(|path| {
            let (file, unknown) = store::open(path, &mut broker)?;
            for (entity, messages) in unknown {
                tracing::warn!(
                    entity,
                    messages,
                    "in the state file, and not in the configuration: left there"
                );
            }
            broker.keep_changes();
            file.journal().map_err(StartError::Thread)
        });
        let journal = journal.transpose()?;
        let (clock, keys, faults) =
            (Arc::clone(&self.clock), Arc::clone(&self.keys), Arc::clone(&self.faults));
        let shared = SharedState::new(broker, journal, clock, keys, faults);
        Ok(Arc::new(shared.detaching_idle_links(self.idle_links)))
    }

    fn accept(&self, listeners: Listeners, shared: &Arc<SharedState>) -> Accepting {
        listener::accept(listeners, &self.protocols, shared)
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
