//! Assembles a client's message on a link from its transfers.

use bytes::BytesMut;

use crate::amqp::state::DeliveryState;

/// What a client sends, in one transfer or several.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) delivery_id: u32,
    pub(super) format: u32,
    pub(super) settled: bool,
    pub(super) state: Option<DeliveryState>,
    /// Without what is beyond the limit.
    pub(super) bytes: BytesMut,
    /// With what is beyond the limit.
    pub(super) size: u64,
}
