//! An Azure Service Bus for tests and laptops: it speaks AMQP 1.0 on plain TCP, and Microsoft's own SDKs accept it.
//!
//! ```
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use redrive_servicebus_emulator::{Emulator, Settings};
//!
//! let emulator = Emulator::builder().queue("orders", Settings::default()).start().await?;
//! println!("give this to any SDK: {}", emulator.connection_string());
//! assert_eq!(emulator.entity("orders")?.counts().active, 0);
//! # Ok(())
//! # }
//! ```
//!
//! The binary of the same name does the same for programs in other languages. What it does, and what differs from Azure,
//! stands in `docs/servicebus-emulator.md`.
// Its code blocks are compiled with the documentation tests; outside of the repository the page is not there.
#![cfg_attr(doctest, doc = include_str!("../../../docs/servicebus-emulator.md"))]
#![forbid(unsafe_code)]

pub mod amqp;
pub mod broker;
mod builder;
pub mod config;
mod emulator;
mod error;
mod faults;
mod inspect;
mod server;
mod store;

pub use broker::{Counts, Delivered, Namespace, Settings, Timestamp, Topic};
pub use builder::Builder;
pub use emulator::Emulator;
pub use error::StartError;
pub use faults::{Effect, Fault, Step};
pub use inspect::EntityView;
pub use store::StoreError;

/// For the fuzz target and the test of its corpus; not for anybody else.
#[doc(hidden)]
pub use server::replay::replay;
