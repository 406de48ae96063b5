//! The project's own commands, run as `cargo xtask …`.
//!
//! `cargo xtask test` is everything that CI runs. Its files, in the order of use: [`mod@test`] the steps, [`step`] one command with
//! live output, [`servers`] the brokers, [`artifacts`] the test programs as cargo builds them, [`programs`] the pool that runs them,
//! [`facade`] what users start with, [`tally`] reads their output, [`closing`] the report at the end. `--servicebus-sdks` runs
//! [`sdks`] instead.
//!
//! [`mod@bench`] is `cargo xtask bench`; [`rivals`] installs the libraries to compare with. [`soak`] is `cargo xtask soak`.

mod artifacts;
mod bench;
#[cfg(test)]
mod claims;
mod closing;
mod facade;
#[cfg(test)]
mod links;
mod overtime;
mod programs;
mod rivals;
mod sdks;
mod servers;
mod soak;
mod step;
#[cfg(test)]
mod supply_chain;
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
        /// Only the Service Bus emulator with clients of other projects: installs them, and runs all their scenarios.
        #[arg(long, conflicts_with_all = ["broker", "quick"])]
        servicebus_sdks: bool,
    },
    /// Measures how fast redrive is, compared with code written by hand: `cargo xtask bench run --help`.
    Bench {
        /// Only on this RabbitMQ; may be repeated.
        #[arg(long, value_name = "3.10|4.3")]
        broker: Vec<Version>,
        /// With other libraries: builds and installs them under `target/rivals`.
        #[arg(long)]
        rivals: bool,
        /// What to measure, and how.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, default_value = "run")]
        arguments: Vec<String>,
    },
    /// Random faults under load for a given time, then a check that no message was lost.
    Soak {
        /// For how long faults happen.
        #[arg(long, default_value_t = 20)]
        minutes: u64,
        /// Only on this RabbitMQ; by default on one after the other.
        #[arg(long, value_name = "3.10|4.3")]
        broker: Option<Version>,
        /// Repeats the faults of an earlier soak in the same order; a soak prints its seed when it starts.
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
        Command::Bench { arguments, .. }
            if arguments
                .first()
                .is_some_and(|first| ["in-place", "servicebus"].contains(&first.as_str())) =>
        {
            bench::run_alone(arguments)
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
