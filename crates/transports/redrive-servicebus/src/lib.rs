//! The Azure Service Bus transport of redrive: retries and dead letters on queues and subscriptions.
//!
//! ```no_run
//! # async fn connect(connection_string: &str) -> Result<(), Box<dyn std::error::Error>> {
//! use redrive_servicebus::ServiceBus;
//!
//! let transport = ServiceBus::options("orders")
//!     .max_delivery_count(20)
//!     .connect(connection_string)
//!     .await?;
//! # Ok(()) }
//! ```
//!
//! Entities, counters, permissions, costs and limits:
//! [the page on Service Bus](https://github.com/redrive-rs/redrive/blob/main/docs/transports/servicebus.md).

mod address;
mod auth;
mod batching;
mod connection;
mod convert;
mod entity;
mod error;
mod locks;
mod options;
mod outline;
mod preflight;
mod publish;
mod receipt;
mod receive;
mod settle;
mod shared;
mod shelves;
mod topology;
mod transport;
mod wire;

#[cfg(feature = "entra")]
pub use azure_core::credentials::TokenCredential;
pub use entity::Entity;
pub use options::{Backend, Options, ReceiveMode, Sessions, Transactions, TransportType};
pub use receipt::Receipt;
pub use receive::ServiceBusReceiver;
pub use shelves::ServiceBusShelves;
pub use transport::ServiceBus;
