//! A Service Bus in one process, for programs in any language.

use std::hash::{BuildHasher as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Parser;
use redrive_emulator_host::program::{announce, log_to_stderr, told_to_end};
use redrive_servicebus_emulator::config::Config;
use redrive_servicebus_emulator::{Builder, Emulator, Settings, Topic};

/// The limit of Azure.
const IDLE_LINKS: Duration = Duration::from_secs(600);

/// An Azure Service Bus for tests and laptops.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Address to listen on; port 0 is any free port. Repeatable. Default: 127.0.0.1:5672, and [::1]:5672 where there is IPv6.
    #[arg(long, value_name = "HOST:PORT")]
    listen: Vec<String>,
    /// Address of the run-time REST API; port 0 is any free port. Repeatable. Default: no HTTP.
    #[cfg(feature = "http")]
    #[arg(long, value_name = "HOST:PORT")]
    listen_http: Vec<String>,
    /// A name by which clients address it by HTTP and WebSockets, such as that of its container. Repeatable. Addresses and `localhost`
    /// always do; with --key any name does.
    #[arg(long, value_name = "NAME")]
    http_name: Vec<String>,
    /// A Config.json of the official emulator.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Keeps messages in this file, so that they outlive a restart.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Adds a queue with Azure's defaults. Repeatable.
    #[arg(long, value_name = "NAME")]
    queue: Vec<String>,
    /// Adds a subscription and, with its first one, the topic. Repeatable.
    #[arg(long, value_name = "NAME/SUBSCRIPTION")]
    topic: Vec<String>,
    /// Adds a key that may sign tokens. Repeatable. Without a key, every token is accepted.
    #[arg(long, value_name = "NAME=KEY")]
    key: Vec<String>,
    /// Also accepts clients by TLS, on the same port: a certificate in PEM, followed by those that sign it.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's key, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    log_to_stderr();
    let emulator = start(Arguments::parse()).await?;
    let told_to_end = told_to_end().context("cannot wait for a signal")?;
    #[cfg(feature = "http")]
    let http = emulator.http_addresses();
    #[cfg(not(feature = "http"))]
    let http = Vec::new();
    announce(&http, &emulator.addresses())?;
    told_to_end.await;
    emulator.stop().await;
    Ok(())
}

/// Adds the addresses for AMQP. Many clients try both of `localhost`'s.
fn listen(builder: Builder, addresses: Vec<String>) -> Builder {
    if addresses.is_empty() {
        return builder.listen("127.0.0.1:5672").listen_if_available("[::1]:5672");
    }
    addresses.into_iter().fold(builder, Builder::listen)
}

async fn start(arguments: Arguments) -> anyhow::Result<Emulator> {
    if arguments.config.is_none() && arguments.queue.is_empty() && arguments.topic.is_empty() {
        bail!("there is nothing to send to: give --config FILE, --queue NAME or --topic NAME/SUBSCRIPTION");
    }
    // A client may still hold tokens of an earlier run.
    let seed = std::hash::RandomState::new().build_hasher().finish();
    let mut builder = listen(Emulator::builder(), arguments.listen).seed(seed).detach_idle_links(IDLE_LINKS);
    if let Some(path) = arguments.state {
        builder = builder.state_file(path);
    }
    #[cfg(feature = "http")]
    for address in arguments.listen_http {
        builder = builder.listen_http(address);
    }
    for name in arguments.http_name {
        builder = builder.http_name(name);
    }
    if let Some(path) = &arguments.config {
        builder = builder.namespace(read(path)?.namespace);
    }
    for name in arguments.queue {
        builder = builder.queue(name, Settings::default());
    }
    for topic in topics(&arguments.topic)? {
        builder = builder.topic(topic);
    }
    for key in arguments.key {
        let Some((name, key)) = key.split_once('=') else { bail!("--key: write NAME=KEY") };
        builder = builder.key(name, key);
    }
    if let (Some(certificates), Some(key)) = (&arguments.tls_cert, &arguments.tls_key) {
        builder = builder.tls(bytes_of(certificates)?, bytes_of(key)?);
    }
    Ok(builder.websockets().start().await?)
}

fn bytes_of(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn read(path: &Path) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let config = Config::parse(&text).with_context(|| format!("{} is no configuration", path.display()))?;
    for key in &config.unknown_keys {
        tracing::warn!("{}: {key} is not known, and does nothing", path.display());
    }
    Ok(config)
}

/// Returns the topics in the order in which they were first named.
fn topics(arguments: &[String]) -> anyhow::Result<Vec<Topic>> {
    let mut topics: Vec<Topic> = Vec::new();
    for argument in arguments {
        let Some((name, subscription)) = argument.split_once('/') else {
            bail!("--topic {argument}: write NAME/SUBSCRIPTION")
        };
        let known = topics.iter().position(|topic| topic.name.eq_ignore_ascii_case(name));
        let topic = match known {
            Some(at) => topics.remove(at),
            None => Topic::new(name, Settings::default()),
        };
        let topic = topic.subscription(subscription, Settings::default());
        topics.insert(known.unwrap_or(topics.len()), topic);
    }
    Ok(topics)
}
