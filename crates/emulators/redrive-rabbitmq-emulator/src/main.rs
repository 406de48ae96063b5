//! A RabbitMQ in one process, for programs in any language.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Parser;
use redrive_emulator_host::program::{announce, log_to_stderr, told_to_end};
use redrive_rabbitmq_emulator::{Builder, Emulator, Version};

/// A RabbitMQ for tests, laptops and one-machine services.
#[derive(Debug, Parser)]
#[command(disable_version_flag = true)]
struct Arguments {
    /// Address to listen on; port 0 is any free port. Repeatable. Default: 127.0.0.1:5672, and [::1]:5672 where there is IPv6.
    #[arg(long, value_name = "HOST:PORT")]
    listen: Vec<String>,
    /// Address for HTTP: the management API and the emulator's own calls; port 0 is any free port. Repeatable. Default: no HTTP.
    #[arg(long, value_name = "HOST:PORT")]
    listen_http: Vec<String>,
    /// A name by which HTTP clients address it, such as that of its container. Repeatable. Addresses and `localhost` always do.
    #[arg(long, value_name = "NAME", requires = "listen_http")]
    http_name: Vec<String>,
    /// The version of RabbitMQ that it behaves like.
    #[arg(long = "version", default_value = "4.3", value_name = "3.10|4.3")]
    behaves_like: Version,
    /// Definitions that RabbitMQ exported: virtual hosts, users, permissions, exchanges, queues, bindings, policies. Repeatable.
    #[arg(long, value_name = "FILE")]
    definitions: Vec<PathBuf>,
    /// Keeps durable queues and persistent messages in this file, so that they outlive a restart.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Switches dead-lettering off as a whole: dead-letter exchanges are ignored, and rejected messages discarded.
    #[arg(long, env = "REDRIVE_RABBITMQ_EMULATOR_NO_DEAD_LETTERING", value_parser = clap::builder::BoolishValueParser::new())]
    no_dead_lettering: bool,
    /// `manual`: the clock stands, and moves only by `POST /emulator/advance?millis=NUMBER` (needs --listen-http).
    #[arg(long, value_name = "real|manual", default_value = "real", value_parser = ["real", "manual"])]
    time: String,
    /// How long a delivery may stay unsettled, in milliseconds; 0: for ever.
    #[arg(long, value_name = "MILLIS", default_value_t = 1_800_000)]
    consumer_timeout: u64,
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
    announce(&emulator.http_addresses(), &emulator.addresses())?;
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
    let manual = arguments.time == "manual";
    if manual && arguments.listen_http.is_empty() {
        bail!("with --time manual the clock moves only by HTTP: give --listen-http HOST:PORT");
    }
    let timeout = (arguments.consumer_timeout > 0).then(|| Duration::from_millis(arguments.consumer_timeout));
    let mut builder = listen(Emulator::builder(), arguments.listen)
        .version(arguments.behaves_like)
        .consumer_timeout(timeout)
        .log_events();
    if manual {
        builder = builder.virtual_clock();
    }
    for address in arguments.listen_http {
        builder = builder.listen_http(address);
    }
    for name in arguments.http_name {
        builder = builder.http_name(name);
    }
    if arguments.no_dead_lettering {
        builder = builder.no_dead_lettering();
    }
    for path in &arguments.definitions {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        builder = builder.definitions(text);
    }
    if let Some(path) = arguments.state {
        builder = builder.state_file(path);
    }
    if let (Some(certificates), Some(key)) = (&arguments.tls_cert, &arguments.tls_key) {
        builder = builder.tls(bytes_of(certificates)?, bytes_of(key)?);
    }
    Ok(builder.start().await?)
}

fn bytes_of(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
