use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

#[cfg(any(feature = "http", feature = "websockets"))]
use redrive_emulator_host::Door;
use redrive_emulator_host::{Clock, Host, Listen};

use crate::broker::{Namespace, Settings, Topic};
use crate::emulator::{Emulator, Plan};
use crate::error::StartError;
use crate::faults::Faults;
use crate::server::keys::Keys;
use crate::server::protocol_detect::ProtocolDetect;

/// Configures an emulator. Defaults: no entities, every token is accepted, a free port of 127.0.0.1, the machine's clock.
#[derive(Debug)]
#[must_use]
pub struct Builder {
    namespace: Namespace,
    listen: Vec<Listen>,
    listen_http: Vec<Listen>,
    #[cfg(any(feature = "http", feature = "websockets"))]
    http_names: Vec<String>,
    keys: Vec<(String, String)>,
    virtual_clock: bool,
    seed: u64,
    state_file: Option<PathBuf>,
    idle_links: Option<Duration>,
    #[cfg(feature = "tls")]
    tls: Option<(Vec<u8>, Vec<u8>)>,
    #[cfg(feature = "websockets")]
    websockets: bool,
}

impl Emulator {
    /// Returns a builder of an emulator.
    pub fn builder() -> Builder {
        Builder::new()
    }
}

impl Builder {
    fn new() -> Self {
        Self {
            namespace: Namespace::default(),
            listen: Vec::new(),
            listen_http: Vec::new(),
            #[cfg(any(feature = "http", feature = "websockets"))]
            http_names: Vec::new(),
            keys: Vec::new(),
            virtual_clock: false,
            seed: 0,
            state_file: None,
            idle_links: None,
            #[cfg(feature = "tls")]
            tls: None,
            #[cfg(feature = "websockets")]
            websockets: false,
        }
    }

    /// Adds a queue.
    pub fn queue(mut self, name: impl Into<String>, settings: Settings) -> Self {
        self.namespace = self.namespace.queue(name, settings);
        self
    }

    /// Adds a topic with its subscriptions.
    pub fn topic(mut self, topic: Topic) -> Self {
        self.namespace = self.namespace.topic(topic);
        self
    }

    /// Adds all entities of a namespace, such as that of a configuration file.
    pub fn namespace(mut self, namespace: Namespace) -> Self {
        self.namespace.queues.extend(namespace.queues);
        self.namespace.topics.extend(namespace.topics);
        self
    }

    /// Adds an address for AMQP: `host:port`; port 0 is any free one. Default: a free port of 127.0.0.1.
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen.push(Listen::required(address));
        self
    }

    /// Adds an address for AMQP that is left out where this machine does not have it, such as `[::1]:5672` without IPv6. It is not the
    /// first one.
    pub fn listen_if_available(mut self, address: impl Into<String>) -> Self {
        self.listen.push(Listen::if_available(address));
        self
    }

    /// Adds an address for HTTP: the run-time REST API on the same entities. `host:port`; port 0 is any free one. Default: no HTTP.
    #[cfg(feature = "http")]
    pub fn listen_http(mut self, address: impl Into<String>) -> Self {
        self.listen_http.push(Listen::required(address));
        self
    }

    /// Adds a name by which clients address it by HTTP and WebSockets, such as that of a container. It always answers to addresses and
    /// `localhost`. Without a [`key`](Self::key) it refuses any other name, and requests of web pages: every page that a browser on
    /// this machine shows could send them. A token that is signed by a key proves that a client may.
    #[cfg(any(feature = "http", feature = "websockets"))]
    pub fn http_name(mut self, name: impl Into<String>) -> Self {
        self.http_names.push(name.into());
        self
    }

    /// Adds a key. Tokens must then be signed by one of the added keys. Default: every token is accepted.
    pub fn key(mut self, name: impl Into<String>, key: impl Into<String>) -> Self {
        self.keys.push((name.into(), key.into()));
        self
    }

    /// Stops the clock: it moves only by [`Emulator::advance`]. Timeouts of the clients themselves still take real time.
    pub fn virtual_clock(mut self) -> Self {
        self.virtual_clock = true;
        self
    }

    /// Detaches links without traffic for this long, by `amqp:link:detach-forced`, on the emulator's clock. Azure does this after
    /// ten minutes. Default: never, because tests advance the clock by hours.
    pub fn detach_idle_links(mut self, after: Duration) -> Self {
        self.idle_links = Some(after);
        self
    }

    /// Keeps messages in this file, and starts with those in it. A client gets its response once the change is on disk. Default:
    /// nothing is kept.
    pub fn state_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.state_file = Some(path.into());
        self
    }

    /// Sets the seed of the lock tokens. Default: 0, the same tokens on every run. With a state file use a random seed: a client may
    /// still hold tokens of an earlier run.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Also accepts clients by TLS, on the same port, with this certificate, followed by those that sign it, and its key, both in
    /// PEM. Clients of Service Bus expect the host name of their `Endpoint`, such as `localhost`.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, certificates: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls = Some((certificates.into(), key.into()));
        self
    }

    /// Also accepts clients by AMQP over WebSockets, on the same port: at `/$servicebus/websocket`, with the subprotocol
    /// `amqp` or `AMQPWSB10`. With [`tls`](Self::tls) also within TLS.
    #[cfg(feature = "websockets")]
    pub fn websockets(mut self) -> Self {
        self.websockets = true;
        self
    }

    /// Starts the emulator, which accepts connections when this returns. It runs until it is stopped or dropped.
    ///
    /// # Errors
    /// If it cannot listen on the address, the entities contradict each other, or the state file, the certificate or its key
    /// cannot be used.
    pub async fn start(self) -> Result<Emulator, StartError> {
        let plan = Plan {
            protocols: Arc::new(self.protocols()?),
            #[cfg(feature = "http")]
            door: Arc::new(self.door()),
            namespace: self.namespace,
            seed: self.seed,
            starts: AtomicU64::new(0),
            state_file: self.state_file,
            clock: Arc::new(Clock::new(self.virtual_clock)),
            idle_links: self.idle_links,
            keys: Arc::new(Keys::new(self.keys)),
            faults: Arc::new(Faults::default()),
        };
        Ok(Emulator { host: Host::start(plan, self.listen, &self.listen_http).await? })
    }

    fn protocols(&self) -> Result<ProtocolDetect, StartError> {
        Ok(ProtocolDetect {
            #[cfg(feature = "tls")]
            tls: match &self.tls {
                Some((certificates, key)) => {
                    Some(redrive_emulator_host::Identity::from_pem(certificates, key)?)
                }
                None => None,
            },
            #[cfg(feature = "websockets")]
            websockets: self.websockets,
            #[cfg(feature = "websockets")]
            door: self.door(),
        })
    }

    /// Returns `None` if tokens are checked: then nobody but who has a key gets anything.
    #[cfg(any(feature = "http", feature = "websockets"))]
    fn door(&self) -> Option<Door> {
        let listens = self.listen.iter().chain(&self.listen_http);
        let names = listens.map(|listen| &listen.address).chain(&self.http_names);
        self.keys.is_empty().then(|| Door::new(names.cloned()))
    }
}
