//! The options of a broker.

/// The limits of a broker. Default: no limits. Each queue has its own.
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
    /// Creates options without limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of messages in a queue: ready, waiting and in flight. A full queue refuses publishers and
    /// redrives; it always accepts retries.
    pub fn queue_capacity(mut self, messages: usize) -> Self {
        self.queue_capacity = Some(messages);
        self
    }

    /// Sets the maximum number of messages on each shelf. A full shelf refuses more: the delivery stays in flight.
    pub fn shelf_capacity(mut self, messages: usize) -> Self {
        self.shelf_capacity = Some(messages);
        self
    }

    /// Sets the delivery limit, at least 1. If a message is given back after this many deliveries, the broker itself moves it
    /// to the dead-letter shelf, without its history. Released deliveries do not count.
    pub fn delivery_limit(mut self, times: u32) -> Self {
        self.delivery_limit = Some(times.max(1));
        self
    }
}
