use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::broker::{Broker, Event, Options, Timestamp};
use crate::error::StartError;
use crate::server::clock::Clock;
use crate::server::listener::Listening;
use crate::server::port::Port;
use crate::server::protocol_detect::ProtocolDetect;
use crate::server::shared_state::SharedState;

/// A running emulator. Dropping it ends it like a killed process; [`Emulator::stop`] ends it in order.
#[derive(Debug)]
pub struct Emulator {
    plan: Plan,
    port: Port,
    shared: Mutex<Arc<SharedState>>,
    listening: tokio::sync::Mutex<Option<Listening>>,
}

/// What stays the same over a crash.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) options: Options,
    pub(crate) clock: Arc<Clock>,
    pub(crate) protocols: Arc<ProtocolDetect>,
}

impl Plan {
    fn shared(&self) -> Result<Arc<SharedState>, StartError> {
        let mut broker = Broker::new(self.options.clone());
        broker.advance(self.clock.now());
        broker.add_defaults();
        Ok(Arc::new(SharedState::new(broker, Arc::clone(&self.clock))))
    }
}

impl Emulator {
    pub(crate) async fn start(plan: Plan, listen: &str) -> Result<Self, StartError> {
        let shared = plan.shared()?;
        let (port, listener) =
            Port::take(listen).await.map_err(|source| StartError::listen(&listen, source))?;
        let listening = Listening::start(listener, &plan.protocols, &shared, plan.options.max_message_size);
        Ok(Self {
            plan,
            port,
            shared: Mutex::new(shared),
            listening: tokio::sync::Mutex::new(Some(listening)),
        })
    }

    /// Returns the address for AMQP.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Returns a URL for clients: user `guest`, virtual host `/`.
    pub fn url(&self) -> String {
        let address = self.address();
        let host =
            if address.ip().is_unspecified() { "127.0.0.1".to_owned() } else { address.ip().to_string() };
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        format!("amqp://guest:guest@{host}:{}/%2f", address.port())
    }

    /// Returns the emulator's current time.
    pub fn now(&self) -> Timestamp {
        self.plan.clock.now()
    }

    /// Advances the clock, and applies everything that is due by then: messages and queues expire, delayed messages return.
    pub fn advance(&self, by: Duration) {
        self.shared().put_forward(by);
    }

    /// Returns what happened since the last call that no client is told, such as every dropped message with its reason.
    pub fn take_events(&self) -> Vec<Event> {
        self.shared().with(|broker, _| broker.take_events())
    }

    /// Closes all connections in order, and ends. Nothing listens when this returns; the port stays reserved until this value is
    /// dropped.
    pub async fn stop(&self) {
        if let Some(listening) = self.listening.lock().await.take() {
            listening.stop().await;
        }
    }

    fn shared(&self) -> Arc<SharedState> {
        Arc::clone(&self.lock_shared())
    }

    fn lock_shared(&self) -> MutexGuard<'_, Arc<SharedState>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
