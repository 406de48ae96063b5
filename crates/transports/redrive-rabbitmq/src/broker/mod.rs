//! What RabbitMQ itself has and writes: types of queues, its version in the greeting, and deliveries and deaths on messages.

pub(crate) mod deaths;
pub(crate) mod delivery_count;
mod queue_type;
mod version;

pub use queue_type::QueueType;
pub(crate) use version::{Version, read_greeting};
