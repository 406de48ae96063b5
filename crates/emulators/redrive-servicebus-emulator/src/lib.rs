//! An emulator of Azure Service Bus for tests and laptops: it speaks AMQP 1.0 on plain TCP, and Microsoft's own SDKs accept it.
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
//! The binary of the same name does the same for programs in other languages. Its features, and its differences from Azure:
//! [the Service Bus emulator](https://github.com/redrive-rs/redrive/blob/main/docs/servicebus-emulator.md).
// The documentation tests compile its code blocks; the page does not exist outside the repository.
#![cfg_attr(doctest, doc = include_str!("../../../../docs/servicebus-emulator.md"))]
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
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

pub use broker::{Counts, Delivered, EntityStatus, Namespace, Settings, Timestamp, Topic};
pub use builder::Builder;
pub use emulator::Emulator;
pub use error::StartError;
pub use faults::{Effect, Fault, Step};
pub use inspect::EntityView;
pub use redrive_emulator_host::StoreError;

/// Entry point for the fuzz target and the test of its corpus; not public API.
#[doc(hidden)]
pub use server::replay::replay;
