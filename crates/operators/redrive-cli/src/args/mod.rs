//! The commands and their options.

mod acting;
mod looking;
mod service;
mod serving;
mod since;

use std::ffi::OsString;
use std::time::SystemTime;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args as ClapArgs, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use redrive::Shelf;

pub(crate) use self::acting::{Apply, AtOnce, Edit, Import, MakePlan, Pace, Runs, Undo};
pub(crate) use self::looking::{Browse, Check, Export, Groups, Show};
pub(crate) use self::service::{BrokerKind, Explain, PlanFormat, Topology, TopologyFormat};
pub(crate) use self::serving::{Exporter, Serve};
pub(crate) use self::since::Since;
use crate::secret::may_be_address;
pub(crate) use crate::settings::Global;

/// The first argument of the process that runs a program of jq.
pub(crate) const JQ_WORKER: &str = "__jq";

/// Finds failed messages, explains them, and sends them back.
#[derive(Parser, Debug)]
#[command(
    name = "redrive",
    version,
    max_term_width = 120,
    subcommand_required = true,
    arg_required_else_help = true
)]
#[command(after_help = "Examples:
  redrive shelves orders invoices          how many messages failed
  redrive groups orders                    why
  redrive show orders dead-letter/HANDLE   one of them, with its history
  redrive redrive orders g1                send the first group back: plan, question, run
  redrive check orders --warn 100          for Nagios

The broker: --broker amqps://ops@rabbit.example/shop --secret-file FILE, or a context of the configuration file.
Exit codes: 0 done, 1 failed, 2 wrong arguments or an unanswered question, 3 a run ended early or is not complete.")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    /// Logs of the libraries on stderr; twice for more
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// Reads the command line, and the environment for what it does not say.
    ///
    /// # Errors
    ///
    /// If an argument is wrong; also to show help.
    pub(crate) fn read(
        arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
        let parsed = Self::command().try_get_matches_from(&arguments);
        let mut matches = parsed.map_err(|error| without_secret(error, &arguments))?;
        let is_typed = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
        let names_broker = is_typed("broker") && !is_typed("context");
        let names_variable = is_typed("secret_env");
        if names_variable && is_typed("secret_file") {
            let said = "the argument '--secret-env <NAME>' cannot be used with '--secret-file <FILE>'";
            return Err(Self::command().error(ErrorKind::ArgumentConflict, said));
        }
        let args =
            Self::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut Self::command()));
        let mut args = args.map_err(|error| without_secret(error, &arguments))?;
        if names_broker {
            // Only the environment names a context.
            args.global.context = None;
        }
        if names_variable {
            // Only the environment names a file.
            args.global.secret_file = None;
        }
        Ok(args)
    }
}

/// Returns the same error without the arguments that it repeats, if one of them may be an address with a password.
fn without_secret(error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let is_address = |argument: &OsString| may_be_address(&argument.to_string_lossy());
    if !error.use_stderr() || !arguments.iter().any(is_address) {
        return error;
    }
    let kind = error.kind();
    let said = kind.as_str().unwrap_or("the arguments are wrong");
    let said = format!("{said} (the arguments are not repeated here: one of them may hold a password)");
    Args::command().error(kind, said)
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Counts the messages on the shelves of queues
    #[command(
        after_help = "Examples:\n  redrive shelves orders invoices\n  redrive shelves --json | jq '.[].count'"
    )]
    Shelves(Queues),
    /// The failures on a shelf, grouped by what they have in common
    #[command(
        after_help = "Examples:\n  redrive groups orders\n  redrive groups orders --since 2h\n  redrive groups orders 'header.tenant:blue'"
    )]
    Groups(Groups),
    /// The messages on a shelf
    #[command(
        after_help = "Examples:\n  redrive browse orders\n  redrive browse orders 'error~\"timed out\" age>1h'\n  redrive browse orders --group g1 --limit 100"
    )]
    Browse(Browse),
    /// One message: attempts, errors, headers, body
    #[command(
        after_help = "Examples:\n  redrive show orders dead-letter/5f3a…\n  redrive show orders id:order-17     the only one that matches\n  redrive show orders --group g1      the first of a group"
    )]
    Show(Show),
    /// Writes messages as lines of JSON, without loss
    #[command(
        after_help = "Examples:\n  redrive export orders > orders.jsonl\n  redrive export orders 'reason:OutOfStock' --output stock.jsonl"
    )]
    Export(Export),
    /// A check for Nagios: how many messages are on the shelves
    #[command(
        after_help = "Examples:\n  redrive check orders --warn 100 --critical 1000\nExit codes: 0 ok, 1 warning, 2 critical, 3 unknown."
    )]
    Check(Check),
    /// Shows what an action would do, and saves it as a plan
    #[command(
        after_help = "Examples:\n  redrive plan orders --group g1\n  redrive plan orders 'reason:Expired' --action discard\n  redrive plan orders --all\n  redrive apply PLAN"
    )]
    Plan(MakePlan),
    /// Carries out a plan, and nothing else
    #[command(
        after_help = "Examples:\n  redrive apply 20261124T0251-1f3c --rate 50\n  redrive apply 20261124T0251-1f3c --yes --reason 'stock is back'"
    )]
    Apply(Apply),
    /// Sends messages back to the consumer that failed: plan, question, run
    #[command(
        after_help = "Examples:\n  redrive redrive orders g1\n  redrive redrive orders 'error~\"timed out\"' --rate 50\n  redrive redrive orders dead-letter/5f3a… --yes"
    )]
    Redrive(AtOnce),
    /// Moves messages to the parking shelf
    #[command(after_help = "Examples:\n  redrive park orders g2")]
    Park(AtOnce),
    /// Exports and removes messages; `redrive undo` restores them
    #[command(
        after_help = "Examples:\n  redrive discard orders 'header.tenant:loadtest' --reason 'load test'"
    )]
    Discard(AtOnce),
    /// Changes one message in $EDITOR and sends it back, or many by a program of jq
    #[command(
        after_help = "Examples:\n  redrive edit orders dead-letter/5f3a…\n  redrive edit orders dead-letter/5f3a… --keep     back onto the shelf\n  redrive edit orders g1 --jq '.body.currency = \"EUR\"' --dry-run     what it would change\n  redrive edit orders g1 --jq '.body.currency = \"EUR\"'     all of a group, back onto the shelf"
    )]
    Edit(Edit),
    /// Restores the messages that a run discarded
    #[command(after_help = "Examples:\n  redrive undo RUN")]
    Undo(Undo),
    /// Lists, controls and resumes runs
    #[command(
        subcommand,
        after_help = "Examples:\n  redrive runs list\n  redrive runs rate RUN 50\n  redrive runs pause RUN\n  redrive runs resume RUN"
    )]
    Runs(Runs),
    /// The web page: shelves, groups, messages, runs
    #[command(
        after_help = "Examples:\n  redrive serve orders invoices\n  redrive serve --token ada=/etc/redrive/ada --read-only-token wall=/etc/redrive/wall\n  redrive serve --listen 0.0.0.0:7420 --public-url https://ops.example/redrive --behind-proxy"
    )]
    Serve(Serve),
    /// Explains what happens to a failing message, from the options of a consumer; asks no broker
    #[command(
        after_help = "Examples:\n  redrive explain orders --options service.toml --section orders --kind rabbitmq\n  redrive explain orders --options appsettings.json --section Consumers.Orders --format mermaid"
    )]
    Explain(Explain),
    /// The same, and compares the options with the broker; changes nothing
    #[command(
        after_help = "Examples:\n  redrive preflight orders --options service.toml --section orders\nExit codes: 0 the consumer would start, 1 it would not."
    )]
    Preflight(Explain),
    /// The queues and exchanges that a consumer needs on RabbitMQ
    #[command(
        after_help = "Examples:\n  redrive topology orders --options service.toml --section orders > orders.json\n  redrive topology orders --wait 1s --wait 1m --format terraform"
    )]
    Topology(Topology),
    /// Metrics of the shelves, for Prometheus
    #[command(after_help = "Examples:\n  redrive exporter orders invoices --listen 0.0.0.0:9420")]
    Exporter(Exporter),
    /// A page in the terminal: shelves, groups, messages, and acting on them
    #[command(
        after_help = "Examples:\n  redrive watch orders invoices\n  redrive watch --read-only      looks only\nKeys: ? lists them."
    )]
    Watch(Queues),
    /// The brokers of the configuration file
    #[command(subcommand, after_help = "Examples:\n  redrive context list")]
    Context(ContextCommand),
    /// Completions for a shell
    #[command(after_help = "Examples:\n  redrive completions bash > /etc/bash_completion.d/redrive")]
    Completions { shell: clap_complete::Shell },
    /// The process of `--where`
    #[command(name = JQ_WORKER, hide = true)]
    Jq {
        program: String,
        #[arg(long)]
        edit: bool,
    },
    /// Puts exported messages onto a shelf
    #[command(
        after_help = "Examples:\n  redrive import orders orders.jsonl\n  redrive import orders orders.jsonl --shelf parking --reason 'back from the backup'"
    )]
    Import(Import),
    /// The manual page
    #[command(after_help = "Examples:\n  redrive man > redrive.1")]
    Man,
}

/// Queues, or those of the context.
#[derive(ClapArgs, Debug)]
pub(crate) struct Queues {
    /// The queues [default: those of the context]
    pub(crate) queues: Vec<String>,
}

/// Which entries of which shelf.
#[derive(ClapArgs, Debug)]
pub(crate) struct Which {
    /// The work queue; of Service Bus also TOPIC/Subscriptions/NAME
    pub(crate) queue: String,
    /// Which messages: `reason:OutOfStock error~"timed out" age>1h attempt>=3 header.tenant:blue body.order.id=42`, or handles as
    /// `browse` prints them
    pub(crate) filter: Vec<String>,
    /// Only this group: g1 of the last `redrive groups`, or the id of a group
    #[arg(long, short)]
    pub(crate) group: Option<String>,
    /// Only messages for which this program of jq says true: `.attempt > 3 and .headers.tenant == "blue"`
    #[arg(long = "where", value_name = "JQ")]
    pub(crate) selecting: Option<String>,
    /// The shelf
    #[arg(long, value_enum, default_value = "dead-letter")]
    pub(crate) shelf: ShelfName,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ShelfName {
    DeadLetter,
    Parking,
}

impl From<Shelf> for ShelfName {
    fn from(shelf: Shelf) -> Self {
        if shelf == Shelf::Parking { Self::Parking } else { Self::DeadLetter }
    }
}

impl From<ShelfName> for Shelf {
    fn from(name: ShelfName) -> Self {
        match name {
            ShelfName::DeadLetter => Self::DeadLetter,
            ShelfName::Parking => Self::Parking,
        }
    }
}

#[derive(Subcommand, Debug)]
pub(crate) enum ContextCommand {
    /// The contexts, without their secrets
    List,
}

/// A time, or how long ago it was.
pub(crate) fn since(text: &str) -> Result<Since, String> {
    Since::parse(text, SystemTime::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent_and_every_command_ends_its_help_with_examples() {
        let command = Args::command();
        command.clone().debug_assert();
        for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(after.contains("Examples:"), "{}", command.get_name());
        }
    }

    #[test]
    fn an_argument_that_may_hold_a_password_is_not_repeated() {
        for line in [
            "shelves --brokr=amqp://ops:hunter2@host",
            "amqp://ops:hunter2@host shelves",
            "context list ops:hunter2@host",
            "shelves --timeout amqp://ops:hunter2/x@host",
            "undo run Endpoint=sb://x;SharedAccessKey=hunter2",
            "exporter --listen amqp://ops:hunter2@host",
        ] {
            let error = Args::read(format!("redrive {line}").split(' ')).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{line}: {error}");
        }
        let error = Args::read("redrive shelves --nosuch".split(' ')).unwrap_err();
        assert!(error.to_string().contains("--nosuch"), "{error}");
        let args = Args::read("redrive shelves orders --broker amqp://ops:hunter2@host".split(' ')).unwrap();
        assert!(!format!("{args:?}").contains("hunter2"));
    }

    #[test]
    fn the_queue_type_is_by_default_that_of_the_library() {
        for line in ["explain orders --options f", "preflight orders --options f", "topology orders"] {
            let args = Args::read(format!("redrive {line}").split(' ')).unwrap();
            let (Command::Explain(Explain { queue_type, .. })
            | Command::Preflight(Explain { queue_type, .. })
            | Command::Topology(Topology { queue_type, .. })) = args.command
            else {
                panic!("{line}")
            };
            let declared = redrive::rabbitmq::QueueType::default();
            assert_eq!(redrive::rabbitmq::QueueType::from(queue_type), declared, "{line}");
        }
    }
}
