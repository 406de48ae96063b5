//! Assembles a client's message on a link from its transfers.

use bytes::BytesMut;

use crate::amqp::state::DeliveryState;

/// A message from a client, in one or several transfers.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) delivery_id: u32,
    pub(super) format: u32,
    pub(super) settled: bool,
    pub(super) state: Option<DeliveryState>,
    /// The content up to the limit.
    pub(super) bytes: BytesMut,
    /// The size including what exceeds the limit.
    pub(super) size: u64,
}
