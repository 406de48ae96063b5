//! How fast redrive is, beside what can be written by hand. `cargo xtask bench` starts brokers and runs this.
//!
//! | module | is |
//! |---|---|
//! | [`task`] | what one contestant is to do, as a plain value |
//! | [`contestant`] | the programs that are measured, each in a process of its own |
//! | [`course`] | fills the queues, starts the contestants one after the other, measures, checks, reports |
//! | [`scale`] | redrive alone: many consumers, many queues, many messages waiting, many messages in all |
//! | [`in_place`] | an experiment: retries by AMQP 1.0, in one frame |
//! | [`servicebus`] | redrive on Azure Service Bus, and the emulator: what each of the two costs |
//! | [`server`], [`queues`], [`process`] | the brokers that run, the queues on them, what processes use |

mod contestant;
mod course;
mod in_place;
mod process;
mod queues;
mod scale;
mod server;
mod servicebus;
mod task;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::course::{Plan, Show};
use crate::task::Task;

/// Measures redrive beside other consumers of the same queues.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// All contestants on all courses, interleaved, in several rounds.
    Run(Plan),
    /// Shows the results of earlier runs again, and draws them in one picture.
    Show(Show),
    /// redrive alone, in large numbers.
    #[command(subcommand)]
    Scale(scale::Scale),
    /// An experiment: retries by AMQP 1.0 on RabbitMQ 4.3. Starts its own nodes.
    #[command(subcommand)]
    InPlace(in_place::InPlace),
    /// The Service Bus emulator with redrive as its consumer, each a process of its own. Needs no broker.
    Servicebus(servicebus::Plan),
    /// The consumer of a Service Bus queue; started by `servicebus`, which tells it when to go.
    #[command(hide = true)]
    ServicebusConsumer(servicebus::Consumption),
    /// One contestant; started by `run`, which tells it when to go.
    #[command(hide = true)]
    Contestant(Task),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
    let ended = match arguments.command {
        Command::Run(plan) => runtime.block_on(course::run(&plan)),
        Command::Show(show) => course::show(&show).map(|()| ExitCode::SUCCESS),
        Command::Scale(scale) => runtime.block_on(scale::run(scale)).map(|()| ExitCode::SUCCESS),
        Command::InPlace(what) => runtime.block_on(in_place::run(what)).map(|()| ExitCode::SUCCESS),
        Command::Servicebus(plan) => runtime.block_on(servicebus::run(&plan)).map(|()| ExitCode::SUCCESS),
        Command::ServicebusConsumer(task) => {
            runtime.block_on(servicebus::consume(task)).map(|()| ExitCode::SUCCESS)
        }
        Command::Contestant(task) => runtime.block_on(contestant::run(task)).map(|()| ExitCode::SUCCESS),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
