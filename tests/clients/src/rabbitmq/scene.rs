//! A broker for one scenario.

use anyhow::{Context as _, Result};
use lapin::options::{ExchangeDeleteOptions, QueueDeleteOptions};
use lapin::{Connection, ConnectionProperties};
use redrive_brokers::{Proxy, Version, broker};
use redrive_rabbitmq_emulator::Emulator;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a scenario runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// RabbitMQ itself, shared: time passes by itself.
    RabbitMq(Version),
    /// An emulator of its own, which behaves like this version: time passes when it is told to.
    Emulator(Version),
}

impl On {
    /// The version that it is, or behaves as.
    #[must_use]
    pub fn version(self) -> Version {
        match self {
            On::RabbitMq(version) | On::Emulator(version) => version,
        }
    }
}

impl std::fmt::Display for On {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            On::RabbitMq(version) => write!(f, "RabbitMQ {version}"),
            On::Emulator(version) => write!(f, "the emulator of RabbitMQ {version}"),
        }
    }
}

/// A broker, and names on it that nobody else uses.
#[derive(Debug)]
pub struct Scene {
    on: On,
    url: String,
    prefix: String,
    proxy: Proxy,
    emulator: Option<Emulator>,
}

impl Scene {
    /// Opens a scene.
    ///
    /// # Errors
    /// If the broker cannot be started or found.
    pub async fn open(on: On) -> Result<Scene> {
        static SCENES: AtomicU64 = AtomicU64::new(0);
        let (upstream, emulator) = match on {
            On::RabbitMq(version) => (broker(version).url, None),
            On::Emulator(version) => {
                let emulator = Emulator::builder().version(version.into()).virtual_clock().start().await?;
                (emulator.url(), Some(emulator))
            }
        };
        let (login, rest) = upstream.split_once('@').context("the broker's URL names no user")?;
        let (host, rest) = rest.split_once('/').context("the broker's URL names no virtual host")?;
        // Not every client knows what else the URL says.
        let vhost = rest.split('?').next().unwrap_or_default();
        let address = tokio::net::lookup_host(host).await?.next().context("the broker has no address")?;
        let proxy = Proxy::start(address).await?;
        let url = format!("{login}@{}/{vhost}", proxy.addr());
        let prefix = format!("clients-{}-{}.", std::process::id(), SCENES.fetch_add(1, Ordering::Relaxed));
        Ok(Scene { on, url, prefix, proxy, emulator })
    }

    /// What it runs on.
    #[must_use]
    pub fn on(&self) -> On {
        self.on
    }

    /// Returns true on RabbitMQ 4.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.on.version() == Version::V4_3
    }

    /// `amqp://user:password@host:port/vhost`
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What the names of its queues and exchanges must begin with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A name of its own.
    #[must_use]
    pub fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Lets time pass: the emulator's clock is advanced, a real broker takes its time.
    pub async fn pass(&self, time: Duration) {
        match &self.emulator {
            Some(emulator) => emulator.advance(time),
            None => tokio::time::sleep(time).await,
        }
    }

    /// Cuts all connections without a word.
    pub fn cut(&self) {
        self.proxy.cut();
    }

    /// Deletes what was declared under these names.
    ///
    /// # Errors
    /// If the broker cannot be reached.
    pub async fn close(self, names: &[String]) -> Result<()> {
        if self.emulator.is_some() {
            return Ok(());
        }
        let connection = Connection::connect(&self.url, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        for name in names {
            // The one or the other: what is not there can be deleted, too.
            channel.queue_delete(name.as_str().into(), QueueDeleteOptions::default()).await?;
            channel.exchange_delete(name.as_str().into(), ExchangeDeleteOptions::default()).await?;
        }
        connection.close(200, "done".into()).await?;
        Ok(())
    }
}
