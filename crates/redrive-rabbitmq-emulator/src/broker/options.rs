use std::time::Duration;

use super::Version;

/// Which of the orders that RabbitMQ does not promise is taken: a comparison with RabbitMQ tries all.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnpromisedOrder {
    /// A message is in all queues that it was published to before any of them makes a dead letter of it. What is due at the same time in
    /// several queues comes from the older queue first.
    #[default]
    Together,
    /// Each queue makes its dead letters before the next one, which is younger, gets the message.
    OneByOne,
    /// As `OneByOne`, from the youngest queue to the oldest.
    Reversed,
}

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
    pub(crate) order: UnpromisedOrder,
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
            order: UnpromisedOrder::default(),
        }
    }
}
