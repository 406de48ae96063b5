//! The RabbitMQ transport of redrive: retries and dead letters on classic and quorum queues, RabbitMQ 3.10 to 4.3.
//!
//! ```no_run
//! # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
//! use redrive_rabbitmq::{QueueType, RabbitMq};
//!
//! let transport = RabbitMq::options("orders")
//!     .queue_type(QueueType::Quorum)
//!     .connect("amqp://localhost")
//!     .await?;
//! # Ok(()) }
//! ```
//!
//! Queues, counters, permissions and limits: [the page on RabbitMQ](https://github.com/redrive-rs/redrive/blob/main/docs/transports/rabbitmq.md).

mod broker;
mod connection;
mod connections;
mod convert;
mod copy_store;
mod declarations;
mod delay;
mod delivery_channel;
mod error;
mod facts;
mod frames;
#[cfg(feature = "management")]
mod management;
mod new_queues;
mod options;
mod outline;
mod preflight;
mod prepare;
mod publish;
mod publisher;
mod receipt;
mod receive;
mod settle;
mod shared;
mod shelves;
mod topology;
mod transfer;
mod transport;

pub use broker::QueueType;
pub use broker::deaths::{Death, DeathHistory};
pub use connection::{Address, ConnectionOptions, Credentials, CredentialsProvider};
pub use connections::Connections;
pub use delay::{DeadLetters, Delay, Entity, Native, SingleQueue, Staged};
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub use frames::replay::{replay_read, replay_write};
pub use options::Options;
pub use receipt::Receipt;
pub use receive::RabbitMqReceiver;
pub use shelves::RabbitMqShelves;
pub use topology::{DeadLetterExchange, Topology, TopologyPlan};
pub use transfer::{Transfer, Transferred};
pub use transport::RabbitMq;
