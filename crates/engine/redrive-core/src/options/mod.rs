//! Options from a section of a configuration, with the key names that other clients use.

mod error;
#[doc(hidden)]
pub mod section;
mod shelf_queues;

pub use error::OptionsError;
pub use shelf_queues::ShelfQueues;
