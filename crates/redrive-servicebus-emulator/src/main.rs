//! A Service Bus in one process, for programs in any language.

use std::hash::{BuildHasher as _, Hasher as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Parser;
use redrive_servicebus_emulator::config::Config;
use redrive_servicebus_emulator::{Emulator, Settings, Topic};

/// An Azure Service Bus for tests and laptops.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Where to listen; port 0 is any that is free.
    #[arg(long, default_value = "127.0.0.1:5672", value_name = "HOST:PORT")]
    listen: String,
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
    /// From now on tokens must be signed by such a key. Repeatable. Without one every token is good.
    #[arg(long, value_name = "NAME=KEY")]
    key: Vec<String>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let emulator = start(Arguments::parse()).await?;
    // Whoever started this waits for this line: out at once, even into a pipe.
    let mut out = std::io::stdout();
    writeln!(out, "listening on {}", emulator.address())?;
    out.flush()?;
    tokio::signal::ctrl_c().await.context("cannot wait for Ctrl-C")?;
    emulator.stop().await;
    Ok(())
}

async fn start(arguments: Arguments) -> anyhow::Result<Emulator> {
    if arguments.config.is_none() && arguments.queue.is_empty() && arguments.topic.is_empty() {
        bail!("there is nothing to send to: give --config FILE, --queue NAME or --topic NAME/SUBSCRIPTION");
    }
    // A client may still hold tokens of an earlier run.
    let seed = std::hash::RandomState::new().build_hasher().finish();
    let mut builder = Emulator::builder().listen(arguments.listen).seed(seed);
    if let Some(path) = arguments.state {
        builder = builder.state_file(path);
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
    Ok(builder.start().await?)
}

fn read(path: &Path) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let config = Config::parse(&text).with_context(|| format!("{} is no configuration", path.display()))?;
    for key in &config.unknown_keys {
        tracing::warn!("{}: {key} is not known, and does nothing", path.display());
    }
    Ok(config)
}

/// The topics in the order in which they were named first.
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
