//! What an operator sees of the work queue.

/// What the broker tells of the work queue. `None`: it does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkQueue {
    /// Number of messages in it that wait.
    pub depth: Option<u64>,
    /// Number of consumers.
    pub consumers: Option<u64>,
}

impl WorkQueue {
    /// Creates what was seen. For transports.
    #[must_use]
    pub fn new(depth: Option<u64>, consumers: Option<u64>) -> Self {
        Self { depth, consumers }
    }
}
