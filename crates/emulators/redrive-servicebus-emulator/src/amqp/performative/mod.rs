//! Contents of frames as plain values; `codec` reads and writes them.

mod codec;

use bytes::Bytes;

use super::state::{AmqpError, DeliveryState};
use super::{Map, Value};

/// The content of a frame.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Performative {
    Open(Open),
    Begin(Begin),
    Attach(Box<Attach>),
    Flow(Flow),
    Transfer(Transfer),
    Disposition(Disposition),
    Detach(Detach),
    End(Option<AmqpError>),
    Close(Option<AmqpError>),
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Open {
    pub(crate) container_id: String,
    pub(crate) hostname: Option<String>,
    pub(crate) max_frame_size: u32,
    pub(crate) channel_max: u16,
    /// Milliseconds.
    pub(crate) idle_time_out: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Begin {
    pub(crate) remote_channel: Option<u16>,
    pub(crate) next_outgoing_id: u32,
    pub(crate) incoming_window: u32,
    pub(crate) outgoing_window: u32,
    pub(crate) handle_max: u32,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Attach {
    pub(crate) name: String,
    pub(crate) handle: u32,
    /// True if the sender of this frame is the receiver of the link.
    pub(crate) receiver: bool,
    /// 0 unsettled, 1 settled, 2 mixed.
    pub(crate) sender_settle_mode: u8,
    /// 0 first, 1 second.
    pub(crate) receiver_settle_mode: u8,
    /// Kept as received, because it is echoed.
    pub(crate) source: Value,
    /// Kept as received, because it is echoed.
    pub(crate) target: Value,
    pub(crate) initial_delivery_count: Option<u32>,
    /// In bytes; none and 0 mean no limit.
    pub(crate) max_message_size: Option<u64>,
    pub(crate) properties: Map,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Flow {
    pub(crate) next_incoming_id: Option<u32>,
    pub(crate) incoming_window: u32,
    pub(crate) next_outgoing_id: u32,
    pub(crate) outgoing_window: u32,
    /// If absent, the flow is about the session alone.
    pub(crate) handle: Option<u32>,
    pub(crate) delivery_count: Option<u32>,
    pub(crate) link_credit: Option<u32>,
    pub(crate) available: Option<u32>,
    pub(crate) drain: bool,
    pub(crate) echo: bool,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Transfer {
    pub(crate) handle: u32,
    pub(crate) delivery_id: Option<u32>,
    pub(crate) delivery_tag: Option<Bytes>,
    pub(crate) message_format: u32,
    pub(crate) settled: bool,
    pub(crate) more: bool,
    pub(crate) state: Option<DeliveryState>,
    pub(crate) aborted: bool,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Disposition {
    /// True if the sender of this frame received the deliveries.
    pub(crate) receiver: bool,
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) settled: bool,
    pub(crate) state: Option<DeliveryState>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Detach {
    pub(crate) handle: u32,
    pub(crate) closed: bool,
    pub(crate) error: Option<AmqpError>,
}

impl Attach {
    /// Returns the attach from the other side's point of view.
    pub(crate) fn mirrored(&self) -> Self {
        Self {
            receiver: !self.receiver,
            // Only the sender sends a count.
            initial_delivery_count: self.receiver.then_some(0),
            max_message_size: None,
            ..self.clone()
        }
    }
}
