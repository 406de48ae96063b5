use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::broker::{Broker, BrokerError, Namespace, Timestamp};
use crate::error::StartError;
use crate::faults::{Fault, Faults};
use crate::inspect::EntityView;
use crate::server::clock::Clock;
use crate::server::keys::Keys;
use crate::server::listener::Listening;
use crate::server::port::Port;
use crate::server::protocol_detect::ProtocolDetect;
use crate::server::shared_state::SharedState;
use crate::store::{Journal, Store};

/// A running emulator. Ends when it is dropped, as if its process were killed; [`Emulator::stop`] is the friendly end.
#[derive(Debug)]
pub struct Emulator {
    plan: Plan,
    port: Port,
    shared: Mutex<Arc<SharedState>>,
    listening: tokio::sync::Mutex<Option<Listening>>,
    #[cfg(feature = "http")]
    http: crate::server::http::HttpServer,
}

/// What stays the same over a crash.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) namespace: Namespace,
    pub(crate) seed: u64,
    /// Tokens of an earlier start are not given again.
    pub(crate) starts: AtomicU64,
    pub(crate) state_file: Option<PathBuf>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) protocols: Arc<ProtocolDetect>,
    pub(crate) idle_links: Option<Duration>,
}

impl Emulator {
    pub(crate) async fn start(plan: Plan, listen: &str) -> Result<Self, StartError> {
        let shared = plan.shared()?;
        let (port, listener) =
            Port::take(listen).await.map_err(|source| StartError::listen(&listen, source))?;
        let listening = Listening::start(listener, &plan.protocols, &shared);
        Ok(Self {
            plan,
            port,
            shared: Mutex::new(shared),
            listening: tokio::sync::Mutex::new(Some(listening)),
            #[cfg(feature = "http")]
            http: crate::server::http::HttpServer::default(),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// What SDKs connect with.
    pub fn connection_string(&self) -> String {
        self.connection_string_for(self.address().port())
    }

    fn connection_string_for(&self, port: u16) -> String {
        let (name, key) = self.plan.keys.first().unwrap_or(("RootManageSharedAccessKey", "SAS_KEY_VALUE"));
        // SDKs take the host as it is; an address such as 0.0.0.0 is none to connect to.
        format!(
            "Endpoint=sb://localhost:{port};SharedAccessKeyName={name};SharedAccessKey={key};UseDevelopmentEmulator=true;"
        )
    }

    #[cfg(feature = "http")]
    pub(crate) async fn with_http(self, listen: Option<&str>) -> Result<Self, StartError> {
        let http = crate::server::http::HttpServer::start(listen, &self.shared()).await?;
        Ok(Self { http, ..self })
    }

    /// Where it listens for HTTP; `None`: nowhere.
    #[cfg(feature = "http")]
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http.address()
    }

    /// What clients of the run-time REST API connect with; `None` where there is no HTTP.
    #[cfg(feature = "http")]
    pub fn http_connection_string(&self) -> Option<String> {
        self.http.address().map(|address| self.connection_string_for(address.port()))
    }

    /// Looks at a queue, a subscription (`topic/Subscriptions/name`) or a dead-letter queue (`orders/$DeadLetterQueue`).
    ///
    /// # Errors
    /// There is none at this path.
    pub fn entity(&self, path: &str) -> Result<EntityView, BrokerError> {
        let shared = self.shared();
        let entity = shared.with(|broker, _| broker.find(path))?;
        Ok(EntityView::new(shared, entity))
    }

    /// What the emulator takes for the time.
    pub fn now(&self) -> Timestamp {
        self.plan.clock.now()
    }

    /// Puts the clock forward, and does what is due by then: locks run out, messages expire or become active.
    pub fn advance(&self, by: Duration) {
        self.shared().put_forward(by);
    }

    /// How many clients are connected.
    pub fn connections(&self) -> usize {
        self.shared().connections()
    }

    /// From now on something goes wrong.
    pub fn inject(&self, fault: Fault) {
        self.plan.faults.add(fault);
    }

    /// Takes back the faults that did not strike yet.
    pub fn clear_faults(&self) {
        self.plan.faults.clear();
    }

    /// Ends all connections without a word, now.
    pub fn drop_connections(&self) {
        self.shared().post_to_all(|mail| mail.drop = true);
    }

    /// Detaches all links to this entity, now, by `amqp:link:detach-forced`, as Azure does with idle links.
    pub fn detach(&self, path: &str) {
        self.shared().post_to_all(|mail| mail.detach.push(path.to_owned()));
    }

    /// Ends as a killed process does: no goodbye, and nothing is written any more. Nobody listens when this returns; the port
    /// stays kept for a [`restart`](Self::restart) until this is dropped.
    pub async fn crash(&self) {
        #[cfg(feature = "http")]
        self.http.abort().await;
        if let Some(listening) = self.listening.lock().await.take() {
            listening.abort().await;
            self.blocking(SharedState::abandon_journal).await;
        }
    }

    /// Starts again at the same address after [`crash`](Self::crash) or [`stop`](Self::stop), with what the state file kept;
    /// without one, empty.
    ///
    /// # Errors
    /// As those of [`Builder::start`](crate::Builder::start). While it runs, it crashes first.
    pub async fn restart(&self) -> Result<(), StartError> {
        self.crash().await;
        let mut listening = self.listening.lock().await;
        let shared = self.plan.shared()?;
        let address = self.address();
        let listener = self.port.listen().await.map_err(|source| StartError::listen(&address, source))?;
        *listening = Some(Listening::start(listener, &self.plan.protocols, &shared));
        #[cfg(feature = "http")]
        self.http.restart(&shared).await?;
        *self.lock_hub() = shared;
        Ok(())
    }

    /// Says goodbye to all clients, and ends. Nobody listens when this returns; the port stays kept for a
    /// [`restart`](Self::restart) until this is dropped.
    pub async fn stop(&self) {
        #[cfg(feature = "http")]
        self.http.stop().await;
        if let Some(listening) = self.listening.lock().await.take() {
            listening.stop().await;
            self.blocking(SharedState::close_journal).await;
        }
    }

    async fn blocking(&self, act: fn(&SharedState)) {
        let shared = self.shared();
        if let Err(error) = tokio::task::spawn_blocking(move || act(&shared)).await {
            tracing::error!(%error, "the state file was not closed");
        }
    }

    fn shared(&self) -> Arc<SharedState> {
        Arc::clone(&self.lock_hub())
    }

    fn lock_hub(&self) -> MutexGuard<'_, Arc<SharedState>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plan {
    fn shared(&self) -> Result<Arc<SharedState>, StartError> {
        let start = self.starts.fetch_add(1, Ordering::Relaxed);
        let mut broker = Broker::new(&self.namespace, self.seed.wrapping_add(start << 32))?;
        let journal = self.state_file.as_ref().map(|path| {
            let (store, unknown) = Store::open(path, &mut broker)?;
            for (entity, messages) in unknown {
                tracing::warn!(
                    entity,
                    messages,
                    "in the state file, and not in the configuration: left there"
                );
            }
            broker.keep_changes();
            Journal::start(store).map_err(StartError::Thread)
        });
        let journal = journal.transpose()?;
        let (clock, keys, faults) =
            (Arc::clone(&self.clock), Arc::clone(&self.keys), Arc::clone(&self.faults));
        let shared = SharedState::new(broker, journal, clock, keys, faults);
        Ok(Arc::new(shared.detaching_idle_links(self.idle_links)))
    }
}
