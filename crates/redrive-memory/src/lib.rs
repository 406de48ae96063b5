#![doc = include_str!("../../../docs/transports/memory.md")]

mod broker;
mod error;
mod options;
mod queue;
mod shelves;
mod state;
mod transport;

pub use broker::MemoryBroker;
pub use options::MemoryOptions;
pub use shelves::MemoryShelves;
pub use transport::{Memory, MemoryReceipt};
