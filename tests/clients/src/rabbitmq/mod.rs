//! Clients of RabbitMQ: on RabbitMQ and on its emulator, in both versions.

mod everywhere;
mod scene;
mod stage;

pub use redrive_brokers::Version;
pub use scene::{On, Scene};
