//! The channels of one transport, and how often they were interrupted.

use std::sync::{Arc, Weak};

use super::DeliveryChannel;
use parking_lot::{Mutex, MutexGuard};

/// The channels of one transport that had deliveries, and the number of their interruptions.
#[derive(Debug, Default)]
pub(crate) struct DeliveryChannels(Mutex<Registry>);

#[derive(Debug, Default)]
struct Registry {
    channels: Vec<Weak<DeliveryChannel>>,
    interruptions: u64,
    /// The connection of the last subscription, and the number of interruptions when it began.
    last: Option<(u64, u64)>,
}

impl DeliveryChannels {
    pub(crate) fn add(&self, channel: &Arc<DeliveryChannel>) {
        let channels = &mut self.registry().channels;
        channels.retain(|channel| channel.strong_count() > 0);
        channels.push(Arc::downgrade(channel));
    }

    /// Returns those that still have a user.
    pub(crate) fn in_use(&self) -> Vec<Arc<DeliveryChannel>> {
        self.registry().channels.iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the number of interruptions, including new ones. Channels that ended since the last call count as one.
    pub(crate) fn interruptions(&self) -> u64 {
        let mut registry = self.registry();
        let ended = registry.channels.iter().filter_map(Weak::upgrade);
        if ended.filter(|channel| channel.count_interruption()).count() > 0 {
            registry.interruptions += 1;
        }
        registry.interruptions
    }

    /// Returns the same for a new subscription on the connection of this epoch. The end of the last connection counts also if its
    /// channels had no user any more: acknowledgements may have been lost with it.
    pub(crate) fn interruptions_before(&self, epoch: u64) -> u64 {
        self.interruptions();
        let mut registry = self.registry();
        if registry.last.is_some_and(|(last, before)| last != epoch && before == registry.interruptions) {
            registry.interruptions += 1;
        }
        registry.last = Some((epoch, registry.interruptions));
        registry.interruptions
    }

    /// Counts the end of a channel that was never added.
    pub(crate) fn note_interruption(&self) {
        self.registry().interruptions += 1;
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.0.lock()
    }
}
