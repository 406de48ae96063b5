//! The in-process broker of redrive. It is the default: for tests, for trying things out, and for work that may end with its
//! process. It needs no installation and no I/O. It runs on tokio's clock: with paused time, a ladder of hours takes
//! milliseconds.
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
//! For its exact behaviour see [its page](https://github.com/redrive-rs/redrive/blob/main/docs/transports/memory.md).
// Compiles the page's code blocks with the documentation tests, which run only in the repository: the page is not in the package.
#![cfg_attr(doctest, doc = include_str!("../../../../docs/transports/memory.md"))]

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
