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
//! Entities, counters, permissions, costs and limits: `docs/transports/servicebus.md`.

mod address;
mod body;
mod broker;
mod connection;
mod convert;
mod copy_id;
mod credential;
mod dead_letter;
mod entity;
#[cfg(feature = "entra")]
mod entra;
mod error;
mod foreign;
mod inbox;
mod intake;
mod later;
mod listener;
mod locks;
mod lost;
mod options;
mod publisher;
mod receipt;
mod receive;
#[cfg(feature = "rest")]
mod rest;
mod session;
mod sessions;
mod settle;
mod settler;
mod shelves;
mod slot;
mod swapper;
mod token;
mod transport;
mod values;
mod wire;

#[cfg(feature = "entra")]
pub use azure_core::credentials::TokenCredential;
pub use entity::Entity;
pub use options::{Backend, Options, ReceiveMode, Transactions, TransportType};
pub use receipt::Receipt;
pub use receive::ServiceBusReceiver;
pub use sessions::Sessions;
pub use shelves::ServiceBusShelves;
pub use transport::ServiceBus;
