//! What is asked for, as arguments.

use std::path::PathBuf;

use clap::Args;
use redrive_brokers::Version;

use crate::task::{QueueType, Work};

/// Which courses are run, and by whom.
#[derive(Args, Clone, Debug)]
pub(crate) struct Plan {
    /// What happens to the messages.
    #[arg(long, value_delimiter = ',', default_value = "consume")]
    pub(crate) work: Vec<Work>,
    /// Only on these versions of RabbitMQ; else on all that are running.
    #[arg(long, value_delimiter = ',', value_name = "3.10|4.3")]
    pub(crate) broker: Vec<Version>,
    /// Types of the work queue.
    #[arg(long, value_delimiter = ',', default_value = "classic,quorum")]
    pub(crate) queue_type: Vec<QueueType>,
    /// How many messages the broker may have handed out at the same time.
    #[arg(long, value_delimiter = ',', default_value = "200")]
    pub(crate) prefetch: Vec<u16>,
    /// How many messages are consumed; a part of it where that takes long (copies: a quarter, large bodies: a twentieth).
    #[arg(long, default_value_t = 50_000)]
    pub(crate) count: u64,
    /// How often each contestant runs on each course.
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: u32,
    /// Only these contestants.
    #[arg(long, value_delimiter = ',')]
    pub(crate) variant: Vec<String>,
    /// Everything: all kinds of work, prefetch 50, 200 and 1000, 200 000 messages.
    #[arg(long)]
    pub(crate) full: bool,
    /// The folder of the installed rivals; set by `cargo xtask bench --rivals`.
    #[arg(long, hide = true)]
    pub(crate) rivals: Option<PathBuf>,
    /// The `redrive-bench` of another commit: its `redrive` takes part as `redrive-earlier`.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) earlier: Option<PathBuf>,
    /// The name of the result: `target/bench/NAME.json` and `NAME.svg`.
    #[arg(long, default_value = "latest")]
    pub(crate) name: String,
}

impl Plan {
    /// With everything that `--full` stands for.
    pub(crate) fn unfolded(mut self) -> Self {
        if self.full {
            self.work = vec![
                Work::Consume,
                Work::Retry,
                Work::Mixed1,
                Work::Mixed10,
                Work::DeadLetter,
                Work::Park,
                Work::Large,
            ];
            self.queue_type = QueueType::ALL.to_vec();
            self.prefetch = vec![50, 200, 1000];
            self.count = 200_000;
        }
        self
    }

    /// How many messages a contestant gets. The slow ones get fewer: only how many it does in a second is compared.
    pub(crate) fn count_for(&self, work: Work, variant: &str) -> u64 {
        let of_work = match work {
            Work::Consume | Work::Mixed1 | Work::Mixed10 => 1,
            Work::Retry | Work::DeadLetter | Work::Park => 4,
            Work::Large => 20,
        };
        let of_variant = match variant {
            "lapin-one-at-a-time" => 10,
            "lapin-awaited-acks" | "aio-pika" | "omniqueue" => 4,
            _ => 1,
        };
        // A multiple of 100, so that the share of failures is exact.
        (self.count / of_work / of_variant).max(100).next_multiple_of(100)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        plan: Plan,
    }

    #[test]
    fn slow_contestants_get_fewer_messages() {
        let plan = Only::parse_from(["bench", "--full"]).plan.unfolded();
        assert_eq!(plan.count_for(Work::Consume, "redrive"), 200_000);
        assert_eq!(plan.count_for(Work::Retry, "lapin-one-at-a-time"), 5_000);
        assert_eq!(plan.count_for(Work::Large, "redrive"), 10_000);
    }
}
