//! What the commands that only look at shelves are given.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::{Queues, Since, Which, since};

#[derive(ClapArgs, Debug)]
pub(crate) struct Groups {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Marks groups as new that began after this time: `2h` ago, `13:27`, or `2027-01-15T09:00:00+01:00`; without a zone in UTC
    #[arg(long, value_parser = since)]
    pub(crate) since: Option<Since>,
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
    /// The handle of the message, as `browse` prints it, or a filter that only one message of the dead-letter shelf matches
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
