//! The life of an emulator: it starts, crashes, stops, and starts again at the same addresses.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::task::JoinSet;

use crate::accepting::Accepting;
use crate::port::{Listen, ListenError, Listeners, Ports};
use crate::store::Journal;

/// How an emulator starts, the first time and after each crash.
pub trait Plan: Send + Sync + 'static {
    /// State that all connections share, from one start to the next.
    type Shared: Send + Sync + 'static;
    /// A change that the state file keeps.
    type Change: Send + 'static;
    /// Why the emulator does not start.
    type Error: From<ListenError>;

    /// Creates the state, with the content of the state file.
    ///
    /// # Errors
    /// If it cannot be created.
    fn open(&self) -> Result<Arc<Self::Shared>, Self::Error>;

    /// Accepts clients of the emulator's main protocol.
    fn accept(&self, listeners: Listeners, shared: &Arc<Self::Shared>) -> Accepting;

    /// Accepts clients by HTTP; `None`: it does not speak HTTP.
    fn accept_http(&self, listeners: Listeners, shared: &Arc<Self::Shared>) -> Option<Accepting> {
        let _ = (listeners, shared);
        None
    }

    /// Applies what time alone causes, until it is dropped.
    fn pass_time(shared: Arc<Self::Shared>) -> impl Future<Output = ()> + Send + 'static;

    /// Returns the journal of the state file; `None`: nothing is kept.
    fn journal(shared: &Self::Shared) -> Option<&Journal<Self::Change>>;
}

/// An emulator that runs, or can run again. Dropping it ends it like a killed process; [`Host::stop`] ends it in order.
#[derive(Debug)]
pub struct Host<P: Plan> {
    plan: P,
    ports: Ports,
    http: Option<Ports>,
    shared: Mutex<Arc<P::Shared>>,
    running: tokio::sync::Mutex<Option<Running>>,
}

/// The tasks between a start and an end. Dropping it aborts them.
#[derive(Debug)]
struct Running {
    main: Accepting,
    http: Option<Accepting>,
    time: JoinSet<()>,
}

impl<P: Plan> Host<P> {
    /// Starts at these addresses, and accepts connections when this returns. Without a required first one, that is a free port of
    /// 127.0.0.1.
    ///
    /// # Errors
    /// If an address cannot be listened on, or the plan cannot be opened.
    pub async fn start(plan: P, listen: Vec<Listen>, http: &[Listen]) -> Result<Self, P::Error> {
        let shared = plan.open()?;
        let (ports, main) = Ports::take(&Listen::with_first(listen)).await?;
        let (http, listening) = match http {
            [] => (None, None),
            wanted => Some(Ports::take(wanted).await?).unzip(),
        };
        let running = Running::start(&plan, main, listening, &shared);
        Ok(Self { plan, ports, http, shared: Mutex::new(shared), running: Some(running).into() })
    }

    /// Returns the plan.
    pub fn plan(&self) -> &P {
        &self.plan
    }

    /// Returns the state since the last start.
    pub fn shared(&self) -> Arc<P::Shared> {
        Arc::clone(&self.lock_shared())
    }

    /// Returns the first address.
    pub fn address(&self) -> SocketAddr {
        // `start` requires the first one.
        self.addresses().first().copied().unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Returns all addresses of the main protocol.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.ports.addresses()
    }

    /// Returns all addresses for HTTP.
    pub fn http_addresses(&self) -> Vec<SocketAddr> {
        self.http.as_ref().map(Ports::addresses).unwrap_or_default()
    }

    /// Ends like a killed process. Nothing listens when this returns; the ports stay reserved until this value is dropped.
    pub async fn crash(&self) {
        let mut running = self.running.lock().await;
        self.abort(running.take()).await;
    }

    /// Starts again at the same addresses. A running emulator crashes first.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn restart(&self) -> Result<(), P::Error> {
        let mut running = self.running.lock().await;
        self.abort(running.take()).await;
        let shared = self.plan.open()?;
        let main = self.ports.listen().await?;
        let http = match &self.http {
            Some(ports) => Some(ports.listen().await?),
            None => None,
        };
        *running = Some(Running::start(&self.plan, main, http, &shared));
        *self.lock_shared() = shared;
        Ok(())
    }

    /// Closes all connections in order, those by HTTP first, and ends. Nothing listens when this returns; the ports stay reserved until
    /// this value is dropped.
    pub async fn stop(&self) {
        let mut running = self.running.lock().await;
        // The time passes until all connections have ended.
        if let Some(Running { main, http, time: _time }) = running.take() {
            if let Some(http) = http {
                http.stop().await;
            }
            main.stop().await;
            self.end_journal(Journal::close).await;
        }
    }

    async fn abort(&self, running: Option<Running>) {
        let Some(Running { main, http, time }) = running else { return };
        drop(time);
        if let Some(http) = http {
            http.abort().await;
        }
        main.abort().await;
        self.end_journal(Journal::abandon).await;
    }

    /// Closes the journal, which blocks.
    async fn end_journal(&self, end: fn(&Journal<P::Change>)) {
        let shared = self.shared();
        let ended = tokio::task::spawn_blocking(move || P::journal(&shared).into_iter().for_each(end)).await;
        if let Err(error) = ended {
            tracing::error!(%error, "the state file was not closed");
        }
    }

    /// Ignores poisoning: the state is replaced as a whole.
    fn lock_shared(&self) -> MutexGuard<'_, Arc<P::Shared>> {
        self.shared.lock()
    }
}

impl Running {
    fn start<P: Plan>(plan: &P, main: Listeners, http: Option<Listeners>, shared: &Arc<P::Shared>) -> Self {
        let mut time = JoinSet::new();
        time.spawn(P::pass_time(Arc::clone(shared)));
        let http = http.and_then(|listeners| plan.accept_http(listeners, shared));
        Self { main: plan.accept(main, shared), http, time }
    }
}

#[cfg(test)]
mod tests;
