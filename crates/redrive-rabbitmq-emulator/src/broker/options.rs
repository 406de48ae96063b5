use std::time::Duration;

use super::Version;

/// Settings of the whole broker.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) version: Version,
    /// `false`: nothing is dead-lettered, as if no queue had a dead-letter exchange.
    pub(crate) dead_lettering: bool,
    /// How long a delivery may stay unsettled.
    pub(crate) consumer_timeout: Option<Duration>,
    pub(crate) max_message_size: u64,
    pub(crate) channel_max: u16,
    pub(crate) frame_max: u32,
    /// In seconds.
    pub(crate) heartbeat: u16,
    /// Number of events that are kept.
    pub(crate) max_events: usize,
}

impl Options {
    pub(crate) fn new(version: Version) -> Self {
        Self {
            version,
            dead_lettering: true,
            consumer_timeout: Some(Duration::from_millis(1_800_000)),
            max_message_size: version.max_message_size(),
            channel_max: 2047,
            frame_max: 131_072,
            heartbeat: 60,
            max_events: 100_000,
        }
    }
}
