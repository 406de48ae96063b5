//! The limits of a broker.

/// What a broker allows. Default: no limits. The limits hold for each queue by itself.
///
/// ```
/// use redrive_memory::{MemoryBroker, MemoryOptions};
///
/// let broker = MemoryBroker::with(MemoryOptions::new().queue_capacity(10_000).delivery_limit(20));
/// # let _ = broker;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct MemoryOptions {
    pub(crate) queue_capacity: Option<usize>,
    pub(crate) shelf_capacity: Option<usize>,
    pub(crate) delivery_limit: Option<u32>,
}

impl MemoryOptions {
    /// No limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// At most this many messages in a queue: ready, waiting and held ones together. A full queue refuses to
    /// take more from publishers and from redrives; retries always find their place.
    pub fn queue_capacity(mut self, messages: usize) -> Self {
        self.queue_capacity = Some(messages);
        self
    }

    /// At most this many messages on each shelf. A full shelf refuses more: the delivery stays in flight.
    pub fn shelf_capacity(mut self, messages: usize) -> Self {
        self.shelf_capacity = Some(messages);
        self
    }

    /// A message that comes back after having been handed out this often goes to the dead-letter shelf, moved
    /// by the broker itself, without its history. Releasing does not count. At least 1.
    pub fn delivery_limit(mut self, times: u32) -> Self {
        self.delivery_limit = Some(times.max(1));
        self
    }
}
