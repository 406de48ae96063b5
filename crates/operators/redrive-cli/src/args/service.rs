//! What the commands are given that ask about the consumers of a service.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use redrive::rabbitmq::QueueType;

/// The options of a consumer.
#[derive(ClapArgs, Debug)]
pub(crate) struct Explain {
    /// The work queue; of Service Bus also TOPIC/Subscriptions/NAME
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
    #[arg(long, value_enum, default_value_t)]
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum QueueKind {
    Classic,
    Quorum,
}

/// What the library declares if a service says nothing: the commands describe that service.
impl Default for QueueKind {
    fn default() -> Self {
        match QueueType::default() {
            QueueType::Classic => Self::Classic,
            _ => Self::Quorum,
        }
    }
}

impl From<QueueKind> for QueueType {
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
    #[arg(long, value_enum, default_value_t)]
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
