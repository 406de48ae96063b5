//! A RabbitMQ for tests, laptops and one-machine services: it speaks AMQP 0-9-1, and clients in any language take it for RabbitMQ.
//!
//! ```
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use redrive_rabbitmq_emulator::Emulator;
//!
//! let emulator = Emulator::builder().start().await?;
//! println!("give this to any client: {}", emulator.url());
//! # Ok(())
//! # }
//! ```
//!
//! The binary of the same name does the same for programs in other languages. What it does, and its differences from RabbitMQ:
//! [the RabbitMQ emulator](https://github.com/redrive-rs/redrive/blob/main/docs/rabbitmq-emulator.md).
// The documentation tests compile its code blocks; the page does not exist outside the repository.
#![cfg_attr(doctest, doc = include_str!("../../../../docs/rabbitmq-emulator.md"))]
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![forbid(unsafe_code)]

mod broker;
mod builder;
mod emulator;
mod error;
mod faults;
mod server;
mod store;

#[doc(hidden)]
pub use broker::UnpromisedOrder;
pub use broker::{
    DropReason, Event, EventKind, MessageView, QueueCounts, QueueInfo, QueueKind, Timestamp, Version,
};
pub use builder::Builder;
pub use emulator::{Emulator, NotFound, VHostView};
pub use error::StartError;
pub use redrive_emulator_host::StoreError;

/// Entry points for the fuzz targets and the test of their corpus; not public API.
#[doc(hidden)]
pub use server::replay::{replay, replay_codec};
