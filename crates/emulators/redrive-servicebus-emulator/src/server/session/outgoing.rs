//! Transfers to the client, limited by its window and its maximum frame size.

use bytes::{BufMut as _, Bytes};
use uuid::Uuid;

use super::{MAX_UNSETTLED, Session, Unsettled};
use crate::amqp::frame::{FrameKind, put_frame};
use crate::amqp::performative::{Performative, Transfer};
use crate::server::context::Context;

/// Maximum size of a transfer's frame without the payload.
const TRANSFER_OVERHEAD: usize = 64;

/// A delivery that is being sent, perhaps in several frames.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) handle: u32,
    delivery_id: u32,
    tag: Bytes,
    settled: bool,
    payload: Bytes,
    begun: bool,
}

impl Session {
    /// Returns true if a new delivery would be sent now.
    pub(super) fn has_room(&self, context: &mut Context) -> bool {
        self.window > 0 && self.outgoing.is_empty() && !context.has_enough_to_send()
    }

    /// Starts a delivery. With a token, the client has to settle it.
    pub(super) fn deliver(
        &mut self,
        context: &mut Context,
        handle: u32,
        tag: Bytes,
        token: Option<Uuid>,
        payload: Bytes,
    ) {
        let delivery_id = self.next_delivery_id;
        self.next_delivery_id = delivery_id.wrapping_add(1);
        if let Some(token) = token {
            self.unsettled.insert(delivery_id, Unsettled { handle, token });
            if self.unsettled.len() > MAX_UNSETTLED {
                self.unsettled.pop_first();
            }
        }
        let settled = token.is_none();
        self.touch(context, handle);
        self.outgoing.push_back(Outgoing { handle, delivery_id, tag, settled, payload, begun: false });
        self.send_outgoing(context);
    }

    pub(super) fn send_outgoing(&mut self, context: &mut Context) {
        while self.window > 0
            && let Some(outgoing) = self.outgoing.front_mut()
        {
            let room = context.max_frame - TRANSFER_OVERHEAD;
            let chunk = outgoing.payload.split_to(outgoing.payload.len().min(room));
            let more = !outgoing.payload.is_empty();
            let transfer = Performative::Transfer(Transfer {
                handle: outgoing.handle,
                delivery_id: Some(outgoing.delivery_id),
                delivery_tag: (!outgoing.begun).then(|| outgoing.tag.clone()),
                settled: outgoing.settled,
                more,
                ..Transfer::default()
            });
            outgoing.begun = true;
            put_frame(FrameKind::Amqp, self.channel, &mut context.out, |to| {
                transfer.encode(to);
                to.put_slice(&chunk);
            });
            self.window -= 1;
            self.next_outgoing_id = self.next_outgoing_id.wrapping_add(1);
            if !more {
                self.outgoing.pop_front();
            }
        }
    }
}
