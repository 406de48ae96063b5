//! The in-process broker of redrive: its default, for tests, for trying things out, and for work that may end with its
//! process. Nothing to install, no I/O; on tokio's clock, so that paused time runs a ladder of hours in milliseconds.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), redrive_core::TransportError> {
//! use redrive_core::Message;
//! use redrive_memory::Memory;
//!
//! let orders = Memory::new("orders");
//! orders.publish(Message::new("one pair of boots").with_id("order-1")).await?;
//! assert_eq!(orders.broker().depth("orders"), 1);
//! # Ok(()) }
//! ```
//!
//! What it does in which case: [its page](https://github.com/redrive-rs/redrive/blob/main/docs/transports/memory.md).
// Its code blocks are compiled with the documentation tests; outside of the repository the page is not there.
#![cfg_attr(doctest, doc = include_str!("../../../docs/transports/memory.md"))]

mod broker;
mod error;
mod options;
mod publish;
mod queue;
mod receipt;
mod receive;
mod shelves;
mod state;
mod transport;

pub use broker::{MemoryBroker, QueuedMessage};
pub use options::MemoryOptions;
pub use receipt::MemoryReceipt;
pub use receive::MemoryReceiver;
pub use shelves::MemoryShelves;
pub use transport::Memory;
