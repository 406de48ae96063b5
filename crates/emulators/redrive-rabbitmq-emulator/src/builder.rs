use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "http")]
use redrive_emulator_host::Door;
use redrive_emulator_host::{Clock, Host, Listen};
use serde_json::json;

use crate::broker::{Definitions, Options, Version};
use crate::emulator::{Emulator, Plan};
use crate::error::StartError;
use crate::server::protocol_detect::ProtocolDetect;

/// Configures an emulator. Defaults: RabbitMQ 4.3, the virtual host `/` and the user `guest`, a free port of 127.0.0.1, the machine's
/// clock, nothing kept.
#[derive(Debug)]
#[must_use]
pub struct Builder {
    listen: Vec<Listen>,
    listen_http: Vec<Listen>,
    #[cfg(feature = "http")]
    http_names: Vec<String>,
    options: Options,
    virtual_clock: bool,
    logs_events: bool,
    definitions: Vec<String>,
    state_file: Option<PathBuf>,
    #[cfg(feature = "tls")]
    tls: Option<(Vec<u8>, Vec<u8>)>,
}

impl Emulator {
    /// Returns a builder of an emulator.
    pub fn builder() -> Builder {
        Builder {
            listen: Vec::new(),
            listen_http: Vec::new(),
            #[cfg(feature = "http")]
            http_names: Vec::new(),
            options: Options::new(Version::default()),
            virtual_clock: false,
            logs_events: false,
            definitions: Vec::new(),
            state_file: None,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

impl Builder {
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

    /// Adds an address for HTTP: the management API, and the emulator's own calls. `host:port`; port 0 is any free one. Default: no
    /// HTTP.
    #[cfg(feature = "http")]
    pub fn listen_http(mut self, address: impl Into<String>) -> Self {
        self.listen_http.push(Listen::required(address));
        self
    }

    /// Adds a name by which HTTP clients address it, such as that of a container. It always answers to addresses and `localhost`, and
    /// refuses any other name: an attacker's page can be reached by a name that points to this machine.
    #[cfg(feature = "http")]
    pub fn http_name(mut self, name: impl Into<String>) -> Self {
        self.http_names.push(name.into());
        self
    }

    /// Sets the version that it behaves like. Default: 4.3.
    pub fn version(mut self, version: Version) -> Self {
        self.options.max_message_size = version.max_message_size();
        self.options.version = version;
        self
    }

    /// Switches dead-lettering off as a whole: dead-letter exchanges are ignored, and rejected messages discarded.
    pub fn no_dead_lettering(mut self) -> Self {
        self.options.dead_lettering = false;
        self
    }

    #[doc(hidden)]
    pub fn unpromised_order(mut self, order: crate::broker::UnpromisedOrder) -> Self {
        self.options.order = order;
        self
    }

    /// Stops the clock: it moves only by [`Emulator::advance`]. Heartbeats still take real time.
    pub fn virtual_clock(mut self) -> Self {
        self.virtual_clock = true;
        self
    }

    /// Sets how long a delivery may stay unsettled; `None`: for ever. Default: 30 minutes, as RabbitMQ.
    pub fn consumer_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.options.consumer_timeout = timeout;
        self
    }

    /// Sets how many events are kept for [`Emulator::take_events`]. Default: the latest 100 000.
    pub fn max_events(mut self, events: usize) -> Self {
        self.options.max_events = events;
        self
    }

    /// Logs (`WARN`) what it drops, and why, and whatever else [`Emulator::take_events`] has that is no dead letter. Default: it does not,
    /// because a test looks at the events.
    pub fn log_events(mut self) -> Self {
        self.logs_events = true;
        self
    }

    /// Adds definitions as RabbitMQ exports them (JSON). If they name users, there is no user `guest` but the one they name.
    pub fn definitions(mut self, json: impl Into<String>) -> Self {
        self.definitions.push(json.into());
        self
    }

    /// Adds a virtual host. `guest` may do everything in it.
    pub fn vhost(self, name: &str) -> Self {
        let json = json!({
            "vhosts": [{"name": name}],
            "permissions": [{"user": "guest", "vhost": name, "configure": ".*", "write": ".*", "read": ".*"}],
        });
        self.definitions(json.to_string())
    }

    /// Keeps durable queues and persistent messages in this file, and starts with those in it. A client gets its response once the
    /// change is on disk. Default: nothing is kept.
    pub fn state_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.state_file = Some(path.into());
        self
    }

    /// Also accepts clients by TLS, on the same port, with this certificate, followed by those that sign it, and its key, both in PEM.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, certificates: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls = Some((certificates.into(), key.into()));
        self
    }

    /// Starts the emulator, which accepts connections when this returns. It runs until it is stopped or dropped.
    ///
    /// # Errors
    /// If it cannot listen on the address, or the definitions, the state file, the certificate or its key cannot be used.
    pub async fn start(self) -> Result<Emulator, StartError> {
        let protocols = self.protocols()?;
        let definitions: Result<Vec<Definitions>, _> =
            self.definitions.iter().map(|json| serde_json::from_str(json)).collect();
        let plan = Plan {
            options: self.options,
            definitions: definitions.map_err(|error| StartError::definitions(error.to_string()))?,
            state_file: self.state_file,
            clock: Arc::new(Clock::new(self.virtual_clock)),
            logs_events: self.logs_events,
            protocols: Arc::new(protocols),
            #[cfg(feature = "http")]
            door: Arc::new(Door::new(
                self.listen_http.iter().map(|listen| listen.address.clone()).chain(self.http_names),
            )),
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
        })
    }
}
