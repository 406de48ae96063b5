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
    /// Now so and now so: another number is another choice. With an odd one a message is in all its queues first.
    Shuffled(u64),
}

impl UnpromisedOrder {
    /// Returns whether a message is in all its queues before any of them makes a dead letter of it.
    pub(crate) fn keeps_together(self) -> bool {
        match self {
            Self::Together => true,
            Self::OneByOne | Self::Reversed => false,
            Self::Shuffled(seed) => seed % 2 == 1,
        }
    }

    /// Chooses one of `count` that come in no promised order, the oldest first. `occasion`: when.
    pub(crate) fn choose(self, count: usize, occasion: i64) -> usize {
        match self {
            Self::Together | Self::OneByOne => 0,
            Self::Reversed => count.saturating_sub(1),
            Self::Shuffled(seed) => {
                // The finalizer of SplitMix64.
                let mut mixed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ occasion.unsigned_abs();
                mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
                (mixed >> 33) as usize % count.max(1)
            }
        }
    }
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
