//! The types of a queue.

/// The type of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueType {
    /// One node. It does not count deliveries: [`broker_delivery_count`](redrive_core::Delivery::broker_delivery_count) only
    /// tells 1 from 2 or more.
    Classic,
    /// Replicated; counts how often each message was handed out.
    #[default]
    Quorum,
}
