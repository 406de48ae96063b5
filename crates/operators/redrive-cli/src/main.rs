//! `redrive`: finds, explains and sends back failed messages.
//!
//! | module | contains |
//! |---|---|
//! | [`args`] | the commands and their options |
//! | [`settings`] | contexts: which broker, and where its secret is |
//! | [`secret`] | reads a secret; never prints it |
//! | [`exit`] | exit codes |
//! | [`output`] | tables, JSON, times; what may reach a terminal |
//! | [`desk`] | what an operator does, whichever face asks for it |
//! | [`look`] | commands that change nothing |
//! | [`act`] | commands that act on entries |
//! | [`serve`] | the web page |
//! | [`service`] | commands about the options of a service |
//! | [`watch`] | the terminal page |

mod act;
mod args;
mod contexts;
mod desk;
mod exit;
mod interrupt;
mod look;
mod output;
mod secret;
mod serve;
mod service;
mod settings;
mod watch;

use std::process::ExitCode;

use clap::CommandFactory as _;

use args::{Args, Command};
use exit::{Exit, exit_code};

fn main() -> ExitCode {
    let args = match Args::read(std::env::args_os()) {
        Ok(args) => args,
        // Help and version are no errors.
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { ExitCode::SUCCESS };
        }
    };
    log(args.verbose);
    let nagios = matches!(args.command, Command::Check(_));
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return exit_code(&error.into(), nagios),
    };
    let command = async {
        match args.command {
            // It has no shelves, and what it may do is limited.
            Command::Jq { .. } => run(args).await,
            _ => interrupt::uninterrupted(run(args)).await,
        }
    };
    match runtime.block_on(command) {
        Ok(exit @ (Exit::Ok | Exit::Check(_))) => match output::finish() {
            Ok(()) => exit.into(),
            Err(error) => exit_code(&error, nagios),
        },
        Ok(exit) => exit.into(),
        Err(error) => exit_code(&error, nagios),
    }
}

async fn run(args: Args) -> anyhow::Result<Exit> {
    let Args { command, global, .. } = args;
    match command {
        Command::Shelves(command) => look::shelves::run(&global, command).await,
        Command::Groups(command) => look::groups::run(&global, command).await,
        Command::Browse(command) => look::browse::run(&global, command).await,
        Command::Show(command) => look::show::run(&global, command).await,
        Command::Export(command) => look::export::run(&global, command).await,
        Command::Check(command) => look::check::run(&global, command).await,
        Command::Plan(command) => act::plan::run(&global, command).await,
        Command::Apply(command) => act::apply::run(&global, command).await,
        Command::Redrive(command) => act::at_once(&global, redrive::ops::PlanAction::Redrive, command).await,
        Command::Park(command) => act::at_once(&global, redrive::ops::PlanAction::Park, command).await,
        Command::Discard(command) => act::at_once(&global, redrive::ops::PlanAction::Discard, command).await,
        Command::Edit(command) => act::edit::run(&global, command).await,
        Command::Undo(command) => act::undo::run(&global, command).await,
        Command::Runs(command) => act::runs::run(&global, command).await,
        Command::Explain(command) => service::explain::explain(&global, &command),
        Command::Preflight(command) => service::explain::preflight(&global, &command).await,
        Command::Topology(command) => service::topology::run(&command),
        Command::Exporter(command) => look::exporter::run(&global, command).await,
        Command::Serve(command) => serve::run(&global, command).await,
        Command::Watch(command) => watch::run(&global, command).await,
        Command::Context(command) => contexts::run(&global, &command),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Args::command(), "redrive", &mut std::io::stdout());
            Ok(Exit::Ok)
        }
        Command::Jq { program, edit } => {
            use look::jq::worker::{Mode, run};
            run(&program, if edit { Mode::Edit } else { Mode::Select })
        }
        Command::Import(command) => act::import::run(&global, command).await,
        Command::Man => {
            clap_mangen::Man::new(Args::command()).render(&mut std::io::stdout())?;
            Ok(Exit::Ok)
        }
    }
}

/// Logs of the libraries go to stderr, and only on request: what the user must know is an error of the command.
fn log(verbose: u8) {
    let level = match verbose {
        0 => tracing_subscriber::filter::LevelFilter::OFF,
        1 => tracing_subscriber::filter::LevelFilter::INFO,
        _ => tracing_subscriber::filter::LevelFilter::DEBUG,
    };
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).init();
}
