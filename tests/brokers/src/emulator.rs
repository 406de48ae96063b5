//! Emulators of RabbitMQ.

use redrive_rabbitmq_emulator::Emulator;

use crate::{Version, broker, emulated_on_rabbitmq};

/// An emulator of a test's own; or RabbitMQ itself, if that was asked for.
#[derive(Debug)]
pub struct Emulated {
    /// `amqp://user:password@host:port/vhost`
    pub url: String,
    /// Ends with this value; `None` on RabbitMQ.
    pub emulator: Option<Emulator>,
}

/// Starts an emulator of this version; with [`ON_RABBITMQ_VARIABLE`](crate::ON_RABBITMQ_VARIABLE) returns the shared RabbitMQ.
///
/// # Panics
/// When the emulator does not start, or that RabbitMQ is missing.
pub async fn emulator(version: Version) -> Emulated {
    if emulated_on_rabbitmq() {
        return Emulated { url: broker(version).url, emulator: None };
    }
    let emulator = Emulator::builder().version(version.into()).start().await.expect("started");
    // Where lapin learns the frame size from the broker only, it clears 8 MiB for each connection.
    let url = format!("{}?frame_max=131072", emulator.url());
    Emulated { url, emulator: Some(emulator) }
}

impl From<Version> for redrive_rabbitmq_emulator::Version {
    fn from(version: Version) -> Self {
        match version {
            Version::V3_10 => Self::V3_10,
            Version::V4_3 => Self::V4_3,
        }
    }
}
