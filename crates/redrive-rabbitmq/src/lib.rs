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
//! Queues, counters, permissions and limits: `docs/transports/rabbitmq.md`.

mod acks;
mod address;
mod arrivals;
mod broker;
mod connection;
mod connections;
mod consume;
mod convert;
mod credentials;
mod delay;
mod error;
mod hand_outs;
mod idle;
mod inbox;
#[cfg(feature = "management")]
mod management;
mod options;
mod prefetch;
mod publish;
mod publisher;
mod receive;
mod screen;
mod session;
mod shelves;
mod stayed;
mod topology;
mod transfer;
mod transport;
mod version;

pub use connections::Connections;
pub use credentials::{Credentials, CredentialsProvider};
pub use delay::{DeadLetters, Delay, Entity, Native, SingleQueue, Staged};
pub use options::{ConnectionOptions, Options};
pub use receive::RabbitMqReceiver;
pub use session::Receipt;
pub use shelves::RabbitMqShelves;
pub use topology::{QueueType, Topology};
pub use transfer::{Transfer, Transferred};
pub use transport::RabbitMq;
