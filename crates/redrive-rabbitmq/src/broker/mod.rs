//! What RabbitMQ writes itself: its version in the greeting, and deliveries and deaths on messages.

pub(crate) mod deaths;
pub(crate) mod delivery_count;
mod version;

pub(crate) use version::{Version, read_greeting};
