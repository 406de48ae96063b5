//! The commands and their options.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::parser::ValueSource;
use clap::{Args as ClapArgs, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use redrive::Shelf;
use redrive::ops::PlanAction;

pub(crate) use crate::settings::Global;

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
  redrive show orders dead-letter/HANDLE   one of them, with its story
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
        let mut matches = Self::command().try_get_matches_from(arguments)?;
        let is_typed = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
        let names_broker = is_typed("broker") && !is_typed("context");
        let mut args =
            Self::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut Self::command()))?;
        if names_broker {
            // Only the environment names a context.
            args.global.context = None;
        }
        Ok(args)
    }
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// How many messages are on the shelves of queues
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
        after_help = "Examples:\n  redrive show orders dead-letter/5f3a…\n  redrive show orders --group g1      the first of a group"
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
    /// Says what an action would do, and keeps that plan
    #[command(
        after_help = "Examples:\n  redrive plan orders --group g1\n  redrive plan orders 'reason:Expired' --action discard\n  redrive plan orders --all\n  redrive apply PLAN"
    )]
    Plan(MakePlan),
    /// Does what a plan says, and nothing else
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
    /// Removes messages for good; they are exported before
    #[command(
        after_help = "Examples:\n  redrive discard orders 'header.tenant:loadtest' --reason 'load test'"
    )]
    Discard(AtOnce),
    /// Changes one message in $EDITOR and sends it back, or many by a program of jq
    #[command(
        after_help = "Examples:\n  redrive edit orders dead-letter/5f3a…\n  redrive edit orders dead-letter/5f3a… --keep     back onto the shelf\n  redrive edit orders g1 --jq '.body.currency = \"EUR\"' --dry-run     what it would change\n  redrive edit orders g1 --jq '.body.currency = \"EUR\"'     all of a group, back onto the shelf"
    )]
    Edit(Edit),
    /// Brings back what a run discarded
    #[command(after_help = "Examples:\n  redrive undo RUN")]
    Undo(Undo),
    /// The runs of plans, and going on with one
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
    /// What becomes of a failing message, from the options of a consumer; asks no broker
    #[command(
        after_help = "Examples:\n  redrive explain orders --options service.toml --section orders --kind rabbitmq\n  redrive explain orders --options appsettings.json --section Consumers.Orders --format mermaid"
    )]
    Explain(Explain),
    /// The same, and what does not fit at the broker; changes nothing
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
    #[command(name = crate::look::jq::worker::NAME, hide = true)]
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
    /// The work queue; of Service Bus also TOPIC/SUBSCRIPTION
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

impl From<ShelfName> for Shelf {
    fn from(name: ShelfName) -> Self {
        match name {
            ShelfName::DeadLetter => Self::DeadLetter,
            ShelfName::Parking => Self::Parking,
        }
    }
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Groups {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Marks groups as new that began after this time: `2h`, or `2027-01-15T08:00:00Z`
    #[arg(long, value_parser = since)]
    pub(crate) since: Option<SystemTime>,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Browse {
    #[command(flatten)]
    pub(crate) which: Which,
    /// How many messages
    #[arg(long, default_value_t = 20)]
    pub(crate) limit: usize,
    /// How many to skip
    #[arg(long, default_value_t = 0)]
    pub(crate) offset: usize,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Show {
    /// The work queue
    pub(crate) queue: String,
    /// The handle of the message, as `browse` prints it
    pub(crate) handle: Option<String>,
    /// The first message of this group
    #[arg(long, short, conflicts_with = "handle")]
    pub(crate) group: Option<String>,
    /// Prints the body alone, byte by byte
    #[arg(long)]
    pub(crate) raw: bool,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Export {
    #[command(flatten)]
    pub(crate) which: Which,
    /// The file [default: stdout]
    #[arg(long, short)]
    pub(crate) output: Option<PathBuf>,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) queues: Queues,
    /// A warning above this number of messages on one shelf
    #[arg(long, default_value_t = 100)]
    pub(crate) warn: u64,
    /// Critical above this number
    #[arg(long, default_value_t = 1000)]
    pub(crate) critical: u64,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct MakePlan {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Only this message; may be given several times
    #[arg(long, value_name = "HANDLE")]
    pub(crate) handle: Vec<String>,
    /// All messages of the shelf: nothing is assumed
    #[arg(long)]
    pub(crate) all: bool,
    /// What to do with them
    #[arg(long, value_enum, default_value = "redrive")]
    pub(crate) action: Action,
    /// Messages that were redriven so often go to the parking shelf
    #[arg(long, default_value_t = 3)]
    pub(crate) max_redrives: u32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Action {
    Redrive,
    Park,
    Discard,
}

impl From<Action> for PlanAction {
    fn from(action: Action) -> Self {
        match action {
            Action::Redrive => Self::Redrive,
            Action::Park => Self::Park,
            Action::Discard => Self::Discard,
        }
    }
}

/// How a run goes.
#[derive(ClapArgs, Debug)]
pub(crate) struct Pace {
    /// Messages a second, at most
    #[arg(long, default_value_t = 10)]
    pub(crate) rate: u32,
    /// How many messages go first; the others wait for their fate
    #[arg(long, default_value_t = 5)]
    pub(crate) canary: u32,
    /// How long their fate is awaited: longer than all retries of the consumer together
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    pub(crate) canary_wait: Duration,
    /// How long each rate lasts: 1, 10, 100 a second, up to --rate
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) ramp_step: Duration,
    /// Sends also while nobody consumes the work queue, or while it grows; the first messages prove nothing then
    #[arg(long)]
    pub(crate) ignore_work_queue: bool,
    /// Why; required for more than 100 messages. It stands in the audit log
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Asks nothing
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Apply {
    /// The id of the plan, or its beginning
    pub(crate) plan: String,
    #[command(flatten)]
    pub(crate) pace: Pace,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct AtOnce {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Only this message; may be given several times
    #[arg(long, value_name = "HANDLE")]
    pub(crate) handle: Vec<String>,
    /// All messages of the shelf: nothing is assumed
    #[arg(long)]
    pub(crate) all: bool,
    /// Messages that were redriven so often go to the parking shelf
    #[arg(long, default_value_t = 3)]
    pub(crate) max_redrives: u32,
    #[command(flatten)]
    pub(crate) pace: Pace,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Edit {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Edits many messages by this program of jq, and keeps them on the shelf: `.body.currency = "EUR"`
    #[arg(long, value_name = "JQ")]
    pub(crate) jq: Option<String>,
    /// Prints all differences that --jq makes, and changes nothing
    #[arg(long, requires = "jq")]
    pub(crate) dry_run: bool,
    /// Stores the edited message on the shelf instead of sending it back
    #[arg(long)]
    pub(crate) keep: bool,
    /// Allows changes that decide where the message or its answer goes, as its id
    #[arg(long)]
    pub(crate) sensitive: bool,
    /// Why. It stands in the audit log
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Asks nothing
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Undo {
    /// The id of the run, or its beginning
    pub(crate) run: String,
    /// Why. It stands in the audit log
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Asks nothing
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Runs {
    /// All runs, newest first
    List,
    /// Pauses a run after its current step
    Pause {
        /// The id of the run, or its beginning
        run: String,
    },
    /// Ends a run after its current step; what was not sent stays on the shelf
    Abort {
        /// The id of the run, or its beginning
        run: String,
    },
    /// Sets the maximum number of messages in any second
    Rate {
        /// The id of the run, or its beginning
        run: String,
        /// Messages a second
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        per_second: u32,
    },
    /// Goes on with a run that is paused, was killed or has stopped
    Resume {
        /// The id of the run, or its beginning
        run: String,
        /// Sends messages again of which nobody knows whether they were sent
        #[arg(long)]
        send_uncertain_again: bool,
        /// Asks nothing
        #[arg(long, short)]
        yes: bool,
    },
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Import {
    /// The work queue
    pub(crate) queue: String,
    /// The file that `redrive export` wrote, or one of the folder of originals
    pub(crate) file: PathBuf,
    /// The shelf [default: the one that each message was on]
    #[arg(long, value_enum)]
    pub(crate) shelf: Option<ShelfName>,
    /// Also messages that were exported from another queue
    #[arg(long)]
    pub(crate) from_other_queues: bool,
    /// Why; required for more than 100 messages. It stands in the audit log
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Asks nothing
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// The options of a consumer.
#[derive(ClapArgs, Debug)]
pub(crate) struct Explain {
    /// The work queue; of Service Bus also TOPIC/SUBSCRIPTION
    pub(crate) queue: String,
    /// The file with the options, as TOML or JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) options: PathBuf,
    /// The section of it: `services.orders` [default: the whole file]
    #[arg(long, value_name = "PATH")]
    pub(crate) section: Option<String>,
    /// The kind of broker [default: that of --broker or the context]
    #[arg(long, value_enum)]
    pub(crate) kind: Option<BrokerKind>,
    /// The type of the work queue on RabbitMQ
    #[arg(long, value_enum, default_value = "classic")]
    pub(crate) queue_type: QueueKind,
    /// How it is written; --json writes it for programs
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: PlanFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum BrokerKind {
    Rabbitmq,
    Servicebus,
    /// The in-process broker
    Memory,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum QueueKind {
    Classic,
    Quorum,
}

impl From<QueueKind> for redrive::rabbitmq::QueueType {
    fn from(kind: QueueKind) -> Self {
        match kind {
            QueueKind::Classic => Self::Classic,
            QueueKind::Quorum => Self::Quorum,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PlanFormat {
    Text,
    Mermaid,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Topology {
    /// The work queue
    pub(crate) queue: String,
    /// The file with the options of its consumer, as TOML or JSON: they say the waits
    #[arg(long, value_name = "FILE", conflicts_with = "wait")]
    pub(crate) options: Option<PathBuf>,
    /// The section of it: `services.orders` [default: the whole file]
    #[arg(long, value_name = "PATH", requires = "options")]
    pub(crate) section: Option<String>,
    /// A wait before a retry; may be given several times
    #[arg(long, value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) wait: Vec<Duration>,
    /// The type of the work queue
    #[arg(long, value_enum, default_value = "classic")]
    pub(crate) queue_type: QueueKind,
    /// The virtual host
    #[arg(long, default_value = "/")]
    pub(crate) vhost: String,
    /// How it is written
    #[arg(long, value_enum, default_value = "definitions")]
    pub(crate) format: TopologyFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum TopologyFormat {
    /// For `rabbitmqctl import_definitions`
    Definitions,
    Terraform,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Exporter {
    #[command(flatten)]
    pub(crate) queues: Queues,
    /// The address
    #[arg(long, default_value = "127.0.0.1:9420")]
    pub(crate) listen: std::net::SocketAddr,
    /// How often the shelves are read
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) interval: Duration,
    /// Only counts: reads no message
    #[arg(long)]
    pub(crate) count_only: bool,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Serve {
    /// The queues [default: those of the context]
    pub(crate) queues: Vec<String>,
    /// The address
    #[arg(long, default_value = "127.0.0.1:7420")]
    pub(crate) listen: std::net::SocketAddr,
    /// The address by which browsers reach it: `https://HOST[:PORT][/PATH]`
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Option<String>,
    /// The certificate and its chain, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its key, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// A proxy in front does TLS
    #[arg(long)]
    pub(crate) behind_proxy: bool,
    /// A person, and the file with the token; the name stands in the audit log. May be given several times
    #[arg(long, value_name = "NAME=FILE")]
    pub(crate) token: Vec<String>,
    /// The same, for somebody who may only look
    #[arg(long, value_name = "NAME=FILE")]
    pub(crate) read_only_token: Vec<String>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum ContextCommand {
    /// The contexts, without their secrets
    List,
}

/// A time, or how long ago it was.
pub(crate) fn since(text: &str) -> Result<SystemTime, String> {
    if let Ok(ago) = humantime::parse_duration(text) {
        return SystemTime::now().checked_sub(ago).ok_or_else(|| "too long ago".to_owned());
    }
    humantime::parse_rfc3339_weak(text)
        .map_err(|_| "neither a duration as `2h` nor a time as `2027-01-15T08:00:00Z`".to_owned())
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
    fn since_is_a_time_or_how_long_ago() {
        assert!(since("2h").unwrap() < SystemTime::now());
        assert_eq!(
            since("1970-01-02T00:00:00Z").unwrap(),
            SystemTime::UNIX_EPOCH + Duration::from_secs(86_400)
        );
        assert!(since("yesterday").is_err());
    }
}
