//! The project's own commands, run as `cargo xtask …`.
//!
//! `cargo xtask test` is everything that CI runs. The files, in the order in which it uses them:
//! [`mod@test`] the steps, [`step`] one command shown live, [`servers`] the brokers, [`artifacts`] the test programs as cargo
//! builds them, [`programs`] what runs them side by side, [`facade`] what users begin with, [`tally`] what their output says, [`closing`] the report at the end.
//! With `--servicebus-sdks` it is [`sdks`] instead. [`mod@bench`] is `cargo xtask bench`, for which [`rivals`] installs what
//! redrive is measured beside. [`soak`] is
//! `cargo xtask soak`.

mod artifacts;
mod bench;
mod closing;
mod facade;
#[cfg(test)]
mod links;
mod programs;
mod rivals;
mod sdks;
mod servers;
mod soak;
mod step;
mod tally;
mod test;

use anyhow::Result;
use clap::{Parser, Subcommand};
use redrive_brokers::Version;
use std::process::ExitCode;

/// The project's own commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Formatting, lints, docs, licences and all tests, on real brokers.
    Test {
        /// Only the tests of this RabbitMQ, and those that need none.
        #[arg(long, value_name = "3.10|4.3")]
        broker: Option<Version>,
        /// Only format, lints, and the tests without RabbitMQ.
        #[arg(long, conflicts_with = "broker")]
        quick: bool,
        /// Only the Service Bus emulator under the eyes of foreign clients: installs them, and runs all their scenarios.
        #[arg(long, conflicts_with_all = ["broker", "quick"])]
        servicebus_sdks: bool,
    },
    /// How fast redrive is, beside what can be written by hand: `cargo xtask bench run --help`.
    Bench {
        /// Only on this RabbitMQ; may be repeated.
        #[arg(long, value_name = "3.10|4.3")]
        broker: Vec<Version>,
        /// With the libraries of others: builds and installs them under `target/rivals`.
        #[arg(long)]
        rivals: bool,
        /// What to measure, and how.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, default_value = "run")]
        arguments: Vec<String>,
    },
    /// Random faults under load, for as long as you like; then says whether the books balance.
    Soak {
        /// How long faults happen.
        #[arg(long, default_value_t = 20)]
        minutes: u64,
        /// Only on this RabbitMQ; else on one after the other.
        #[arg(long, value_name = "3.10|4.3")]
        broker: Option<Version>,
        /// The faults of an earlier soak again, in the same order; it says its seed when it starts.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Starts the brokers for `cargo test`, prints their URLs as shell lines, and keeps them until Ctrl-C.
    Brokers {
        /// Only this RabbitMQ.
        #[arg(long, value_name = "3.10|4.3")]
        broker: Option<Version>,
    },
}

fn main() -> ExitCode {
    run(&Arguments::parse().command).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(command: &Command) -> Result<ExitCode> {
    let chosen = |broker: Option<Version>| broker.map_or(Version::ALL.to_vec(), |version| vec![version]);
    match command {
        Command::Test { servicebus_sdks: true, .. } => sdks::run(),
        Command::Test { quick: true, .. } => test::run_quick(),
        Command::Test { broker, .. } => test::run(&chosen(*broker)),
        Command::Bench { arguments, .. } if arguments.first().is_some_and(|first| first == "servicebus") => {
            bench::run_servicebus(arguments)
        }
        Command::Bench { broker, rivals, arguments } => {
            let versions = if broker.is_empty() { &Version::ALL[..] } else { broker };
            bench::run(versions, *rivals, arguments)
        }
        Command::Soak { minutes, broker, seed } => soak::run(&chosen(*broker), *minutes, *seed),
        Command::Brokers { broker } => {
            let servers = servers::find(&chosen(*broker))?;
            for server in &servers {
                println!("export {}={}", server.version.url_variable(), server.url());
            }
            loop {
                std::thread::park();
            }
        }
    }
}
