//! A RabbitMQ in one process, for programs in any language.

use std::io::Write as _;

use anyhow::Context as _;
use clap::Parser;
use redrive_rabbitmq_emulator::{Emulator, Version};

/// A RabbitMQ for tests, laptops and one-machine services.
#[derive(Debug, Parser)]
#[command(disable_version_flag = true)]
struct Arguments {
    /// Address to listen on; port 0 is any free port.
    #[arg(long, default_value = "127.0.0.1:5672", value_name = "HOST:PORT")]
    listen: String,
    /// The version of RabbitMQ that it behaves like: 3.10 or 4.3.
    #[arg(long = "version", default_value = "4.3", value_name = "3.10|4.3")]
    rabbitmq_version: Version,
    /// Switches dead-lettering off as a whole: dead-letter exchanges are ignored, and rejected messages discarded.
    #[arg(long)]
    no_dead_lettering: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let emulator = start(Arguments::parse()).await?;
    let told_to_end = told_to_end().context("cannot wait for a signal")?;
    // The parent process waits for this line: flush it, because stdout may be a pipe.
    let mut out = std::io::stdout();
    writeln!(out, "listening on {}", emulator.address())?;
    out.flush()?;
    told_to_end.await;
    emulator.stop().await;
    Ok(())
}

async fn start(arguments: Arguments) -> anyhow::Result<Emulator> {
    let mut builder = Emulator::builder().listen(arguments.listen).version(arguments.rabbitmq_version);
    if arguments.no_dead_lettering {
        builder = builder.no_dead_lettering();
    }
    Ok(builder.start().await?)
}

/// Resolves on Ctrl-C, or on SIGTERM, which Docker, systemd and CI send. Installs the signal handlers at the call, before the
/// emulator reports that it runs.
#[cfg(unix)]
fn told_to_end() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

#[cfg(windows)]
fn told_to_end() -> std::io::Result<impl Future<Output = ()>> {
    let (mut pressed, mut shutdown) =
        (tokio::signal::windows::ctrl_c()?, tokio::signal::windows::ctrl_break()?);
    Ok(async move {
        tokio::select! {
            _ = pressed.recv() => {}
            _ = shutdown.recv() => {}
        }
    })
}
