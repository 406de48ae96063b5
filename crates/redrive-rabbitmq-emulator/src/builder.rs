use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use crate::broker::{Options, Version};
use crate::emulator::{Emulator, Plan};
use crate::error::StartError;
use crate::server::clock::Clock;
use crate::server::protocol_detect::ProtocolDetect;

/// Configures an emulator. Defaults: RabbitMQ 4.3, the virtual host `/` and the user `guest`, a free port of 127.0.0.1, the machine's
/// clock.
#[derive(Debug)]
#[must_use]
pub struct Builder {
    listen: String,
    options: Options,
    virtual_clock: bool,
}

impl Emulator {
    /// Returns a builder of an emulator.
    pub fn builder() -> Builder {
        Builder {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).to_string(),
            options: Options::new(Version::default()),
            virtual_clock: false,
        }
    }
}

impl Builder {
    /// Sets the address: `host:port`; port 0 is any free one. Default: a free port of 127.0.0.1.
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen = address.into();
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

    /// Stops the clock: it moves only by [`Emulator::advance`]. Timeouts of the clients themselves still take real time.
    pub fn virtual_clock(mut self) -> Self {
        self.virtual_clock = true;
        self
    }

    /// Starts the emulator, which accepts connections when this returns. It runs until it is stopped or dropped.
    ///
    /// # Errors
    /// If it cannot listen on the address.
    pub async fn start(self) -> Result<Emulator, StartError> {
        let plan = Plan {
            options: self.options,
            clock: Arc::new(Clock::new(self.virtual_clock)),
            protocols: Arc::new(ProtocolDetect::default()),
        };
        Emulator::start(plan, &self.listen).await
    }
}
