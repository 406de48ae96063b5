//! What the commands that change something are given.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use redrive::ops::PlanAction;

use super::{ShelfName, Which};

#[derive(ClapArgs, Debug)]
pub(crate) struct MakePlan {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Only this message; may be given several times
    #[arg(long, value_name = "HANDLE")]
    pub(crate) handle: Vec<String>,
    /// All messages of the shelf; never the default
    #[arg(long)]
    pub(crate) all: bool,
    /// With --all, on a shelf that other queues share: also messages that do not tell where they failed
    #[arg(long)]
    pub(crate) with_unknown: bool,
    /// What to do with them
    #[arg(long, value_enum, default_value = "redrive")]
    pub(crate) action: Action,
    /// Messages redriven this often go to the parking shelf
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
    /// How many messages go first; the others wait for their results
    #[arg(long, default_value_t = 5)]
    pub(crate) canary: u32,
    /// How long to wait for these results: longer than all retries of the consumer together
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    pub(crate) canary_wait: Duration,
    /// How long each rate lasts: 1, 10, 100 a second, up to --rate
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) ramp_step: Duration,
    /// Sends also while nobody consumes the work queue, or while it grows; the first messages prove nothing then
    #[arg(long)]
    pub(crate) ignore_work_queue: bool,
    /// Why; required for more than 100 messages. The audit log records it
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Skips the confirmation
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
    /// All messages of the shelf; never the default
    #[arg(long)]
    pub(crate) all: bool,
    /// With --all, on a shelf that other queues share: also messages that do not tell where they failed
    #[arg(long)]
    pub(crate) with_unknown: bool,
    /// Messages redriven this often go to the parking shelf
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
    /// Why. The audit log records it
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Skips the confirmation
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Undo {
    /// The id of the run, or its beginning
    pub(crate) run: String,
    /// Why. The audit log records it
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Skips the confirmation
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
    /// Ends a run after its current step; unsent messages stay on the shelf
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
    /// Continues a run that is paused, was killed or has stopped
    Resume {
        /// The id of the run, or its beginning
        run: String,
        /// Sends messages again if it is unknown whether they were sent
        #[arg(long)]
        send_uncertain_again: bool,
        /// Skips the confirmation
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
    /// Why; required for more than 100 messages. The audit log records it
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Skips the confirmation
    #[arg(long, short)]
    pub(crate) yes: bool,
}
